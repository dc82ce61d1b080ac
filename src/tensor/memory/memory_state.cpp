#include "tensor/memory/memory_state.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/log.hpp"
#include "tensor/memory/deferred_releases.hpp"
#include "tensor/memory/host_shortage.hpp"
#include "tensor/memory/release_pause.hpp"

namespace drover::tensor {
namespace {

// A process may be stopped while it holds the lock of a slab's ledger; another slab is better than waiting longer.
constexpr std::chrono::milliseconds kLedgerPatience{100};
// How long an allocation waits for work that still uses memory it needs.
constexpr std::chrono::seconds kWorkPatience{10};
// The first period of the poller for what was in use when this process released it.
constexpr std::chrono::milliseconds kRetiredPeriod{20};
// Pauses between attempts to get memory that was given back a moment ago.
constexpr std::chrono::milliseconds kFirstPause{1};
constexpr std::chrono::milliseconds kLastPause{64};

bool is_out_of_memory(const Error& error) {
  return error.code() == Errc::device_memory || error.code() == Errc::out_of_memory;
}

std::string name_of(Owner holder) {
  if (holder == ipc::kInTransit) return "in transit";
  return holder == ipc::kKept ? "kept" : fmt::format("participant {}", holder);
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

// Another process's slab that was kept for more blocks, and whose blocks have all ended since.
bool is_emptied(const SlabEntry& entry) noexcept {
  return !entry.slab->is_own() && entry.claims == 0 && entry.slab->is_empty();
}

std::chrono::milliseconds poll_period_of(std::chrono::nanoseconds idle_time) {
  using std::chrono::milliseconds;
  return std::clamp(std::chrono::duration_cast<milliseconds>(idle_time / 4), milliseconds(1), milliseconds(60'000));
}

}  // namespace

MemoryState::MemoryState(std::shared_ptr<Membership> membership, MemoryOptions options)
    : membership_(checked(std::move(membership))),
      options_(std::move(options)),
      idle_(options_),
      imports_(membership_, table_),
      works_(membership_, options_.ordering),
      retired_(membership_),
      idle_poller_(poll_period_of(options_.idle_time), [this] { return poll_idle(); }),
      retired_poller_(kRetiredPeriod, [this] {
        release_ended(Deadline::after({}));
        parts_->take_unused().clear();
        drop(imports_.take_unused_files());
        return retired_.has_any() || parts_->has_any() || imports_.has_files();
      }) {
  if (options_.slab_bytes >= kMiB) return;
  throw Error(Errc::invalid_argument,
              fmt::format("slab_bytes is {}, less than 1 MiB", format_bytes(options_.slab_bytes)),
              "leave MemoryOptions::slab_bytes at its default");
}

// A forked child leaks the slabs, since deleters of other libraries must not run there.
MemoryState::~MemoryState() {
  idle_poller_.stop();
  retired_poller_.stop();
  if (membership_->self() == kNobody) {
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory the child ends here
    static_cast<void>(new std::map<std::uint64_t, SlabEntry>(std::move(table_.entries)));
    static_cast<void>(parts_.release());  // NOLINT(bugprone-unused-return-value): leaked on purpose
    return;
  }
  release_retired(Deadline::never());
}

Block MemoryState::allocate(const Place& place, std::uint64_t bytes) {
  static_cast<void>(membership_->require_self());
  require(bytes > 0, "a block must have at least one byte");
  if (bytes > ipc::kMaxSlabBytes) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("a block of {} exceeds the maximum of {}", format_bytes(bytes), format_bytes(ipc::kMaxSlabBytes)),
        "split the data into several blocks");
  }
  release_retired(Deadline::after({}));
  Block block = allocate_in_mapped(place, bytes);
  return block.is_open() ? std::move(block) : allocate_in_new(place, bytes);
}

bool MemoryState::is_within_budget(const Place& place, std::uint64_t bytes) const {
  const auto budget = options_.budgets.find(place);
  if (budget == options_.budgets.end()) return true;
  return bytes <= budget->second && table_.claimed_at(place) <= budget->second - bytes;
}

void MemoryState::check_budget(const Place& place, std::uint64_t bytes) const {
  if (is_within_budget(place, bytes)) return;
  throw Error(
      Errc::limit_reached,
      fmt::format("{} at {} would exceed the budget of this process, which claims {} of {}", format_bytes(bytes),
                  to_string(place), format_bytes(table_.claimed_at(place)), format_bytes(options_.budgets.at(place))),
      "release what is no longer used, or raise MemoryOptions::budgets");
}

MemoryState::Slabs MemoryState::slabs_for(const Place& place, std::uint64_t bytes) const {
  const MutexLock lock(table_.mutex);
  Slabs slabs;
  for (const auto& [generation, entry] : table_.entries) {
    if (idle_.is_for(*entry.slab, place, bytes)) slabs.push_back(entry.slab);
  }
  return slabs;
}

// The newest slab is the one most likely to have room.
std::shared_ptr<MappedSlab> MemoryState::likely_slab(const Place& place, std::uint64_t bytes) const {
  for (const auto& [generation, entry] : std::views::reverse(table_.entries)) {
    const MappedSlab& slab = *entry.slab;
    if (idle_.is_for(slab, place, bytes) && slab.book().ledger().seems_to_have_room(bytes)) return entry.slab;
  }
  return nullptr;
}

// A corrupt slab is not used again; one that has run out of leases may have some later.
Block MemoryState::allocate_in(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes) {
  try {
    Lease lease = slab->book().allocate(bytes, Deadline::after(kLedgerPatience));
    if (!lease.is_open()) return {};
    const MutexLock lock(table_.mutex);
    return claim(std::move(lease), slab);
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt && error.code() != Errc::limit_reached) throw;
    log(LogLevel::warn, error.what());
    if (error.code() == Errc::corrupt) {
      const MutexLock lock(table_.mutex);
      table_.entries.erase(slab->generation());
    }
  }
  return {};
}

// The likely slab nearly always has room; full slabs beside it cost a few loads each. Only if it has none are all
// others tried, before a new slab is made.
Block MemoryState::allocate_in_mapped(const Place& place, std::uint64_t bytes) {
  std::shared_ptr<MappedSlab> likely;
  const auto find_likely = [&] {
    const MutexLock lock(table_.mutex);
    if (!is_within_budget(place, bytes)) return false;
    likely = likely_slab(place, bytes);
    return true;
  };
  if (!find_likely()) {
    release_retired(Deadline::after(kWorkPatience));
    const MutexLock lock(table_.mutex);
    check_budget(place, bytes);
  }
  Block block = likely != nullptr ? allocate_in(likely, bytes) : Block{};
  if (block.is_open()) return block;
  const Slabs slabs = slabs_for(place, bytes);
  for (const auto& slab : std::views::reverse(slabs)) {
    if (slab != likely) block = allocate_in(slab, bytes);
    if (block.is_open()) break;
  }
  return block;
}

Block MemoryState::allocate_in_new(const Place& place, std::uint64_t bytes) {
  std::vector<SlabEntry> surplus;
  {
    const MutexLock lock(table_.mutex);
    surplus = idle_.take_surplus(table_, place, bytes);
  }
  drop(std::move(surplus));
  const auto slab = make_slab(place, bytes);
  Lease lease = slab->book().allocate(bytes);
  if (!lease.is_open()) {
    throw Error(Errc::internal,
                fmt::format("a new slab at {} has no room for {}", to_string(place), format_bytes(bytes)),
                "please report this");
  }
  const MutexLock lock(table_.mutex);
  check_budget(place, bytes);  // again: another thread may have used it up
  return claim(std::move(lease), slab);
}

// Retries, since the keeper closes what was given back only a moment later.
std::shared_ptr<MappedSlab> MemoryState::make_slab(const Place& place, std::uint64_t bytes) {
  const bool is_for_one = bytes > options_.slab_bytes / 2;
  const std::uint64_t wanted = is_for_one ? idle_.size_for_one(place, bytes) : options_.slab_bytes;
  bool may_succeed_later = true;
  for (auto pause = kFirstPause;; pause *= 4) {
    try {
      return MappedSlab::make(membership_, place, wanted, is_for_one);
    } catch (const Error& error) {
      if (!is_out_of_memory(error)) throw;
      if (!may_succeed_later || pause > kLastPause) throw_exhausted(error, place);
    }
    const bool has_retired = retired_.has_any();
    release_retired(Deadline::after(kWorkPatience));
    may_succeed_later = trim() || has_retired || pause > kFirstPause;
    std::this_thread::sleep_for(pause);
  }
}

void MemoryState::throw_exhausted(const Error& error, const Place& place) const {
  std::map<std::string, std::uint64_t> holders;
  std::uint64_t bytes = 0;
  std::uint64_t free_bytes = 0;
  for (const SlabUsage& slab : usage()) {
    if (slab.place != place) continue;
    bytes += slab.bytes;
    free_bytes += slab.free_bytes;
    for (const auto& holder : slab.holders) holders[holder.name] += holder.bytes;
  }
  std::string text = fmt::format("{}; slabs mapped here at {} have {}, of which {} are free in pieces too small",
                                 error.message(), to_string(place), format_bytes(bytes), format_bytes(free_bytes));
  for (const auto& [name, held] : holders) text += fmt::format("; {} has {}", name, format_bytes(held));
  throw Error(error.code(), text,
              "release what is no longer used, here or in the processes named, or use smaller blocks");
}

Block MemoryState::open(Lease&& lease) {
  static_cast<void>(membership_->require_self());
  require(lease.is_open(), "cannot open an empty lease", "open a lease that came with a message, once");
  require(ipc::OpenLedger::is_of(lease, *membership_), "cannot open a lease of another session",
          "open it with a Memory of that session");
  const ObjectHandle& handle = lease.slab();
  {
    const MutexLock lock(table_.mutex);
    const auto known = table_.entries.find(handle.generation);
    if (known != table_.entries.end()) return claim(std::move(lease), known->second);
  }
  const auto slab = MappedSlab::open(ipc::OpenLedger::open(membership_, handle));
  const MutexLock lock(table_.mutex);
  return claim(std::move(lease), slab);
}

Block MemoryState::import_memory(const ForeignMemory& memory, const KeptBytes& kept) {
  static_cast<void>(membership_->require_self());
  release_retired(Deadline::after({}));
  auto [lease, slab] = imports_.open(memory, kept);
  const MutexLock lock(table_.mutex);
  return claim(std::move(lease), slab);
}

Block MemoryState::import_file(const Fd& file, std::uint64_t bytes) {
  static_cast<void>(membership_->require_self());
  release_retired(Deadline::after({}));
  auto [lease, slab] = imports_.open(file, bytes);
  retired_poller_.start();
  const MutexLock lock(table_.mutex);
  return claim(std::move(lease), slab);
}

// If two threads have mapped the same slab, the first mapping is used from now on.
Block MemoryState::claim(Lease&& lease, const std::shared_ptr<MappedSlab>& slab) {
  const auto [at, is_new] = table_.entries.try_emplace(slab->generation(), SlabEntry{.slab = slab});
  has_new_slabs_ = has_new_slabs_ || is_new;
  return claim(std::move(lease), at->second);
}

Block MemoryState::claim(Lease&& lease, SlabEntry& entry) {
  ++entry.claims;
  entry.idle_since = {};
  table_.claimed[entry.slab->place()] += lease.bytes();
  Block block;
  block.slab_ = entry.slab;
  block.state_ = shared_from_this();
  block.lease_ = std::move(lease);
  return block;
}

void MemoryState::claim_ended(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes) noexcept {
  if (membership_->self() == kNobody) return;
  drop(end_claim(slab, bytes));
}

// Returns what is to be dropped. Emptied slabs are dropped when a block ends after new slabs were mapped, and not
// when they are mapped: to unmap takes long, and the caller waits for the new block.
std::vector<SlabEntry> MemoryState::end_claim(const std::shared_ptr<MappedSlab>& slab, std::uint64_t bytes) noexcept {
  // Only for large blocks: small ones end often, and must not wait until files are read.
  const bool is_large = slab->is_for_one() || (!slab->is_own() && slab->bytes() > options_.slab_bytes);
  const bool is_short = is_large && idle_.keeps() && !slab->place().is_device && is_host_short_of_memory_cached();
  std::vector<SlabEntry> surplus;
  std::vector<SlabEntry> emptied;
  bool needs_poll = false;
  {
    const MutexLock lock(table_.mutex);
    table_.claimed[slab->place()] -= bytes;
    const auto at = table_.entries.find(slab->generation());
    const bool has_ended = at != table_.entries.end() && --at->second.claims == 0;
    const bool is_for_later = has_ended && idle_.may_become_idle(table_, at->second);
    const bool may_stay = is_for_later && !is_short;
    const bool is_dropped =
        has_ended && idle_.is_idle(table_, at->second) && !(may_stay && idle_.keep(table_, at->second));
    needs_poll = is_for_later && !is_dropped;
    if (needs_poll) surplus = idle_.take_surplus(table_, slab->place());
    const SlabEntry* const own = is_dropped ? &at->second : nullptr;
    const bool may_be_emptied = std::exchange(has_new_slabs_, false);
    if (is_dropped || may_be_emptied) {
      emptied = table_.take_if([&](const SlabEntry& entry) {
        return &entry == own || (may_be_emptied && is_emptied(entry) && entry.idle_since == Clock::time_point());
      });
    }
  }
  if (needs_poll) idle_poller_.start();
  std::ranges::move(surplus, std::back_inserter(emptied));
  return emptied;
}

// To unmap may wait for a whole device, and so for streams that wait for dead processes.
void MemoryState::drop(std::vector<SlabEntry> slabs) noexcept {
  if (slabs.empty()) return;
  works_.recover_without_keeper();
  slabs.clear();
}

// NOLINTNEXTLINE(cppcoreguidelines-rvalue-reference-param-not-moved): its parts are
void MemoryState::retire(Block&& block, RetiredBlock retired) noexcept {
  const bool is_unused = retired.late == nullptr && std::ranges::all_of(retired.uses, has_ended);
  if (membership_->self() == kNobody || is_unused) return block.release();
  retired.lease = std::move(block.lease_);
  retired.slab = std::move(block.slab_);
  block.state_.reset();
  retired_.add(std::move(retired));
  retired_poller_.start();
}

void MemoryState::release_retired(Deadline patience) noexcept {
  if (membership_->self() == kNobody || ReleasePause::exists()) return;
  DeferredReleases::instance().retry();
  if (retired_.has_any()) release_ended(patience);
  parts_->take_unused().clear();
  drop(imports_.take_unused());
}

bool MemoryState::trim() {
  static_cast<void>(membership_->require_self());
  release_retired(Deadline::after({}));
  std::vector<SlabEntry> unused;
  {
    const MutexLock lock(table_.mutex);
    unused = table_.take_if([](const SlabEntry& entry) {
      if (entry.imported) return !ReleasePause::exists() && entry.is_import_unused();
      return entry.claims == 0 && (!entry.slab->is_own() || entry.slab->is_empty());
    });
  }
  const bool has_any = !unused.empty();
  drop(std::move(unused));
  return has_any;
}

bool MemoryState::poll_idle() noexcept {
  const bool is_short = is_host_short_of_memory();
  IdleSlabs::Expired expired;
  {
    const MutexLock lock(table_.mutex);
    expired = idle_.take_expired(table_, is_short);
  }
  drop(std::move(expired.slabs));
  return expired.has_more;
}

// Drops slabs only when other threads can check blocks again: that takes long, and may run deleters of other
// libraries.
void MemoryState::release_ended(Deadline patience) noexcept {
  std::vector<SlabEntry> unused;
  retired_.release_ended(patience, [&](RetiredBlock& block) {
    const std::uint64_t bytes = block.lease.bytes();
    block.lease.release();
    std::ranges::move(end_claim(block.slab, bytes), std::back_inserter(unused));
  });
  drop(std::move(unused));
}

Lease MemoryState::hold_part(const Lease& whole, std::uint64_t bytes, std::shared_ptr<void> keep_alive) {
  if (parts_->are_due()) release_retired(Deadline::after({}));
  Lease lease = parts_->hold(whole, bytes, std::move(keep_alive));
  retired_poller_.start();
  return lease;
}

std::uint64_t MemoryState::claimed(const Place& place) const {
  static_cast<void>(membership_->require_self());
  const MutexLock lock(table_.mutex);
  return table_.claimed_at(place);
}

std::vector<SlabUsage> MemoryState::usage() const {
  static_cast<void>(membership_->require_self());
  Slabs slabs;
  std::set<const MappedSlab*> unclaimed;
  {
    const MutexLock lock(table_.mutex);
    for (const auto& [generation, entry] : table_.entries) {
      slabs.push_back(entry.slab);
      if (entry.claims == 0 && !entry.imported) unclaimed.insert(entry.slab.get());
    }
  }
  std::vector<SlabUsage> all;
  for (const auto& slab : slabs) {
    try {
      all.push_back(usage_of(*slab, *membership_));
      all.back().is_idle = all.back().is_known && all.back().blocks == 0 && unclaimed.contains(slab.get());
    } catch (const Error& error) {  // a corrupt slab must not hide the others
      if (error.code() != Errc::corrupt) throw;
      log(LogLevel::warn, error.what());
    }
  }
  return all;
}

}  // namespace drover::tensor
