#include "tensor/memory/memory_state.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <ranges>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "tensor/memory/captured_uses.hpp"
#include "tensor/memory/host_shortage.hpp"

namespace drover {
namespace {

// Somebody may stand still in the ledger of a slab; then another slab is better than waiting.
constexpr std::chrono::milliseconds kLedgerPatience{100};
// How long memory that is needed waits for work that still uses it.
constexpr std::chrono::seconds kWorkPatience{10};
// When memory of others is looked after that is open by a handle, or was in use when it was let go.
constexpr std::chrono::milliseconds kSoon{20};
// In periods. Whoever ends waits a quarter of a second for it, and it may take two looks and what it stays open.
constexpr int kSoonAtLast = 2;
// Between attempts to get memory that was given back a moment ago.
constexpr std::chrono::milliseconds kFirstPause{1};
constexpr std::chrono::milliseconds kLastPause{64};

std::uint64_t generation_of(const MappedSlab& slab) { return slab.book().object().handle().generation; }

bool is_want_of_memory(const Error& error) {
  return error.code() == Errc::device_memory || error.code() == Errc::out_of_memory;
}

std::string name_of(Owner holder) {
  if (holder == kInTransit) return "in transit";
  return holder == kKept ? "kept" : fmt::format("participant {}", holder);
}

std::shared_ptr<Membership> checked(std::shared_ptr<Membership> membership) {
  require(membership != nullptr, "memory needs a session", "pass a Session that is open");
  return membership;
}

SlabUsage usage_of(const MappedSlab& slab, const Membership& membership) {
  SlabUsage usage{
      .place = slab.place(), .handle = slab.book().object().handle(), .is_own = slab.is_own(), .bytes = slab.bytes()};
  const auto ledger = slab.book().ledger().usage(membership, Deadline::after(kLedgerPatience));
  usage.is_known = ledger.has_value();
  if (!ledger) return usage;
  usage.free_bytes = ledger->free_bytes;
  usage.blocks = ledger->blocks;
  for (const auto& [holder, share] : ledger->holders) {
    usage.holders.push_back({.name = name_of(holder), .leases = share.leases, .bytes = share.bytes});
  }
  return usage;
}

}  // namespace

MemoryState::MemoryState(std::shared_ptr<Membership> membership, MemoryOptions options)
    : membership_(checked(std::move(membership))),
      options_(std::move(options)),
      idle_bytes_(idle_bytes_of(options_)),
      works_(membership_, options_.ordering),
      later_(std::max(options_.idle_time / 4, std::chrono::milliseconds(1)),
             [this] { return look_after_idle(false); }),
      soon_(
          kSoon,
          [this] {
            const bool has_retired = look_after_retired();
            return look_after_idle(true) || has_retired;
          },
          kSoonAtLast) {
  require(options_.slab_bytes >= kMiB, "a slab of less than 1 MiB was asked for", "leave slab_bytes as it is");
}

Block MemoryState::allocate(const Place& place, std::uint64_t bytes) {
  static_cast<void>(membership_->require_self());
  require(bytes > 0, "a block has at least one byte");
  if (bytes > kMaxSlabBytes) {
    throw Error(Errc::invalid_argument, fmt::format("a block of {} was asked for", format_bytes(bytes)),
                fmt::format("a block has at most {}", format_bytes(kMaxSlabBytes)));
  }
  release_retired(Deadline::after({}));
  Block block = allocate_in_known(place, bytes);
  return block.is_open() ? std::move(block) : allocate_in_new(place, bytes);
}

bool MemoryState::is_within_budget(const Place& place, std::uint64_t bytes) const {
  const auto budget = options_.budgets.find(place);
  if (budget == options_.budgets.end()) return true;
  const auto claimed = claimed_.find(place);
  const std::uint64_t now = claimed == claimed_.end() ? 0 : claimed->second;
  return bytes <= budget->second && now <= budget->second - bytes;
}

void MemoryState::check_budget(const Place& place, std::uint64_t bytes) const {
  if (is_within_budget(place, bytes)) return;
  const auto claimed = claimed_.find(place);
  throw Error(Errc::limit_reached,
              fmt::format("{} at {} would exceed the budget of this process: it claims {} of {}", format_bytes(bytes),
                          to_string(place), format_bytes(claimed == claimed_.end() ? 0 : claimed->second),
                          format_bytes(options_.budgets.at(place))),
              "release what is no longer used, or raise MemoryOptions::budgets");
}

MemoryState::Slabs MemoryState::own_at(const Place& place, std::uint64_t bytes) const {
  const MutexLock lock(mutex_);
  Slabs slabs;
  for (const auto& [generation, known] : slabs_) {
    if (is_for(*known.slab, place, bytes)) slabs.push_back(known.slab);
  }
  return slabs;
}

// The slab made last is the one with most room.
std::shared_ptr<MappedSlab> MemoryState::likely_at(const Place& place, std::uint64_t bytes) const {
  for (const auto& [generation, known] : std::views::reverse(slabs_)) {
    const MappedSlab& slab = *known.slab;
    if (is_for(slab, place, bytes) && slab.book().ledger().seems_to_have_room(bytes)) return known.slab;
  }
  return nullptr;
}

// One that was spoilt is not looked at again; one that has no more leases to give may have some later.
Block MemoryState::allocate_in(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes) {
  try {
    Lease lease = slab->book().allocate(bytes, Deadline::after(kLedgerPatience));
    if (!lease.is_open()) return {};
    const MutexLock lock(mutex_);
    return claim(std::move(lease), slab);
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt && error.code() != Errc::limit_reached) throw;
    log(LogLevel::warn, error.what());
    if (error.code() == Errc::corrupt) forget(slab);
  }
  return {};
}

