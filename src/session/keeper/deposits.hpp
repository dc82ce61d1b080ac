// session/keeper/deposits.hpp: slabs deposited with the keeper.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "drover/base/fd.hpp"

namespace drover::session {

/// A deposited slab.
struct DepositedSlab {
  std::uint64_t number = 0;  ///< never reused in a session
  std::string label;         ///< for listings
  std::uint64_t bytes = 0;   ///< as declared by the depositor
};

/// Holds a descriptor of each deposited slab until it is withdrawn. Not synchronised.
class Deposits {
 public:
  /// Takes over a slab and returns its number.
  std::uint64_t add(Fd slab, std::string label, std::uint64_t bytes);
  /// The descriptor of a slab. Throws `Errc::not_found`.
  [[nodiscard]] const Fd& find(std::uint64_t number) const;
  /// Closes a slab; ignores unknown numbers.
  void remove(std::uint64_t number) { slabs_.erase(number); }

  /// The slab with the next higher number; nullopt after the last.
  [[nodiscard]] std::optional<DepositedSlab> next(std::uint64_t number) const;
  /// The number of slabs.
  [[nodiscard]] std::size_t size() const noexcept { return slabs_.size(); }
  /// Their total size, as declared.
  [[nodiscard]] std::uint64_t bytes() const noexcept;

 private:
  struct Slab {
    Fd file;
    DepositedSlab facts;
  };

  std::map<std::uint64_t, Slab> slabs_;
  std::uint64_t last_ = 0;
};

}  // namespace drover::session
