#include "tensor/memory/tensor_storage.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "tensor/memory/memory_state.hpp"

namespace drover::tensor {
namespace {

[[noreturn]] void throw_lost(const ipc::TimelinePoint& point) {
  throw Error(Errc::peer_lost,
              fmt::format("the contents of a tensor are lost: process {} died, or the session ended, before its work "
                          "on them was done",
                          point.pid),
              "make the tensor again, or synchronize it before it is sent if it must survive its sender");
}

}  // namespace

TensorStorage::TensorStorage(Memory memory, const Place& place, std::uint64_t bytes)
    : memory_(std::move(memory)), block_(memory_.state_->allocate(place, std::max<std::uint64_t>(bytes, 1))) {}

TensorStorage::TensorStorage(Memory memory, Lease&& lease, std::vector<ipc::TimelinePoint> origins)
    : memory_(std::move(memory)),
      block_(memory_.state_->open(std::move(lease))),
      has_pending_(!origins.empty()),
      origins_(std::move(origins)) {}

TensorStorage::TensorStorage(Memory memory, const ForeignMemory& foreign, const KeptBytes& kept)
    : memory_(std::move(memory)), block_(memory_.state_->import_memory(foreign, kept)) {}

TensorStorage::TensorStorage(Memory memory, const Fd& file, std::uint64_t bytes)
    : memory_(std::move(memory)), block_(memory_.state_->import_file(file, bytes)) {}

TensorStorage::TensorStorage(TensorStorage& whole, std::uint64_t bytes, std::shared_ptr<void> keep_alive)
    : memory_(whole.memory_),
      block_(memory_.state_->open(memory_.state_->hold_part(whole.block().lease(), bytes, std::move(keep_alive)))) {}

// Rejects points that were never submitted: senders submit the work before the message, and a stream must not wait
// forever.
std::vector<ipc::TimelinePoint> TensorStorage::pending(const Memory& memory,
                                                       std::span<const ipc::TimelinePoint> points) {
  std::vector<ipc::TimelinePoint> pending;
  if (points.empty()) return pending;
  const auto timelines = memory.state_->works().timelines();
  for (const auto& point : points) {
    if (!timelines->is_valid(point)) {
      throw Error(Errc::corrupt, "a tensor waits for work that was never submitted",
                  "use the same version of drover in all processes of a session");
    }
    const ipc::PointState state = timelines->state_of(point);
    if (state == ipc::PointState::lost) throw_lost(point);
    if (state == ipc::PointState::pending) pending.push_back(point);
  }
  return pending;
}

// In a forked child the mutex may stay locked by a thread that does not exist there.
TensorStorage::~TensorStorage() {
  if (memory_.state_->membership()->self() == kNobody) return;
  RetiredBlock retired;
  {
    const MutexLock lock(mutex_);
    retired = {.keep_alive = {}, .lease = {}, .slab = {}, .uses = std::move(uses_), .late = std::move(late_)};
  }
  memory_.state_->retire(std::move(block_), std::move(retired));
}

std::shared_ptr<DeviceWork> TensorStorage::work_at(const Place& place) const {
  return memory_.state_->works().at(place);
}

bool TensorStorage::dies_with_its_process() const noexcept { return block_.slab_->is_by_handle(); }

void TensorStorage::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  block_.slab_->write(block_.lease().offset() + offset, bytes);
}

bool TensorStorage::register_with(Device& device) const { return block_.slab_->register_with(device); }

// Asks the default stream without the mutex. Another thread that asks meanwhile finds the late use, too, and so does
// a later call if there was a change, or a capture forbids to ask.
std::vector<WorkTicket> TensorStorage::uses() {
  if (!has_pending_) return {};
  std::shared_ptr<DeviceWork> late;
  std::uint64_t changes = 0;
  {
    const MutexLock lock(mutex_);
    late = late_;
    changes = changes_;
    if (late == nullptr) return uses_;
  }
  const auto ticket = late->follow_default_stream();
  const MutexLock lock(mutex_);
  if (!ticket) return uses_;
  if (changes_ == changes) late_ = nullptr;
  add({.work = late, .ticket = *ticket});
  return uses_;
}

// Drops points that are reached, but never those that are lost.
std::vector<ipc::TimelinePoint> TensorStorage::origins() {
  if (!has_pending_) return {};
  const MutexLock lock(mutex_);
  if (origins_.empty()) return {};
  const auto timelines = memory_.state_->works().timelines();
  std::erase_if(origins_, [&](const auto& point) { return timelines->state_of(point) == ipc::PointState::reached; });
  note_pending();
  for (const auto& point : origins_) {
    if (timelines->state_of(point) == ipc::PointState::lost) throw_lost(point);
  }
  return origins_;
}

