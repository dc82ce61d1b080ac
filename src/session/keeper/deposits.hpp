// session/keeper/deposits.hpp: slabs in the keeper's hands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "drover/base/fd.hpp"

namespace drover {

/// What is known of a slab that was deposited.
struct DepositedSlab {
  std::uint64_t number = 0;  ///< never used twice in a session
  std::string label;         ///< for people
  std::uint64_t bytes = 0;   ///< as the depositor said
};

/// Holds one descriptor for each slab that somebody deposited, until somebody withdraws it. Not synchronised.
class Deposits {
 public:
  /// Takes a slab over and returns its number, which is never used twice.
  std::uint64_t add(Fd slab, std::string label, std::uint64_t bytes);
  /// The descriptor; throws `Errc::not_found`.
  [[nodiscard]] const Fd& find(std::uint64_t number) const;
  /// Lets go of it; unknown ones are ignored.
  void remove(std::uint64_t number) { slabs_.erase(number); }

  /// The one with the next higher number; nothing after the last.
  [[nodiscard]] std::optional<DepositedSlab> next(std::uint64_t number) const;
  /// How many.
  [[nodiscard]] std::size_t size() const noexcept { return slabs_.size(); }
  /// Bytes of all, as depositors said.
  [[nodiscard]] std::uint64_t bytes() const noexcept;

 private:
  struct Slab {
    Fd file;
    DepositedSlab facts;
  };

  std::map<std::uint64_t, Slab> slabs_;
  std::uint64_t last_ = 0;
};

}  // namespace drover
