#include "ipc/registry/kept_table.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <ranges>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"

namespace drover::ipc {
namespace {

constexpr std::size_t kShownNames = 3;

template <class Text>
std::ptrdiff_t common_begin(const Text& one, const Text& other) {
  return std::ranges::mismatch(one, other).in1 - one.begin();
}

// The length of the common prefix and suffix of two names. Cheap, because the keeper has other requests to serve.
std::ptrdiff_t likeness(std::string_view one, std::string_view other) {
  return common_begin(one, other) + common_begin(std::views::reverse(one), std::views::reverse(other));
}

[[noreturn]] void throw_not_offered(const SentLease& lease, Owner sender) {
  throw Error(Errc::invalid_argument,
              fmt::format("cannot keep lease {} of {}: participant {} does not hold it", lease.lease.index,
                          lease.slab.to_string(), sender),
              "keep leases of this process that were not sent or released");
}

}  // namespace

void KeptTable::keep(KeptEntry entry, Owner sender) {
  check_kept_name(entry.info.name);
  if (entries_.size() >= kMostKept && !entries_.contains(entry.info.name)) {
    throw Error(Errc::limit_reached, fmt::format("the session keeps {} names, its limit", kMostKept),
                "drop names that are no longer needed, or keep several blocks under one name");
  }
  entry.info.bytes = bytes_of(entry.leases);
  entry.info.leases = static_cast<std::uint32_t>(entry.leases.size());
  entry.info.since = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  open_slabs(entry.leases);
  try {
    take(entry.leases, sender);
  } catch (...) {
    close_slabs(entry.leases);
    throw;
  }
  const KeptEntry replaced = std::exchange(entries_[entry.info.name], std::move(entry));
  end(replaced.leases);
}

// Counts each block once. The holders of the leases are checked when they are taken.
std::uint64_t KeptTable::bytes_of(std::span<const SentLease> leases) const {
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  std::uint64_t bytes = 0;
  for (const SentLease& each : leases) {
    const BlockRange range = objects_.ledger_of(each.slab).range_of(each.lease);
    if (seen.emplace(each.slab.generation, range.offset).second) bytes += range.bytes;
  }
  return bytes;
}

// The first lease is taken first and returned last: its holder holds them all.
void KeptTable::take(std::span<const SentLease> leases, Owner sender) const {
  for (std::size_t index = 0; index < leases.size(); ++index) {
    if (objects_.ledger_of(leases[index].slab).hand_over(leases[index].lease, offered_by(sender), kKept)) continue;
    const SentLease& wrong = leases[index];
    while (index-- > 0) {
      const SentLease& taken = leases[index];
      static_cast<void>(objects_.ledger_of(taken.slab).hand_over(taken.lease, kKept, offered_by(sender)));
    }
    throw_not_offered(wrong, sender);
  }
}

void KeptTable::open_slabs(std::span<const SentLease> leases) {
  for (const SentLease& each : leases) {
    if (++slabs_[each.slab] == 1) static_cast<void>(objects_.open(each.slab, kKept));
  }
}

void KeptTable::close_slabs(std::span<const SentLease> leases) noexcept {
  for (const SentLease& each : leases) {
    const auto slab = slabs_.find(each.slab);
    if (--slab->second > 0) continue;
    slabs_.erase(slab);
    objects_.close(each.slab, kKept);
  }
}

void KeptTable::end(std::span<const SentLease> leases) noexcept {
  for (const SentLease& each : leases) {
    try {
      objects_.ledger_of(each.slab).drop(each.lease, kKept);
    } catch (const std::exception& error) {  // a ledger corrupted by a participant must not stop the keeper
      log(LogLevel::error, error.what());
    }
  }
  close_slabs(leases);
}

const KeptEntry& KeptTable::find(const std::string& name) const {
  const auto at = entries_.find(name);
  if (at == entries_.end()) throw_not_found(name);
  return at->second;
}

const KeptEntry* KeptTable::next(const std::string& name) const {
  const auto at = entries_.upper_bound(name);
  return at == entries_.end() ? nullptr : &at->second;
}

void KeptTable::drop(const std::string& name) {
  const auto at = entries_.find(name);
  if (at == entries_.end()) throw_not_found(name);
  end(entries_.extract(at).mapped().leases);
}

void KeptTable::throw_not_found(const std::string& name) const {
  std::vector<std::string_view> names;
  for (const auto& [each, entry] : entries_) names.push_back(each);
  const auto shown = static_cast<std::ptrdiff_t>(std::min(names.size(), kShownNames));
  std::partial_sort(names.begin(), names.begin() + shown, names.end(), [&](auto one, auto other) {
    return std::pair(-likeness(name, one), one) < std::pair(-likeness(name, other), other);
  });
  const std::size_t more = names.size() - static_cast<std::size_t>(shown);
  names.resize(static_cast<std::size_t>(shown));
  throw Error(
      Errc::not_found,
      fmt::format("nothing is kept under '{}'; the session keeps {}{}{}", name, names.empty() ? "nothing" : "",
                  fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : ""),
      "keep it first; `Session::kept` and `drover session show` list what is kept, and a session without a "
      "name ends with its application");
}

}  // namespace drover::ipc
