// ipc/registry/object_table.hpp: all shared objects of a session as the keeper holds them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "drover/base/fd.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/ledger/slab_ledger.hpp"

namespace drover::ipc {

/// A memory file with objects in it, sent to each participant once.
struct ObjectSlab {
  Fd file;                                             ///< sealed memory file
  Mapping memory;                                      ///< the keeper's own view
  std::map<std::uint64_t, std::uint64_t> free_ranges;  ///< offset and length of unused ranges
  std::uint32_t objects = 0;                           ///< number of objects in it
};

/// Makes shared objects, tracks which participants have them open, frees them with the last opening, and recovers
/// them after a death. Lives in the keeper; its own state is private, so a participant can corrupt only shared
/// memory. Small objects share memory files; a large one has its own. Not synchronised.
class ObjectTable {
 public:
  /// Makes an object, or opens the existing one of a single kind, for `opener`; holds `file` until the object is
  /// freed. Throws `Errc::invalid_argument` for a bad spec and for an unexpected or missing file;
  /// `Errc::out_of_memory` and `Errc::limit_reached` if the system refuses.
  ObjectHandle create(const ObjectSpec& spec, Owner opener, std::uint64_t departed_before, Fd file = {});
  /// Opens an object for `opener`, which may be `kKept` for the session itself. Returns the spec; throws
  /// `Errc::not_found` if there is no such object.
  const ObjectSpec& open(const ObjectHandle& handle, Owner opener);
  /// The file of an object that `opener` has open. Throws `Errc::not_found` if there is no such object or it has
  /// none, `Errc::invalid_argument` if `opener` has not opened it.
  [[nodiscard]] const Fd& file_of(const ObjectHandle& handle, Owner opener) const;
  /// The ledger of a slab, in memory that participants can write. Throws `Errc::not_found` if there is no such slab.
  [[nodiscard]] SlabLedger ledger_of(const ObjectHandle& slab) const;
  /// Ends an opening; ignores unknown ones. Frees the object with its last opening; an overflow object or a slab only
  /// once no record refers to it.
  void close(const ObjectHandle& handle, Owner opener) noexcept;
  /// After the kernel has reported a death, or a participant has left: recovers every object that it ever opened,
  /// ends its openings, and wakes all sleepers on these objects, so that they check again. `pid` is recorded as the
  /// last lost opener; 0 if the participant left in good order. The keeper does the same in steps: Departure.
  void depart(Owner owner, pid_t pid) noexcept;
  /// Wakes all sleepers on all objects.
  void wake_all() noexcept;
  /// The same by and by, in `work`.
  void wake_all_later() noexcept { wake_from_ = 0; }
  /// Does a small piece of what was put off: waking, and the search for slabs that no message names any more. False
  /// if there is nothing left to do.
  bool work() noexcept;

  /// The memory file with this number; throws `Errc::not_found`.
  [[nodiscard]] const ObjectSlab& slab(std::uint32_t number) const;
  /// Number of objects.
  [[nodiscard]] std::size_t size() const noexcept { return objects_.size(); }
  /// Number of memory files.
  [[nodiscard]] std::size_t slab_count() const noexcept { return slabs_.size(); }
  /// Bytes of all memory files.
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Number of objects with a file.
  [[nodiscard]] std::size_t file_count() const noexcept;
  /// Bytes of these files according to the specs.
  [[nodiscard]] std::uint64_t file_bytes() const noexcept;

 private:
  friend class Departure;
  struct Entry {
    ObjectHandle handle;
    ObjectSpec spec;
    std::size_t bytes = 0;
    Fd file;
    std::set<Owner> openers;
    std::set<Owner> acquainted;  // present participants that ever opened it
  };
  using Entries = std::map<std::uint64_t, Entry>;  // by generation
  using Generations = std::set<std::uint64_t>;

  [[nodiscard]] const Entry* find(const ObjectHandle& handle) const noexcept;
  Entry* find(const ObjectHandle& handle) noexcept;
  [[nodiscard]] const Entry* find_kind(ObjectKind kind) const noexcept;
  [[nodiscard]] std::byte* data_of(const Entry& entry) const;
  void place(Entry& entry);
  void erase(std::uint64_t generation) noexcept;
  void end_openings(Entry& entry, Owner owner, pid_t pid) noexcept;
  void drop_leases_of(const Entry& queue) noexcept;
  void show_counts(const Entry& entry) const;
  void wake(const Entry& entry) const noexcept;
  void erase_if_unused(const Entry& entry) noexcept;
  [[nodiscard]] bool is_in_transit(const Entry& overflow) const noexcept;
  [[nodiscard]] bool has_leases(const Entry& slab) const noexcept;
  void search_later() noexcept;
  bool search_queue() noexcept;

  Entries objects_;
  std::map<Owner, Generations> known_;              // what each present participant ever opened
  std::map<std::uint64_t, Generations> overflows_;  // overflow objects, by the generation of their queue
  Generations unopened_slabs_;                      // that nobody has open, but messages may name
  Generations unnamed_slabs_;                       // of these, those that no message named in the running search
  std::optional<std::uint64_t> searched_;           // the last queue of the running search
  bool must_search_ = false;                        // whether another search is due
  std::optional<std::uint64_t> wake_from_;          // the next object to wake
  std::map<std::uint32_t, ObjectSlab> slabs_;
  std::uint64_t last_generation_ = 0;
  std::uint32_t last_slab_ = 0;
};

}  // namespace drover::ipc
