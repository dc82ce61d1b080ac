// pool/run/claim.hpp: which tasks of a batch a worker has begun, and which are still its own.
//
// A worker is sent batches of tasks. Before it begins a task it claims it, in one step, in a word that the
// application sees too. So the application knows of a dead worker exactly which tasks it had begun; and it may take
// tasks back that are not begun, by lowering the limit in the same word. Batches that the worker has not come to yet
// are taken back by a fence, a number below which it begins none: they are on their way, or in the worker's hands
// already, and one that were only taken out of the queue could be overtaken by the next.
//
//   sequence (32 bits) of the batch | next (16 bits), tasks below it are claimed | limit (16 bits), tasks from it on
//   are not the worker's
#pragma once

#include <atomic>
#include <cstdint>

namespace drover {

inline constexpr std::uint32_t kMostInBatch = 0xFFFF;

/// What the word says.
struct Claim {
  std::uint32_t sequence = 0;
  std::uint16_t next = 0;
  std::uint16_t limit = 0;

  [[nodiscard]] static Claim of(std::uint64_t word) noexcept {
    return {static_cast<std::uint32_t>(word >> 32U), static_cast<std::uint16_t>(word >> 16U),
            static_cast<std::uint16_t>(word)};
  }
  [[nodiscard]] std::uint64_t word() const noexcept {
    return (std::uint64_t{sequence} << 32U) | (std::uint64_t{next} << 16U) | limit;
  }
};

/// By the worker: from now on this is its batch. False if it was taken back. Either the worker sees the fence here,
/// or the application sees this batch in the word when it has set the fence, and takes it back there. No batch behind
/// one that was taken back gets into the word: whatever comes before the one in the word counts as done.
inline bool begin_batch(std::atomic<std::uint64_t>& word, const std::atomic<std::uint32_t>& fence,
                        std::uint32_t sequence, std::uint16_t count) noexcept {
  if (fence.load(std::memory_order_acquire) >= sequence) return false;
  word.store(Claim{sequence, 0, count}.word(), std::memory_order_seq_cst);
  return fence.load(std::memory_order_seq_cst) < sequence;
}

/// By the application: the worker begins no batch up to this one that it has not begun. Returns the one that it is
/// at: all up to `sequence` that come after that have not begun, and never will.
inline std::uint32_t set_fence(std::atomic<std::uint32_t>& fence, const std::atomic<std::uint64_t>& word,
                               std::uint32_t sequence) noexcept {
  fence.store(sequence, std::memory_order_seq_cst);
  return Claim::of(word.load(std::memory_order_seq_cst)).sequence;
}

/// By the worker, before it begins its next task: false if the rest was taken back.
inline bool claim_next(std::atomic<std::uint64_t>& word) noexcept {
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  while (true) {
    Claim claim = Claim::of(seen);
    if (claim.next >= claim.limit) return false;
    ++claim.next;
    if (word.compare_exchange_weak(seen, claim.word(), std::memory_order_acq_rel, std::memory_order_relaxed))
      return true;
  }
}

/// By the application: takes back all but `keep` of the tasks that are not begun, if the worker is at this batch.
/// Returns the limit it has now, or `limit` as it was if nothing was taken.
inline std::uint16_t take_back(std::atomic<std::uint64_t>& word, std::uint32_t sequence, std::uint16_t limit,
                               std::uint16_t keep) noexcept {
  std::uint64_t seen = word.load(std::memory_order_acquire);
  while (true) {
    Claim claim = Claim::of(seen);
    if (claim.sequence != sequence || claim.next + keep >= claim.limit) return limit;
    claim.limit = static_cast<std::uint16_t>(claim.next + keep);
    if (word.compare_exchange_weak(seen, claim.word(), std::memory_order_acq_rel, std::memory_order_acquire))
      return claim.limit;
  }
}

}  // namespace drover