// Nearly always the likely one has room; full slabs beside it then cost a few loads each. All are asked before a new
// one is made.
Block MemoryState::allocate_in_known(const Place& place, std::uint64_t bytes) {
  std::shared_ptr<MappedSlab> likely;
  const auto look = [&] {
    const MutexLock lock(mutex_);
    if (!is_within_budget(place, bytes)) return false;
    likely = likely_at(place, bytes);
    return true;
  };
  if (!look()) {
    release_retired(Deadline::after(kWorkPatience));
    const MutexLock lock(mutex_);
    check_budget(place, bytes);
  }
  Block block = likely != nullptr ? allocate_in(likely, bytes) : Block{};
  if (block.is_open()) return block;
  const Slabs slabs = own_at(place, bytes);
  for (const auto& slab : std::views::reverse(slabs)) {
    if (slab != likely) block = allocate_in(slab, bytes);
    if (block.is_open()) break;
  }
  return block;
}

Block MemoryState::allocate_in_new(const Place& place, std::uint64_t bytes) {
  {
    std::vector<Known> dropped;
    const MutexLock lock(mutex_);
    dropped = take_idle_above(place, idle_room(place, bytes));
  }
  const auto slab = make_slab(place, bytes);
  Lease lease = slab->book().allocate(bytes);
  if (!lease.is_open()) {
    throw Error(Errc::internal,
                fmt::format("a new slab at {} has no room for {}", to_string(place), format_bytes(bytes)),
                "please report this");
  }
  const MutexLock lock(mutex_);
  check_budget(place, bytes);  // another thread may have used it up
  return claim(std::move(lease), slab);
}

std::shared_ptr<MappedSlab> MemoryState::make_slab(const Place& place, std::uint64_t bytes) {
  const bool is_for_one = bytes > options_.slab_bytes / 2;
  const std::uint64_t wanted = is_for_one ? size_for_one(place, bytes) : options_.slab_bytes;
  bool may_come_back = true;
  for (auto pause = kFirstPause;; pause *= 4) {
    try {
      return MappedSlab::make(membership_, place, wanted, is_for_one);
    } catch (const Error& error) {
      if (!is_want_of_memory(error)) throw;
      if (!may_come_back || pause > kLastPause) throw_exhausted(error, place);
    }
    const bool has_retired = works_.has_retired();
    release_retired(Deadline::after(kWorkPatience));
    may_come_back = trim() || has_retired || pause > kFirstPause;
    std::this_thread::sleep_for(pause);  // the keeper lets go of what was given back a little later
  }
}

void MemoryState::throw_exhausted(const Error& error, const Place& place) const {
  throw Error(error.code(), fmt::format("{}; {}", error.message(), who_holds_what(place)),
              "release what is no longer used, here or in the processes named, or use smaller blocks");
}

void MemoryState::forget(const std::shared_ptr<MappedSlab>& slab) {
  const MutexLock lock(mutex_);
  slabs_.erase(generation_of(*slab));
}

