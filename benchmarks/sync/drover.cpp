// drover's objects.
#include "drover/ipc/barrier.hpp"
#include "drover/ipc/condition.hpp"
#include "drover/ipc/event.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/ipc/semaphore.hpp"
#include "sync/parts.hpp"

namespace drover::bench {
namespace {

ObjectHandle handle_of(const Opening<Nothing>& opening, std::size_t place = 0) {
  return ObjectHandle::parse(opening.order.names[place].data());
}

template <class L>
class LockWay {
 public:
  using Own = Nothing;
  explicit LockWay(const Opening<Own>& opening) : lock_(opening.session, handle_of(opening)) {}
  void lock() { static_cast<void>(lock_.acquire()); }
  void unlock() { lock_.release(); }

 private:
  L lock_;
};

/// Two objects of one type: ours, to wait for, and the other process's.
template <class T>
struct Pair {
  explicit Pair(const Opening<Nothing>& opening)
      : own(opening.session, handle_of(opening, opening.order.index)),
        other(opening.session, handle_of(opening, 1 - opening.order.index)) {}
  T own;
  T other;
};

class SemaphoreTurns {
 public:
  using Own = Nothing;
  explicit SemaphoreTurns(const Opening<Own>& opening) : pair_(opening) {}
  void give() { pair_.other.release(); }
  void take() { static_cast<void>(pair_.own.acquire()); }

 private:
  Pair<Semaphore> pair_;
};

class EventTurns {
 public:
  using Own = Nothing;
  explicit EventTurns(const Opening<Own>& opening) : pair_(opening) {}
  void give() { pair_.other.set(); }
  void take() {
    static_cast<void>(pair_.own.wait());
    pair_.own.clear();
  }

 private:
  Pair<Event> pair_;
};

class ConditionTurns {
 public:
  using Own = Nothing;
  explicit ConditionTurns(const Opening<Own>& opening)
      : condition_(opening.session, handle_of(opening)), turn_(opening.shared.guarded), index_(opening.order.index) {}
  void give() {
    static_cast<void>(condition_.acquire());
    turn_ = 1 - index_;
    condition_.notify();
    condition_.release();
  }
  void take() {
    static_cast<void>(condition_.acquire());
    static_cast<void>(condition_.wait_for([this] { return turn_ == index_; }));
    condition_.release();
  }

 private:
  Condition condition_;
  std::uint64_t& turn_;
  std::uint64_t index_;
};

class Meeting {
 public:
  using Own = Nothing;
  explicit Meeting(const Opening<Own>& opening) : barrier_(opening.session, handle_of(opening)) {}
  void wait() {
    if (!barrier_.wait().is_passed()) throw std::runtime_error("the barrier broke");
  }

 private:
  Barrier barrier_;
};

template <class T, class... Arguments>
Made make_one(const Session& session, Arguments... arguments) {
  auto made = make_shared_memory<Nothing>([](auto*) {});
  auto object = std::make_shared<T>(session, arguments...);
  made.names[0] = object->handle().to_string();
  made.keep = std::move(object);
  return made;
}

template <class T, class... Arguments>
Made make_two(const Session& session, Arguments... arguments) {
  auto made = make_shared_memory<Nothing>([](auto*) {});
  auto objects = std::make_shared<std::pair<T, T>>(T(session, arguments...), T(session, arguments...));
  made.names = {objects->first.handle().to_string(), objects->second.handle().to_string()};
  made.keep = std::move(objects);
  return made;
}

constexpr auto kMakeLock = [](const Cell&, const Session& session) { return make_one<Lock>(session); };
constexpr auto kMakeRLock = [](const Cell&, const Session& session) { return make_one<RLock>(session); };
constexpr auto kMakeSemaphore = [](const Cell&, const Session& session) {
  return make_one<Semaphore>(session, std::uint64_t{1});
};
constexpr auto kMakeSemaphores = [](const Cell&, const Session& session) {
  return make_two<Semaphore>(session, std::uint64_t{0});
};
constexpr auto kMakeEvents = [](const Cell&, const Session& session) { return make_two<Event>(session); };
constexpr auto kMakeCondition = [](const Cell&, const Session& session) { return make_one<Condition>(session); };
constexpr auto kMakeBarrier = [](const Cell& cell, const Session& session) {
  return make_one<Barrier>(session, cell.processes);
};

}  // namespace

std::span<const Contender> drover_contenders() {
  static const std::array all = {
      Contender{Kind::lock, "drover Lock", kMakeLock, play_way<LockWay<Lock>>},
      Contender{Kind::lock, "drover RLock", kMakeRLock, play_way<LockWay<RLock>>},
      Contender{Kind::semaphore, "drover Semaphore", kMakeSemaphore, play_way<LockWay<Semaphore>>},
      Contender{Kind::semaphore_turns, "drover Semaphore", kMakeSemaphores, play_way<SemaphoreTurns>},
      Contender{Kind::event_turns, "drover Event", kMakeEvents, play_way<EventTurns>},
      Contender{Kind::condition_turns, "drover Condition", kMakeCondition, play_way<ConditionTurns>},
      Contender{Kind::barrier, "drover Barrier", kMakeBarrier, play_way<Meeting>},
  };
  return all;
}

}  // namespace drover::bench
