// ipc/registry/object_table.hpp: all shared objects of a session, as the keeper holds them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>

#include "drover/base/fd.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/ledger/slab_ledger.hpp"

namespace drover {

/// A memory file with objects in it, to be handed to participants once each.
struct ObjectSlab {
  Fd file;                                             ///< sealed memory file
  Mapping memory;                                      ///< the keeper's own view
  std::map<std::uint64_t, std::uint64_t> free_ranges;  ///< offset and length of what is unused
  std::uint32_t objects = 0;                           ///< that lie in it
};

/// Makes shared objects, knows who has them open, frees them with the last opening, and recovers them after a
/// death. Lives in the keeper; its own state is private, so a participant can spoil only what it shares. Small
/// objects share memory files; a large one has its own. Not synchronised.
class ObjectTable {
 public:
  /// Makes an object, or opens the one of a kind that is single; counts `opener` as having it open, and holds `file`
  /// until the object goes. Throws `Errc::invalid_argument` for a bad spec, for a file that the kind does not have,
  /// and where one is missing; `Errc::out_of_memory` and `Errc::limit_reached` where the system refuses.
  ObjectHandle create(const ObjectSpec& spec, Owner opener, std::uint64_t departed_before, Fd file = {});
  /// Counts `opener`, which may be `kKept` for the session itself. Returns the spec; throws `Errc::not_found` if
  /// there is no such object.
  const ObjectSpec& open(const ObjectHandle& handle, Owner opener);
  /// The file of an object that `opener` has open. Throws `Errc::not_found` if there is no such object or it has
  /// none, `Errc::invalid_argument` if `opener` has not opened it.
  [[nodiscard]] const Fd& file_of(const ObjectHandle& handle, Owner opener) const;
  /// The ledger of a slab, in memory that participants can write. Throws `Errc::not_found` if there is no such slab.
  [[nodiscard]] SlabLedger ledger_of(const ObjectHandle& slab) const;
  /// Ends an opening; unknown ones are ignored. The object goes with the last one; an overflow object not before no
  /// record refers to it, one that its kind needs not before that ends: all of those are looked at again.
  void close(const ObjectHandle& handle, Owner opener) noexcept;
  /// After the kernel has reported a death, or a participant has left: recovers every object, ends the openings,
  /// and wakes everybody who sleeps on an object, so that they see what changed. `pid` is told to who asks; 0 if it
  /// left in good order.
  void depart(Owner owner, pid_t pid) noexcept;
  /// Wakes everybody who sleeps on any object.
  void wake_all() noexcept;

  /// The memory file with this number; throws `Errc::not_found`.
  [[nodiscard]] const ObjectSlab& slab(std::uint32_t number) const;
  /// How many objects there are.
  [[nodiscard]] std::size_t size() const noexcept { return objects_.size(); }
  /// How many memory files.
  [[nodiscard]] std::size_t slab_count() const noexcept { return slabs_.size(); }
  /// Bytes of all memory files.
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// How many objects have a file.
  [[nodiscard]] std::size_t file_count() const noexcept;
  /// Bytes of these files, as the specs say.
  [[nodiscard]] std::uint64_t file_bytes() const noexcept;

 private:
  struct Entry {
    ObjectHandle handle;
    ObjectSpec spec;
    std::size_t bytes = 0;
    Fd file;
    std::set<Owner> openers;
    std::set<Owner> acquainted;  // those present that have it open, or had
  };
  using Entries = std::map<std::uint64_t, Entry>;  // by generation

  [[nodiscard]] const Entry* find(const ObjectHandle& handle) const noexcept;
  Entry* find(const ObjectHandle& handle) noexcept;
  [[nodiscard]] const Entry* find_kind(ObjectKind kind) const noexcept;
  [[nodiscard]] std::byte* data_of(const Entry& entry) const;
  void place(Entry& entry);
  Entries::iterator erase(Entries::iterator at) noexcept;
  void recover(Entry& entry, Owner dead) noexcept;
  void recover_slabs(Owner dead) noexcept;
  void drop_leases_of(const Entry& queue) noexcept;
  void show_counts(const Entry& entry) const;
  [[nodiscard]] bool is_unused(const Entry& entry) const noexcept;
  [[nodiscard]] bool is_in_transit(const Entry& overflow) const noexcept;
  [[nodiscard]] bool is_sent(const Entry& slab) const noexcept;
  [[nodiscard]] std::set<LeaseRef> leases_sent_by(Owner dead, const Entry& slab) const;
  void for_each_sent(const ObjectHandle& slab, const std::function<void(LeaseRef)>& visit) const;
  void erase_unused_slabs() noexcept;

  Entries objects_;
  std::set<std::uint64_t> slab_objects_;  // their generations, and perhaps some that were never made
  std::map<std::uint32_t, ObjectSlab> slabs_;
  std::uint64_t last_generation_ = 0;
  std::uint32_t last_slab_ = 0;
};

}  // namespace drover
