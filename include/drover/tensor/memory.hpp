// drover/tensor/memory.hpp: blocks of shared memory, of the host and of devices.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drover/base/checked.hpp"
#include "drover/base/clock.hpp"
#include "drover/device/info.hpp"
#include "drover/device/memory.hpp"
#include "drover/ipc/lease.hpp"

namespace drover::tensor {
class MappedSlab;
class MemoryState;
class TensorAccess;
class TensorStorage;
}  // namespace drover::tensor

namespace drover {

/// Where memory lies: on the host, or on a device by this process's number. Messages identify devices by UUID, since
/// processes may number them differently.
struct Place {
  bool is_device = false;                   ///< false for host memory, which ignores the rest
  BackendKind backend = BackendKind::host;  ///< which kind of device
  int index = 0;                            ///< its number in this process

  /// Host memory.
  [[nodiscard]] static Place cpu() noexcept { return {}; }
  /// Device memory.
  [[nodiscard]] static Place device(BackendKind backend, int index) noexcept {
    return {.is_device = true, .backend = backend, .index = index};
  }
  /// Parses "cpu", "cuda:0" or "host:1"; throws `Errc::invalid_argument` otherwise. The device need not exist.
  [[nodiscard]] static Place parse(std::string_view text);

  /// Same place.
  friend bool operator==(const Place& one, const Place& other) noexcept { return (one <=> other) == 0; }
  /// An arbitrary order, for maps.
  friend std::strong_ordering operator<=>(const Place& one, const Place& other) noexcept {
    if (one.is_device != other.is_device)
      return static_cast<int>(one.is_device) <=> static_cast<int>(other.is_device);
    if (!one.is_device) return std::strong_ordering::equal;
    return std::pair(one.backend, one.index) <=> std::pair(other.backend, other.index);
  }
};

/// "cpu", "cuda:0", "host:1".
[[nodiscard]] std::string to_string(const Place& place);

/// A piece of shared memory: a lease on a block, and its address in this process. The memory lives as long as any
/// process, or a message in flight, has a lease on it. New blocks are uninitialized. Move-only.
class Block {
 public:
  /// Empty.
  Block() noexcept = default;
  /// Takes over.
  Block(Block&& other) noexcept = default;
  /// Releases its own memory, then takes over.
  Block& operator=(Block&& other) noexcept;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { release(); }

  /// Whether it holds memory.
  [[nodiscard]] bool is_open() const noexcept { return lease_.is_open(); }
  /// Where it lies. Requires: `is_open`, as do all methods below.
  [[nodiscard]] Place place() const;
  /// Bytes of the block; at least as many as requested.
  [[nodiscard]] std::uint64_t size() const noexcept { return lease_.bytes(); }
  /// The bytes. Throws `Errc::invalid_argument` for device memory.
  [[nodiscard]] std::span<std::byte> bytes() const;
  /// The address on the device. Throws `Errc::invalid_argument` for host memory.
  [[nodiscard]] DevicePtr device_ptr() const;
  /// The lease on it.
  [[nodiscard]] const Lease& lease() const noexcept { return lease_; }
  /// Another lease on the same memory, e.g. to send it. Throws as `Lease::share`.
  [[nodiscard]] Lease share() const { return lease_.share(); }
  /// Gives the lease away, e.g. to a message; the block is empty afterwards.
  [[nodiscard]] Lease take_lease() noexcept;
  /// Ends the lease; the block is empty afterwards.
  void release() noexcept;

 private:
  friend class tensor::MemoryState;
  friend class tensor::TensorStorage;

  Lease lease_;
  std::shared_ptr<tensor::MappedSlab> slab_;    // shared: mapped while there are blocks in it
  std::shared_ptr<tensor::MemoryState> state_;  // shared: counts the claims
};

/// How work of different processes on the same memory is ordered.
enum class Ordering : std::uint8_t {
  timelines,  ///< streams wait for streams, and no CPU waits; `host` where a device cannot
  host,       ///< the sender waits until its stream is done
};

/// Options of a Memory.
struct MemoryOptions {
  std::uint64_t slab_bytes = std::uint64_t{64} << 20U;  ///< slab size; blocks over half of it get their own slab
  std::map<Place, std::uint64_t> budgets;               ///< limits of what this process may claim, by place
  Ordering ordering = Ordering::timelines;              ///< of work on memory that is sent
  /// Most host memory in empty slabs that is kept for later blocks, since page faults dominate the cost of large
  /// copies; 0 keeps none. Defaults to `DROVER_IDLE_MEMORY`, or else to the lesser of 1 GiB and a 16th of the
  /// machine's memory. On a device at most a 64th of its memory. One empty slab of each place is kept regardless.
  std::optional<std::uint64_t> idle_bytes;
  /// How long empty slabs are kept; less if the machine is short of memory. On devices a fourth of it.
  Duration idle_time = std::chrono::seconds(2);
};

/// Usage of one slab that this process has mapped.
struct SlabUsage {
  /// What one participant, or all messages, hold.
  struct Holder {
    std::string name;          ///< "participant 3", "in transit", "kept"
    std::uint64_t leases = 0;  ///< how many
    std::uint64_t bytes = 0;   ///< bytes of their blocks
  };
  Place place;                   ///< where it lies
  ObjectHandle handle;           ///< its name in the session
  bool is_own = false;           ///< whether this process made its memory; false for imports
  bool is_idle = false;          ///< whether it is empty, and kept for later blocks
  bool is_known = true;          ///< false if its ledger stayed locked: then all after `bytes` is unknown
  std::uint64_t bytes = 0;       ///< its size
  std::uint64_t free_bytes = 0;  ///< not in any block
  std::uint64_t blocks = 0;      ///< in use
  std::vector<Holder> holders;   ///< by participant
};

/// The shared memory of a session as this process uses it. Makes slabs as needed and gives empty ones back, except
/// for one at each place, and for those that are kept for a while (`MemoryOptions::idle_bytes`). Slabs of
/// other processes stay mapped while they have the common size, or are in use elsewhere, until they are empty and
/// this process releases a block in one, maps a new one, or trims. A handle: copies refer to the same memory. Safe
/// for all threads. Opens devices when their memory is first used.
class Memory {
 public:
  /// Takes no memory until the first block.
  explicit Memory(std::shared_ptr<Membership> membership, const MemoryOptions& options = {});

  /// A block of at least `bytes`, aligned to 512. Throws `Errc::limit_reached` if that exceeds the budget of this
  /// process, which counts whole chunks, and received blocks too; `Errc::device_memory` or `Errc::out_of_memory`,
  /// with what each holder has, if there is no more. Requires: bytes > 0.
  [[nodiscard]] Block allocate(const Place& place, std::uint64_t bytes);
  /// Opens a lease that came with a message. Throws `Errc::not_found` if its device is not visible here. If it
  /// throws, the caller keeps the lease.
  [[nodiscard]] Block open(Lease&& lease);

  /// Whether it belongs to this session, as memory that is sent there must.
  [[nodiscard]] bool is_of(const std::shared_ptr<Membership>& membership) const;
  /// Bytes this process claims there.
  [[nodiscard]] std::uint64_t claimed(const Place& place) const;
  /// All slabs that are mapped here. Waits up to 100 ms for each ledger that is locked.
  [[nodiscard]] std::vector<SlabUsage> usage() const;
  /// Gives back every own slab that is empty, and unmaps every other one in which this process has no block.
  void trim();

 private:
  friend class tensor::TensorAccess;
  friend class tensor::TensorStorage;
  detail::Checked<std::shared_ptr<tensor::MemoryState>> state_;  // shared: with copies and with all blocks
};

}  // namespace drover
