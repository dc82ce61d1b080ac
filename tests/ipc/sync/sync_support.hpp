// tests/ipc/sync/sync_support.hpp: shared by the tests of synchronisation: a board of numbers, peers that are killed
// and replaced, and waiting for something to become true.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/ipc/lock.hpp"
#include "drover/ipc/value.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/wake/bell.hpp"
#include "ipc/wake/cell_lock.hpp"
#include "support/peer_group.hpp"
#include "support/test_session.hpp"

namespace drover::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kKills = 30;
inline constexpr int kRounds = 300;
#else
inline constexpr int kKills = 200;
inline constexpr int kRounds = 3000;
#endif

/// Long enough for any machine; a test that reaches it has failed.
inline Deadline patient() { return Deadline::after(std::chrono::seconds(60)); }

/// Whether `holds()` becomes true in time.
inline bool eventually(const std::function<bool()>& holds) {
  const Deadline deadline = patient();
  while (!holds()) {
    if (deadline.has_passed()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

/// While it lives, a signal interrupts the thread that made it every few milliseconds. One at a
/// time.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction ignoring{};
    ignoring.sa_handler = [](int) {};
    ::sigaction(SIGUSR2, &ignoring, &before_);
    thread_ = std::thread([this, target = ::pthread_self()] {
      while (!is_over_) {
        ::pthread_kill(target, SIGUSR2);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  ~Interruptions() {
    is_over_ = true;
    thread_.join();
    ::sigaction(SIGUSR2, &before_, nullptr);
  }

 private:
  struct sigaction before_{};
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

/// Atomic numbers shared by the test and its peers.
class Board {
 public:
  explicit Board(const std::shared_ptr<Membership>& membership) : numbers_(membership, 64) {}
  Board(const std::shared_ptr<Membership>& membership, const ObjectHandle& handle) : numbers_(membership, handle) {}

  [[nodiscard]] std::atomic_ref<std::uint64_t> operator[](std::size_t index) {
    return std::atomic_ref<std::uint64_t>(numbers_[index]);
  }
  /// `objects`, followed by the handles with which a peer opens the board.
  [[nodiscard]] std::vector<ObjectHandle> after(std::vector<ObjectHandle> objects) {
    objects.push_back(numbers_.handle());
    objects.push_back(numbers_.lock().handle());
    return objects;
  }

 private:
  SharedArray<std::uint64_t> numbers_;
};

/// Process peers of one body, each its own participant, that are killed and replaced. The body gets the objects by
/// invitation, in the order given; its parameter "place" is its index.
class Herd {
 public:
  Herd(TestSession& session, std::string body, std::vector<ObjectHandle> objects)
      : session_(session), body_(std::move(body)), objects_(std::move(objects)) {}
  Herd(const Herd&) = delete;
  Herd& operator=(const Herd&) = delete;
  ~Herd() {
    for (std::size_t place = 0; place < members_.size(); ++place) {
      if (members_[place].group != nullptr) remove(place);
    }
  }

  /// Starts the next peer, or restarts the one at `place`.
  void add() {
    members_.emplace_back();
    replace(members_.size() - 1);
  }
  void replace(std::size_t place) {
    Member& member = members_.at(place);
    member.group = std::make_unique<PeerGroup>(body_, PeerShape{.mode = PeerMode::processes, .size = 1},
                                               std::map<std::string, std::string>{{"place", std::to_string(place)}});
    member.group->start();
    member.owner = session_.invite(member.group->channel(0), objects_);
  }
  /// Kills a peer and waits for its death, without recovery.
  void kill(std::size_t place) {
    PeerGroup& group = *members_.at(place).group;
    group.kill(0);
    const auto outcome = group.wait(patient()).front();
    EXPECT_EQ(outcome.kind, PeerOutcome::Kind::abandoned) << outcome.text;
  }
  /// Recovers it as the keeper does.
  void recover(std::size_t place) {
    session_.recover(members_.at(place).owner);
    members_.at(place).group.reset();
  }
  void remove(std::size_t place) {
    kill(place);
    recover(place);
  }
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] PeerGroup& group(std::size_t place) { return *members_.at(place).group; }

 private:
  struct Member {
    std::unique_ptr<PeerGroup> group;
    Owner owner = kNobody;
  };
  TestSession& session_;
  std::string body_;
  std::vector<ObjectHandle> objects_;
  std::vector<Member> members_;
};

/// Pauses for a random short time, so that the next kill falls on any instruction.
class RandomPause {
 public:
  void operator()() { std::this_thread::sleep_for(std::chrono::microseconds(random_() % 700)); }
  [[nodiscard]] std::size_t pick(std::size_t size) { return random_() % size; }

 private:
  std::minstd_rand random_{4711};
};

/// Runs `work(membership, index)` in threads, each a participant; for the thread sanitizer.
inline void run_threads(TestSession& session, int count,
                        const std::function<void(const std::shared_ptr<Membership>&, int)>& work) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  for (int index = 0; index < count; ++index) {
    threads.emplace_back([&session, &work, index] { work(session.join(), index); });
  }
  for (auto& thread : threads) thread.join();
}

/// A participant that dies at a point of its body, or wherever it is.
class Victim {
 public:
  Victim(TestSession& session, const std::string& body, const std::vector<ObjectHandle>& objects,
         const std::string& dies_at = {})
      : session_(session), group_(body, {.mode = PeerMode::processes, .size = 1}) {
    if (!dies_at.empty()) group_.kill_at(0, dies_at);
    group_.start();
    owner_ = session.invite(group_.channel(0), objects);
  }

  /// Waits until it has died, without recovery.
  void await_death() {
    const auto outcome = group_.wait(patient()).front();
    ASSERT_EQ(outcome.kind, PeerOutcome::Kind::abandoned) << outcome.text;
  }
  /// Recovers it as the keeper does.
  void recover() { session_.recover(owner_); }
  /// Waits for its death, then recovers it.
  void die() {
    await_death();
    recover();
  }
  /// Kills it wherever it is, and recovers it.
  void kill() {
    group_.kill(0);
    die();
  }
  /// Its next message.
  std::string hear() { return group_.receive_text(0); }

 private:
  TestSession& session_;
  PeerGroup group_;
  Owner owner_ = kNobody;
};

/// The layout of an object, to see sleepers on it.
template <class Layout>
Layout& layout_for(const std::shared_ptr<Membership>& membership, const ObjectHandle& handle) {
  return *reinterpret_cast<Layout*>(ipc::layout_of(membership->open(handle).data));
}

inline bool has_sleeper(const ipc::CellLockLayout& cell) { return (cell.word.load() & 1U) != 0; }
inline bool has_sleeper(const ipc::Bell& bell) { return (bell.word.load() & 1U) != 0; }

}  // namespace drover::test
