#include "tensor/memory/retired_blocks.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "drover/base/log.hpp"

namespace drover::tensor {
namespace {

// How long to wait for what a default stream was given: work that is done is noticed at once.
constexpr std::chrono::microseconds kLatePatience{20};

std::optional<std::uint64_t> follow_default_stream(DeviceWork& work) noexcept {
  try {
    const auto ticket = work.follow_default_stream();
    if (ticket) static_cast<void>(work.wait(*ticket, Deadline::after(kLatePatience)));
    return ticket;
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
    return 0;
  }
}

// One event of a default stream serves all blocks that it used. During a capture they stay as they are.
void resolve_late_uses(std::vector<RetiredBlock>& blocks) noexcept {
  std::map<const DeviceWork*, std::optional<std::uint64_t>> tickets;
  for (RetiredBlock& block : blocks) {
    if (block.late == nullptr) continue;
    const auto [at, is_new] = tickets.try_emplace(block.late.get());
    if (is_new) at->second = follow_default_stream(*block.late);
    if (at->second) block.uses.push_back({.work = std::exchange(block.late, nullptr), .ticket = *at->second});
  }
}

// Whether uses have ended, by one look at each stream for all blocks: a driver takes microseconds to answer.
class Progress {
 public:
  bool has_ended(const WorkTicket& use) {
    Known& known = known_[use.work.get()];
    if (known.ended < use.ticket && use.ticket < known.pending) {
      (tensor::has_ended(use) ? known.ended : known.pending) = use.ticket;
    }
    return use.ticket <= known.ended;
  }

 private:
  struct Known {
    std::uint64_t ended = 0;                                            // and all tickets below
    std::uint64_t pending = std::numeric_limits<std::uint64_t>::max();  // and all above
  };
  std::map<const DeviceWork*, Known> known_;
};

void wait_for_end(const WorkTicket& use, Deadline deadline) noexcept {
  try {
    static_cast<void>(use.work->wait(use.ticket, deadline));
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

void finish(DeviceWork& work) noexcept {
  try {
    work.finish();
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
}

}  // namespace

// In a forked child another thread may have held the mutex, which then stays locked, and deleters of other libraries
// must not run.
RetiredBlocks::~RetiredBlocks() DROVER_NO_THREAD_ANALYSIS {
  if (membership_->self() == kNobody) {
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory the child ends here
    static_cast<void>(new std::vector<RetiredBlock>(std::move(blocks_)));
    return;
  }
  auto blocks = take_all();
  resolve_late_uses(blocks);
  for (const auto& block : blocks) {
    for (const auto& use : block.uses) finish(*use.work);
  }
}

void RetiredBlocks::add(RetiredBlock block) {
  const MutexLock lock(mutex_);
  blocks_.push_back(std::move(block));
  count_ = blocks_.size();
}

// Checks and waits without mutex_, which threads need to retire blocks.
void RetiredBlocks::release_ended(Deadline patience, const std::function<void(RetiredBlock&)>& release) {
  std::vector<RetiredBlock> released;  // destroyed last, since that runs deleters of other libraries
  if (patience.has_passed()) {
    if (!checking_.try_lock()) return;
  } else {
    checking_.lock();
  }
  const std::scoped_lock lock(std::adopt_lock, checking_);
  auto blocks = take_all();
  resolve_late_uses(blocks);
  auto [ended, pending] = sort_out(std::move(blocks), patience);
  released = std::move(ended);
  std::ranges::for_each(released, release);
  put_back(std::move(pending));
}

RetiredBlocks::Sorted RetiredBlocks::sort_out(std::vector<RetiredBlock> blocks, Deadline patience) {
  const bool is_patient = !patience.has_passed();
  Progress progress;
  const auto has_ended = [&](const auto& use) {
    if (is_patient) wait_for_end(use, patience);
    return progress.has_ended(use);
  };
  Sorted sorted;
  for (RetiredBlock& block : blocks) {
    const bool is_unused = block.late == nullptr && std::ranges::all_of(block.uses, has_ended);
    (is_unused ? sorted.ended : sorted.pending).push_back(std::move(block));
  }
  return sorted;
}

// The count still includes what is taken, so that a thread that needs memory waits for the thread that checks it.
std::vector<RetiredBlock> RetiredBlocks::take_all() {
  const MutexLock lock(mutex_);
  count_ = blocks_.size();
  return std::exchange(blocks_, {});
}

void RetiredBlocks::put_back(std::vector<RetiredBlock> blocks) {
  const MutexLock lock(mutex_);
  std::ranges::move(blocks, std::back_inserter(blocks_));
  count_ = blocks_.size();
}

}  // namespace drover::tensor
