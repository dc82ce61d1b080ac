// drover/ipc/lease.hpp: claims on blocks of slabs, and what a session keeps under names.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "drover/ipc/membership.hpp"

namespace drover::ipc {
class OpenLedger;
}  // namespace drover::ipc

namespace drover {

/// One claim of this process on a block of a slab; the block exists while it has leases. Released on destruction, or
/// by the keeper when this process dies; exactly once in either case. A lease sent with a message (`Queue::put`)
/// belongs to the message and then to its receiver, even if the sender is dead by then. Move-only; belongs to one
/// thread at a time. In a forked child the lease is its parent's, and destruction does nothing.
class Lease {
 public:
  /// Makes an empty lease.
  Lease() noexcept = default;
  /// Takes over the claim; `other` is empty afterwards.
  Lease(Lease&& other) noexcept;
  /// Releases its claim, then takes over the other.
  Lease& operator=(Lease&& other) noexcept;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { release(); }

  /// Whether it claims a block.
  [[nodiscard]] bool is_open() const noexcept { return ledger_ != nullptr; }
  /// Another lease of this process on the same block. Throws `Errc::limit_reached` if there are too many, and
  /// `Errc::peer_lost` if the session is over. Requires: `is_open`.
  [[nodiscard]] Lease share() const;
  /// Ends it now. Logs a failure; then the keeper ends it with this process.
  void release() noexcept;

  /// The slab the block lies in. Requires: `is_open`.
  [[nodiscard]] const ObjectHandle& slab() const;
  /// The offset of the block in the slab, in bytes.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  /// The size of the block; at least the requested size.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  friend class ipc::OpenLedger;

  std::shared_ptr<ipc::OpenLedger> ledger_;  // shared: all leases on a slab keep it open in this process
  std::uint32_t index_ = 0;
  std::uint32_t generation_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t bytes_ = 0;
};

inline constexpr std::size_t kMostKept = 4096;                 ///< most names in a session
inline constexpr std::size_t kMostKeptNameBytes = 128;         ///< longest name
inline constexpr std::size_t kMostKeptDescriptionBytes = 256;  ///< longest description
inline constexpr std::size_t kMostKeptRecordBytes = 1024;      ///< largest record
inline constexpr std::size_t kMostKeptLeases = 1024;           ///< most leases under a name

/// An entry that the session keeps, for display.
struct KeptInfo {
  std::string name;                ///< for `recall`
  std::string description;         ///< as given to `keep`
  std::uint64_t bytes = 0;         ///< in its blocks, each counted once
  std::uint32_t leases = 0;        ///< leases that the session holds for it
  std::chrono::sys_seconds since;  ///< time of the `keep`

  /// Memberwise equality.
  friend bool operator==(const KeptInfo&, const KeptInfo&) = default;
};

/// The result of `Membership::recall`.
struct Recalled {
  std::vector<std::byte> record;  ///< as given to `keep`
  std::vector<Lease> leases;      ///< new leases of this process on the kept blocks, in the same order
};

}  // namespace drover
