// POSIX mutexes, semaphores, conditions and barriers that processes share.
#include <pthread.h>
#include <semaphore.h>

#include <cerrno>
#include <cstring>

#include "sync/parts.hpp"

namespace drover::bench {
namespace {

void check(int error, const char* call) {
  if (error != 0) throw std::runtime_error(std::string(call) + ": " + std::strerror(error));
}
void check_errno(int result, const char* call) { check(result == 0 ? 0 : errno, call); }

void set_up_mutex(pthread_mutex_t& mutex, bool is_robust) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  if (is_robust) ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  check(::pthread_mutex_init(&mutex, &attributes), "pthread_mutex_init");
  ::pthread_mutexattr_destroy(&attributes);
}

void set_up_condition(pthread_cond_t& condition) {
  pthread_condattr_t attributes;
  ::pthread_condattr_init(&attributes);
  ::pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  check(::pthread_cond_init(&condition, &attributes), "pthread_cond_init");
  ::pthread_condattr_destroy(&attributes);
}

class Mutex {
 public:
  using Own = pthread_mutex_t;
  explicit Mutex(const Opening<Own>& opening) : mutex_(opening.shared.own) {}
  void lock() { check(::pthread_mutex_lock(&mutex_), "pthread_mutex_lock"); }
  void unlock() { check(::pthread_mutex_unlock(&mutex_), "pthread_mutex_unlock"); }

 private:
  pthread_mutex_t& mutex_;
};

template <bool IsRobust>
Made make_mutex(const Cell&, const Session&) {
  return make_shared_memory<pthread_mutex_t>([](auto* shared) { set_up_mutex(shared->own, IsRobust); });
}

class SemaphoreLock {
 public:
  using Own = sem_t;
  explicit SemaphoreLock(const Opening<Own>& opening) : semaphore_(opening.shared.own) {}
  void lock() { check_errno(::sem_wait(&semaphore_), "sem_wait"); }
  void unlock() { check_errno(::sem_post(&semaphore_), "sem_post"); }

 private:
  sem_t& semaphore_;
};

Made make_semaphore(const Cell&, const Session&) {
  return make_shared_memory<sem_t>([](auto* shared) { check_errno(::sem_init(&shared->own, 1, 1), "sem_init"); });
}

struct TwoSemaphores {
  alignas(kFarApart) std::array<sem_t, 2> both;
};

class SemaphoreTurns {
 public:
  using Own = TwoSemaphores;
  explicit SemaphoreTurns(const Opening<Own>& opening)
      : own_(opening.shared.own.both[opening.order.index]),
        other_(opening.shared.own.both[1 - opening.order.index]) {}
  void give() { check_errno(::sem_post(&other_), "sem_post"); }
  void take() { check_errno(::sem_wait(&own_), "sem_wait"); }

 private:
  sem_t& own_;
  sem_t& other_;
};

Made make_two_semaphores(const Cell&, const Session&) {
  return make_shared_memory<TwoSemaphores>([](auto* shared) {
    for (auto& semaphore : shared->own.both) check_errno(::sem_init(&semaphore, 1, 0), "sem_init");
  });
}

struct GuardedTurn {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  std::uint32_t turn;
};

class ConditionTurns {
 public:
  using Own = GuardedTurn;
  explicit ConditionTurns(const Opening<Own>& opening) : shared_(opening.shared.own), index_(opening.order.index) {}
  void give() {
    ::pthread_mutex_lock(&shared_.mutex);
    shared_.turn = 1 - index_;
    ::pthread_mutex_unlock(&shared_.mutex);
    ::pthread_cond_signal(&shared_.condition);
  }
  void take() {
    ::pthread_mutex_lock(&shared_.mutex);
    while (shared_.turn != index_) ::pthread_cond_wait(&shared_.condition, &shared_.mutex);
    ::pthread_mutex_unlock(&shared_.mutex);
  }

 private:
  GuardedTurn& shared_;
  std::uint32_t index_;
};

Made make_turn(const Cell&, const Session&) {
  return make_shared_memory<GuardedTurn>([](auto* shared) {
    set_up_mutex(shared->own.mutex, false);
    set_up_condition(shared->own.condition);
  });
}

class Meeting {
 public:
  using Own = pthread_barrier_t;
  explicit Meeting(const Opening<Own>& opening) : barrier_(opening.shared.own) {}
  void wait() {
    const int result = ::pthread_barrier_wait(&barrier_);
    if (result != PTHREAD_BARRIER_SERIAL_THREAD) check(result, "pthread_barrier_wait");
  }

 private:
  pthread_barrier_t& barrier_;
};

Made make_barrier(const Cell& cell, const Session&) {
  return make_shared_memory<pthread_barrier_t>([&](auto* shared) {
    pthread_barrierattr_t attributes;
    ::pthread_barrierattr_init(&attributes);
    ::pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    check(::pthread_barrier_init(&shared->own, &attributes, cell.processes), "pthread_barrier_init");
    ::pthread_barrierattr_destroy(&attributes);
  });
}

}  // namespace

std::span<const Contender> posix_contenders() {
  static const std::array all = {
      Contender{Kind::lock, "pthread mutex, robust", make_mutex<true>, play_way<Mutex>},
      Contender{Kind::lock, "pthread mutex", make_mutex<false>, play_way<Mutex>},
      Contender{Kind::semaphore, "sem_t", make_semaphore, play_way<SemaphoreLock>},
      Contender{Kind::semaphore_turns, "sem_t", make_two_semaphores, play_way<SemaphoreTurns>},
      // POSIX has no events; this builds one of a mutex and a condition.
      Contender{Kind::event_turns, "pthread mutex + cond", make_turn, play_way<ConditionTurns>},
      Contender{Kind::condition_turns, "pthread cond", make_turn, play_way<ConditionTurns>},
      Contender{Kind::barrier, "pthread barrier", make_barrier, play_way<Meeting>},
  };
  return all;
}

}  // namespace drover::bench