// A second wait for the same point is cheap and harmless. Points of another session mean nothing to a stream, so the
// CPU waits for them.
void TensorStorage::begin_use(DeviceWork& work) {
  for (const auto& point : origins()) {
    if (&work.session() == memory_.state_->membership().get()) {
      work.wait_for(point);
    } else {
      static_cast<void>(wait(Deadline::never()));
    }
  }
  for (const auto& use : uses()) {
    if (use.work.get() == &work || use.work->is_done(use.ticket)) continue;
    if (use.work->has_timeline_in(work.session())) {
      work.wait_for(use.work->point_of(use.ticket));
    } else {
      static_cast<void>(use.work->wait(use.ticket, Deadline::never()));
    }
  }
}

void TensorStorage::end_use(const WorkTicket& use) {
  const MutexLock lock(mutex_);
  add(use);
}

void TensorStorage::add(const WorkTicket& use) {
  ++changes_;
  const auto same = std::ranges::find(uses_, use.work, &WorkTicket::work);
  if (same == uses_.end()) {
    uses_.push_back(use);
  } else {
    same->ticket = std::max(same->ticket, use.ticket);
  }
  has_pending_ = true;
}

void TensorStorage::end_use_later(std::shared_ptr<DeviceWork> work) {
  const MutexLock lock(mutex_);
  ++changes_;
  late_ = std::move(work);
  has_pending_ = true;
}

// `make` runs without the mutex. If two threads make one at once, the later one is shared from then on.
std::shared_ptr<void> TensorStorage::exported(std::intptr_t stream,
                                              const std::function<std::shared_ptr<void>()>& make) {
  std::uint64_t changes = 0;
  {
    const MutexLock lock(mutex_);
    changes = changes_;
    if (export_.stream == stream && export_.changes == changes) {
      if (auto held = export_.keep_alive.lock()) return held;
    }
  }
  auto made = make();
  const MutexLock lock(mutex_);
  export_ = {.keep_alive = made, .stream = stream, .changes = changes};
  return made;
}

// Retires one more claim together with `keep_alive`.
void TensorStorage::hold(std::shared_ptr<void> keep_alive) {
  Block same = memory_.state_->open(block_.share());
  memory_.state_->retire(std::move(same),
                         {.keep_alive = std::move(keep_alive), .lease = {}, .slab = {}, .uses = uses(), .late = {}});
}

// Copies lost points too, instead of throwing after work was submitted.
void TensorStorage::derive_from(TensorStorage& source) {
  if (&source == this || memory_.state_->membership() != source.memory_.state_->membership()) return;
  std::vector<ipc::TimelinePoint> theirs;
  {
    const MutexLock lock(source.mutex_);
    theirs = source.origins_;
  }
  const MutexLock lock(mutex_);
  ++changes_;
  for (const auto& point : theirs) {
    if (std::ranges::find(origins_, point) == origins_.end()) origins_.push_back(point);
  }
  note_pending();
}

WaitResult TensorStorage::wait(Deadline deadline) {
  for (const auto& use : uses()) {
    if (use.work->wait(use.ticket, deadline) == WaitResult::timed_out) return WaitResult::timed_out;
    const MutexLock lock(mutex_);
    std::erase_if(uses_, [&](const auto& each) { return each.work == use.work && each.ticket <= use.ticket; });
    note_pending();
  }
  for (const auto& point : origins()) {
    const auto timelines = memory_.state_->works().timelines();
    const auto& membership = *memory_.state_->membership();
    if (wait_for_point(*timelines, point, membership, deadline) == WaitResult::timed_out)
      return WaitResult::timed_out;
  }
  static_cast<void>(origins());  // throws if one was lost
  return WaitResult::done;
}

bool TensorStorage::is_ready() {
  if (!std::ranges::all_of(uses(), [](const auto& use) { return use.work->is_done(use.ticket); })) return false;
  return origins().empty();
}

std::vector<ipc::TimelinePoint> TensorStorage::points(std::size_t most, KnownPoints& known) {
  std::vector<ipc::TimelinePoint> points = origins();
  bool can_wait_elsewhere = true;
  for (const auto& use : uses()) {
    if (use.work->has_timeline_in(*memory_.state_->membership())) {
      const auto [at, is_new] = known.try_emplace({use.work.get(), use.ticket});
      if (is_new) at->second = use.work->pending_point_of(use.ticket);
      if (at->second) points.push_back(*at->second);
    } else if (!use.work->is_done(use.ticket)) {
      can_wait_elsewhere = false;
    }
  }
  if (can_wait_elsewhere && points.size() <= most) return points;
  static_cast<void>(wait(Deadline::never()));
  return {};
}

}  // namespace drover::tensor
