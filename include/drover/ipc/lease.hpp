// drover/ipc/lease.hpp: this process's claim on a block of a slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "drover/ipc/membership.hpp"

namespace drover {

class SlabBook;

/// One claim of this process on a block of a slab: while it lives, the block does. Released when destroyed, or by the
/// keeper when this process dies, exactly once in either case. Sent with a message (`Queue::put`) it belongs to the
/// message and then to whoever gets that, though the sender be dead by then. Move-only; belongs to one thread at a
/// time. In a forked child it is its parent's: destruction does nothing there.
class Lease {
 public:
  /// Claims nothing.
  Lease() noexcept = default;
  /// Takes over.
  Lease(Lease&& other) noexcept;
  /// Releases what was claimed, then takes over.
  Lease& operator=(Lease&& other) noexcept;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { release(); }

  /// Whether it claims a block.
  [[nodiscard]] bool is_open() const noexcept { return book_ != nullptr; }
  /// One more claim of this process on the same block. Throws `Errc::limit_reached` if there are too many, and
  /// `Errc::peer_lost` if the session is over. Requires: `is_open`.
  [[nodiscard]] Lease share() const;
  /// Ends it now. What goes wrong is logged: then the keeper ends it with this process.
  void release() noexcept;

  /// The slab the block lies in. Requires: `is_open`.
  [[nodiscard]] const ObjectHandle& slab() const;
  /// Where the block begins, in bytes from the start of the slab.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  /// What the block can hold; at least what was asked for.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  friend class SlabBook;

  std::shared_ptr<SlabBook> book_;  // shared: all leases on a slab keep it open in this process
  std::uint32_t index_ = 0;
  std::uint32_t generation_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace drover
