// benchmarks/sync/parts.hpp: the parts of workers, the same for every contender. Templates, so that no contender
// pays for a virtual call.
#pragma once

#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

#include "drover/base/mapping.hpp"
#include "support/cpus.hpp"
#include "sync/workload.hpp"

namespace drover::bench {

/// In a memory file: the number that a lock guards, and the contender's object.
template <class T>
struct Shared {
  alignas(kFarApart) std::uint64_t guarded = 0;  ///< changed under the lock, without other protection
  alignas(kFarApart) T own{};
};
struct Nothing {};

/// A memory file with a new Shared<T>, for contenders that initialise it.
template <class T, class SetUp>
[[nodiscard]] Made make_shared_memory(SetUp set_up) {
  Fd file = make_memory_file("drover-bench-sync", sizeof(Shared<T>));
  const Mapping memory = Mapping::shared(file, sizeof(Shared<T>));
  set_up(new (memory.data()) Shared<T>{});
  return {.memory = std::move(file), .names = {}, .keep = {}};
}

/// What a worker needs to open a contender.
template <class T>
struct Opening {
  const Order& order;
  const Session& session;
  Shared<T>& shared;
};

// Ways to lock are classes L with a type L::Own, a constructor L(Opening<L::Own>), lock() and unlock(). Ways to take
// turns have give(), which lets the other continue, and take(), which waits for the turn. Barriers have wait().

/// Alone: many acquisitions between two readings of the clock, since one takes less time than a reading.
template <class L>
void lock_alone(L& lock, const Order& order, Post& post) {
  constexpr int kAtATime = 1000;
  const std::int64_t begin = now_ns();
  for (std::uint32_t i = 0; i < order.warm_samples + order.most_samples; ++i) {
    const std::int64_t before = now_ns();
    for (int j = 0; j < kAtATime; ++j) {
      lock.lock();
      lock.unlock();
    }
    const std::int64_t after = now_ns();
    if (i >= order.warm_samples) post.board().samples.add(static_cast<double>(after - before) / kAtATime);
    if (after - begin > order.budget_ns && i > order.warm_samples) break;
  }
  post.send("done");
}

/// About 100 ns of work outside of the lock. Without it, the holder would acquire the lock again before others can.
inline void work_a_little(std::uint64_t& number) noexcept {
  for (int i = 0; i < 64; ++i) number = number * 6364136223846793005U + 1442695040888963407U;
  keep(number);
}

/// With others: the guarded number would be wrong if two held the lock at once.
template <class L>
void lock_contended(L& lock, std::uint64_t& guarded, Post& post) {
  Progress& progress = post.progress();
  std::uint64_t number = post.number();
  while (post.board().signals.is_stopped.load(std::memory_order_relaxed) == 0) {
    lock.lock();
    const std::uint64_t seen = guarded;
    keep(seen);
    guarded = seen + 1;
    lock.unlock();
    progress.step();
    work_a_little(number);
  }
  post.send("done");
}

/// Half of each round trip. The clock is read during the other's turn.
template <class T>
void take_turns(T& turns, const Order& order, Post& post) {
  const std::int64_t begin = now_ns();
  std::int64_t before = 0;
  for (std::uint32_t trip = 0;; ++trip) {
    const bool is_last = before - begin > order.budget_ns && trip > order.warm_samples + 2;
    if (is_last || trip > order.warm_samples + order.most_samples) break;
    turns.give();
    const std::int64_t given = now_ns();
    if (trip > order.warm_samples) post.board().samples.add(static_cast<double>(given - before) / 2);
    before = given;
    turns.take();
  }
  post.board().signals.is_stopped.store(1);
  turns.give();
}

template <class T>
void return_turns(T& turns, Post& post) {
  for (;;) {
    turns.take();
    if (post.board().signals.is_stopped.load() != 0) return;
    turns.give();
  }
}

/// The first process announces the last round one round ahead, so that all leave after it.
template <class B>
void meet(B& barrier, const Order& order, Post& post) {
  Board& board = post.board();
  const std::int64_t begin = now_ns();
  std::int64_t before = begin;
  for (std::uint64_t round = 0; round != board.signals.total.load(); ++round) {
    const bool is_late = before - begin > order.budget_ns && round > order.warm_samples + 2;
    const bool is_enough = is_late || round > order.warm_samples + order.most_samples;
    if (order.index == 0 && is_enough && board.signals.total.load() == kUnknown) board.signals.total.store(round + 2);
    barrier.wait();
    const std::int64_t now = now_ns();
    if (order.index == 0 && round > order.warm_samples) board.samples.add(static_cast<double>(now - before));
    before = now;
  }
}

/// Plays the part for the task of a contender.
template <class Way>
void play_way(const Order& order, const Fd& memory, Post& post) {
  using Own = typename Way::Own;
  pin_thread(-1);
  const Mapping mapping = Mapping::shared(memory, sizeof(Shared<Own>));
  auto& shared = *std::launder(reinterpret_cast<Shared<Own>*>(mapping.data()));
  Way way(Opening<Own>{.order = order, .session = post.session(), .shared = shared});
  post.send("ready");
  post.expect("go");
  pin_thread(order.cpu);
  if constexpr (requires { way.lock(); }) {
    if (order.cell.processes == 1) {
      lock_alone(way, order, post);
    } else {
      lock_contended(way, shared.guarded, post);
    }
  } else if constexpr (requires { way.give(); }) {
    if (order.index == 0) {
      take_turns(way, order, post);
    } else {
      return_turns(way, post);
    }
    post.send("done");
  } else {
    meet(way, order, post);
    post.send("done");
  }
  post.expect("close");
}

}  // namespace drover::bench