Block MemoryState::open(Lease&& lease) {
  static_cast<void>(membership_->require_self());
  release_retired(Deadline::after({}));
  require(lease.is_open(), "a lease that claims nothing was to be opened", "open one that came with a message");
  require(SlabBook::is_of(lease, *membership_), "a lease of another session was to be opened",
          "open it with a Memory of that session");
  const auto slab = mapped(lease);
  const MutexLock lock(mutex_);
  return claim(std::move(lease), slab);
}

std::shared_ptr<MappedSlab> MemoryState::mapped(const Lease& lease) {
  const ObjectHandle& handle = lease.slab();
  std::shared_ptr<MappedSlab> idle;
  {
    const MutexLock lock(mutex_);
    const auto known = slabs_.find(handle.generation);
    if (known != slabs_.end() && known->second.claims > 0) return known->second.slab;
    if (known != slabs_.end()) idle = known->second.slab;
  }
  if (idle != nullptr) {
    idle->check_maker();
    return idle;
  }
  return MappedSlab::open(SlabBook::open(membership_, handle));
}

// Others' slabs that were kept for more to come, and whose blocks have all ended since. Looked for when a block ends
// after new slabs came, and not when they come: to unmap large memory takes long, and somebody waits for the block.
bool MemoryState::is_emptied(const Known& known) noexcept {
  return !known.slab->is_own() && known.claims == 0 && known.slab->is_empty();
}

// Where two threads have mapped the same slab, the first one's mapping is used from then on.
Block MemoryState::claim(Lease&& lease, const std::shared_ptr<MappedSlab>& slab) {
  const auto [at, is_new] = slabs_.try_emplace(generation_of(*slab), Known{.slab = slab});
  has_new_slabs_ = has_new_slabs_ || is_new;
  Known& known = at->second;
  ++known.claims;
  known.idle_since = {};
  claimed_[slab->place()] += lease.bytes();
  Block block;
  block.slab_ = known.slab;
  block.state_ = shared_from_this();
  block.lease_ = std::move(lease);
  return block;
}

void MemoryState::claim_ended(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes) noexcept {
  if (membership_->self() == kNobody) return;
  if (end_claim(slab, bytes)) (slab->is_by_handle() ? soon_ : later_).begin();
}

// Returns whether the slab is to be looked after later.
bool MemoryState::end_claim(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes) noexcept {
  // Small blocks end often, and may not wait for files that are read.
  const bool is_large = slab->is_for_one() || (!slab->is_own() && slab->bytes() > options_.slab_bytes);
  const bool is_short = is_large && is_kept_when_idle(slab->place()) && is_host_short_of_memory_lately();
  std::vector<Known> dropped;  // and thereby unmapped, after the mutex is free; likewise below
  std::vector<Known> above;
  const MutexLock lock(mutex_);
  claimed_[slab->place()] -= bytes;
  const auto at = slabs_.find(generation_of(*slab));
  const bool has_ended = at != slabs_.end() && --at->second.claims == 0;
  const bool is_for_later = has_ended && may_become_idle(at->second);
  const bool may_stay = is_for_later && !is_short;
  const bool has_idle = has_ended && is_idle(at->second) && !(may_stay && keep_idle(at->second));
  if (is_for_later && !has_idle) above = take_idle_above(slab->place(), idle_room(slab->place()));
  const Known* const idle = has_idle ? &at->second : nullptr;
  const bool may_be_emptied = std::exchange(has_new_slabs_, false);
  if (!has_idle && !may_be_emptied) return is_for_later;
  dropped = take_if([&](const Known& known) {
    return &known == idle || (may_be_emptied && is_emptied(known) && known.idle_since == Clock::time_point());
  });
  if (!dropped.empty()) works_.bury_without_keeper();
  return is_for_later && !has_idle;
}

// Whether it is better given back: not the last of its own at a place, which stays for the next block; nor another's
// that is in use elsewhere anyway, or of the common size, in which more will come. But one that nobody else has open,
// and one that another library may want to free.
bool MemoryState::is_idle(const Known& known) const {
  const MappedSlab& slab = *known.slab;
  if (known.claims > 0) return false;
  if (known.imported) return is_over(known);
  if (slab.is_by_handle()) return true;
  if (!slab.is_own()) return slab.is_alone() || (slab.is_empty() && slab.bytes() > options_.slab_bytes);
  if (!slab.is_empty()) return false;
  if (is_kept_when_idle(slab.place())) return slab.is_for_one() || has_other_common(slab);
  return std::ranges::any_of(slabs_, [&](const auto& other) {
    return other.second.slab != known.slab && other.second.slab->is_own() &&
           other.second.slab->place() == slab.place();
  });
}

