// drover/tensor/memory.hpp: blocks of shared memory, of the host and of devices.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "drover/device/memory.hpp"
#include "drover/ipc/lease.hpp"
#include "drover/tensor/place.hpp"

namespace drover {

class MappedSlab;
class MemoryState;

/// A piece of shared memory that this process may use: a lease on a block, and where the block lies in this process.
/// The memory lives as long as any process, or a message on its way, has a lease on it. Move-only. Its contents are
/// what others left there.
class Block {
 public:
  /// Nothing.
  Block() noexcept = default;
  /// Takes over.
  Block(Block&& other) noexcept = default;
  /// Releases what was held, then takes over.
  Block& operator=(Block&& other) noexcept;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { release(); }

  /// Whether it holds memory.
  [[nodiscard]] bool is_open() const noexcept { return lease_.is_open(); }
  /// Where it lies. Requires: `is_open`, as all below.
  [[nodiscard]] Place place() const;
  /// What it can hold; at least what was asked for.
  [[nodiscard]] std::uint64_t size() const noexcept { return lease_.bytes(); }
  /// The bytes, of host memory. Throws `Errc::invalid_argument` for a device's.
  [[nodiscard]] std::span<std::byte> bytes() const;
  /// The address on the device. Throws `Errc::invalid_argument` for host memory.
  [[nodiscard]] DevicePtr device_ptr() const;
  /// The claim on it.
  [[nodiscard]] const Lease& lease() const noexcept { return lease_; }
  /// One more claim on the same memory, e.g. to send it. Throws as `Lease::share`.
  [[nodiscard]] Lease share() const { return lease_.share(); }
  /// Gives the claim away, e.g. to a message; the block holds nothing afterwards.
  [[nodiscard]] Lease take_lease() noexcept;
  /// Ends the claim now.
  void release() noexcept;

 private:
  friend class MemoryState;
  friend class TensorStorage;

  Lease lease_;
  std::shared_ptr<MappedSlab> slab_;    // shared: every block in it needs it mapped
  std::shared_ptr<MemoryState> state_;  // shared: keeps the accounts
};

/// How work of different processes on the same memory is kept in order.
enum class Ordering : std::uint8_t {
  timelines,  ///< streams wait for streams, and no CPU waits; where a device cannot, as with `host`
  host,       ///< who sends waits until its stream is done
};

/// How memory is taken.
struct MemoryOptions {
  std::uint64_t slab_bytes = std::uint64_t{64} << 20U;  ///< size of a slab; what needs half of it has its own
  std::map<Place, std::uint64_t> budgets;               ///< most bytes this process may claim, where it is limited
  Ordering ordering = Ordering::timelines;              ///< of work on what is sent
  /// Host memory of slabs without blocks that is kept for the next ones, since new pages cost most of the time of a
  /// large copy; 0 gives it back at once. Unless given, what `DROVER_IDLE_MEMORY` says, else 1 GiB, or a 16th of the
  /// machine's memory if that is less. On devices one slab is kept, whatever this says; and what others
  /// allocated and this one opened by a handle: at most this, and a 64th of the device's memory.
  std::optional<std::uint64_t> idle_bytes;
  /// For how long it is kept; less if the machine is short of memory. What is open by a handle: a 40th of it.
  std::chrono::milliseconds idle_time{2000};
};

/// One slab that this process has mapped, and who has how much of it.
struct SlabUsage {
  /// What one participant has, or the messages have.
  struct Holder {
    std::string name;          ///< "participant 3", "in transit", "kept"
    std::uint64_t leases = 0;  ///< how many
    std::uint64_t bytes = 0;   ///< of their blocks
  };
  Place place;                   ///< where it lies
  ObjectHandle handle;           ///< its name in the session
  bool is_own = false;           ///< whether this process made its memory; not if it imported it
  bool is_idle = false;          ///< whether it has no block, and is kept for the next
  bool is_known = true;          ///< else somebody stands still in its ledger, and what follows `bytes` is unknown
  std::uint64_t bytes = 0;       ///< all of it
  std::uint64_t free_bytes = 0;  ///< not in any block
  std::uint64_t blocks = 0;      ///< in use
  std::vector<Holder> holders;   ///< by number
};

/// The shared memory of a session as this process uses it. Takes slabs as needed and gives them back when they are
/// empty, but for one of each place, which stays for the next block, and those of the host that are kept a little
/// while (`MemoryOptions::idle_bytes`). Slabs of others stay mapped for more to come: those of the common size, or in
/// use elsewhere, until they are empty and this process ends a block in one, maps a new one, or trims. A handle:
/// copies refer to the same. Safe for all threads. Devices are opened when their memory is first used.
class Memory {
 public:
  /// Nothing is taken until a block is asked for.
  explicit Memory(std::shared_ptr<Membership> membership, const MemoryOptions& options = {});

  /// A block of at least `bytes`, aligned to 512. Throws `Errc::limit_reached` if that exceeds the budget of this
  /// process, in which blocks count in whole chunks and received ones count too, and `Errc::device_memory` or
  /// `Errc::out_of_memory` if there is no more, saying who holds what. Requires: bytes > 0.
  [[nodiscard]] Block allocate(const Place& place, std::uint64_t bytes);
  /// The memory of a lease that came with a message. Throws `Errc::not_found` if its device is not visible here;
  /// where it throws, the lease is still the caller's.
  [[nodiscard]] Block open(Lease&& lease);

  /// Whether it is memory of this session: what is sent there must be.
  [[nodiscard]] bool is_of(const std::shared_ptr<Membership>& membership) const noexcept;
  /// Bytes this process claims there.
  [[nodiscard]] std::uint64_t claimed(const Place& place) const;
  /// All slabs that are mapped here. Waits for other users of their ledgers, a moment.
  [[nodiscard]] std::vector<SlabUsage> usage() const;
  /// Gives back to other libraries what nobody uses any more, as every use of the memory does; returns at once if
  /// there is nothing, and asks no device. For programs that have sent such memory, and do something else for long.
  void collect() const noexcept;
  /// Gives back every slab of its own that has no block in use, idle ones too, and every other in which this process
  /// has none.
  void trim();

 private:
  friend class TensorAccess;
  friend class TensorStorage;
  std::shared_ptr<MemoryState> state_;  // shared: with copies and with all blocks
};

}  // namespace drover
