#include "session/keeper/deposits.hpp"

#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::session {

std::uint64_t Deposits::add(Fd slab, std::string label, std::uint64_t bytes) {
  ++last_;
  slabs_.emplace(
      last_, Slab{.file = std::move(slab), .facts = {.number = last_, .label = std::move(label), .bytes = bytes}});
  return last_;
}

const Fd& Deposits::find(std::uint64_t number) const {
  const auto at = slabs_.find(number);
  if (at != slabs_.end()) return at->second.file;
  throw Error(Errc::not_found, fmt::format("the session has no slab with the number {}", number),
              "withdraw a slab only after every process that needs it has fetched it");
}

std::optional<DepositedSlab> Deposits::next(std::uint64_t number) const {
  const auto at = slabs_.upper_bound(number);
  return at == slabs_.end() ? std::nullopt : std::optional(at->second.facts);
}

std::uint64_t Deposits::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& [number, slab] : slabs_) sum += slab.facts.bytes;
  return sum;
}

}  // namespace drover::session