// NOLINTNEXTLINE(cppcoreguidelines-rvalue-reference-param-not-moved): its parts are
void MemoryState::retire(Block&& block, std::vector<WorkTicket> uses, std::shared_ptr<void> keeper) noexcept {
  if (membership_->self() == kNobody || std::ranges::all_of(uses, has_ended)) return block.release();
  RetiredBlock retired{.keeper = std::move(keeper),
                       .lease = std::move(block.lease_),
                       .slab = std::move(block.slab_),
                       .uses = std::move(uses)};
  block.state_.reset();
  const bool is_others = retired.keeper == nullptr && retired.slab->is_opened();
  works_.retire(std::move(retired));
  if (is_others) soon_.begin();
}

void MemoryState::release_retired(Deadline patience) noexcept {
  if (membership_->self() == kNobody) return;
  look_after_captured_uses();
  if (works_.has_retired()) {
    for (auto& [keeper, lease, slab, uses] : works_.take_ended(patience)) {
      const std::uint64_t bytes = lease.bytes();
      lease.release();
      claim_ended(slab, bytes);
    }
  }
  end_imports();
}

std::vector<MemoryState::Known> MemoryState::take_if(const std::function<bool(const Known&)>& is_taken) {
  std::vector<Known> taken;
  for (auto at = slabs_.begin(); at != slabs_.end();) {
    if (!is_taken(at->second)) {
      ++at;
      continue;
    }
    if (at->second.imported) --imports_;
    taken.push_back(std::move(at->second));
    at = slabs_.erase(at);
  }
  return taken;
}

bool MemoryState::trim() {
  static_cast<void>(membership_->require_self());
  release_retired(Deadline::after({}));
  std::vector<Known> dropped;
  const MutexLock lock(mutex_);
  dropped = take_if([](const Known& known) {
    if (known.imported) return is_over(known);
    return known.claims == 0 && (!known.slab->is_own() || known.slab->is_empty());
  });
  if (!dropped.empty()) works_.bury_without_keeper();
  return !dropped.empty();
}

std::uint64_t MemoryState::claimed(const Place& place) const {
  static_cast<void>(membership_->require_self());
  const MutexLock lock(mutex_);
  const auto at = claimed_.find(place);
  return at == claimed_.end() ? 0 : at->second;
}

std::vector<SlabUsage> MemoryState::usage() const {
  static_cast<void>(membership_->require_self());
  Slabs slabs;
  std::set<const MappedSlab*> unclaimed;
  {
    const MutexLock lock(mutex_);
    for (const auto& [generation, known] : slabs_) {
      slabs.push_back(known.slab);
      if (known.claims == 0 && !known.imported) unclaimed.insert(known.slab.get());
    }
  }
  std::vector<SlabUsage> all;
  for (const auto& slab : slabs) {
    try {
      all.push_back(usage_of(*slab, *membership_));
      all.back().is_idle = all.back().is_known && all.back().blocks == 0 && unclaimed.contains(slab.get());
    } catch (const Error& error) {  // spoilt: it must not hide the others
      if (error.code() != Errc::corrupt) throw;
      log(LogLevel::warn, error.what());
    }
  }
  return all;
}

std::string MemoryState::who_holds_what(const Place& place) const {
  std::map<std::string, std::uint64_t> holders;
  std::uint64_t bytes = 0;
  std::uint64_t free_bytes = 0;
  for (const SlabUsage& slab : usage()) {
    if (slab.place != place) continue;
    bytes += slab.bytes;
    free_bytes += slab.free_bytes;
    for (const auto& holder : slab.holders) holders[holder.name] += holder.bytes;
  }
  std::string text = fmt::format("slabs mapped here at {} have {}, of which {} are free in pieces too small",
                                 to_string(place), format_bytes(bytes), format_bytes(free_bytes));
  for (const auto& [name, held] : holders) text += fmt::format("; {} has {}", name, format_bytes(held));
  return text;
}

}  // namespace drover
