// pool/run/claim.hpp: which tasks of a batch a worker has begun, and which it may still begin.
//
// A worker claims each task before it begins it, in one atomic step, in a word that the application sees too. So the
// application knows exactly which tasks a dead worker had begun, and it can take back tasks that have not begun, by
// lowering the limit in the same word. It takes back batches that the worker has not reached with a fence: the worker
// begins no batch up to that number. Removing them from the queue would not be enough, because the worker may hold
// one already.
//
//   sequence (32 bits) of the batch | next (16 bits): tasks below are claimed | limit (16 bits): tasks from here on
//   were taken back
#pragma once

#include <atomic>
#include <cstdint>

namespace drover::pool {

inline constexpr std::uint32_t kMostInBatch = 0xFFFF;

/// The fields of the word.
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

/// Called by the worker to make this its current batch; false if it was taken back. Either the worker sees the fence,
/// or the application sees this batch in the word after setting the fence, and takes it back there. No batch after a
/// batch that was taken back gets into the word, because all batches before the one in the word count as done.
inline bool begin_batch(std::atomic<std::uint64_t>& word, const std::atomic<std::uint32_t>& fence,
                        std::uint32_t sequence, std::uint16_t count) noexcept {
  if (fence.load(std::memory_order_acquire) >= sequence) return false;
  word.store(Claim{sequence, 0, count}.word(), std::memory_order_seq_cst);
  return fence.load(std::memory_order_seq_cst) < sequence;
}

/// Called by the application: the worker begins no more batches up to `sequence`. Returns its current batch; later
/// ones up to `sequence` have not begun and never will.
inline std::uint32_t set_fence(std::atomic<std::uint32_t>& fence, const std::atomic<std::uint64_t>& word,
                               std::uint32_t sequence) noexcept {
  fence.store(sequence, std::memory_order_seq_cst);
  return Claim::of(word.load(std::memory_order_seq_cst)).sequence;
}

/// Called by the worker before it begins its next task; false if the rest was taken back.
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

/// Called by the application: takes back all but `keep` of the tasks that have not begun, if `sequence` is the
/// current batch. Returns the new limit, or `limit` if nothing was taken back.
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

}  // namespace drover::pool
