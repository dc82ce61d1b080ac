// ipc/registry/departure.hpp: the recovery after a death or leave, in steps.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "drover/ipc/membership.hpp"
#include "ipc/registry/object_table.hpp"

namespace drover::ipc {

/// Recovers what a participant held, one object at a time, so that the keeper can serve others in between.
///
/// 1. What it ever opened is recovered: a participant that closes an object may leave claims in it, such as a lock
///    that it holds. The keeper notes an opening before the participant learns where the object is, so nothing that
///    it holds is missed, at whatever instruction it died.
/// 2. The queues come before the slabs, and tell which leases of the dead are in messages. Only queues that it opened
/// can have
///    such messages, and no lease comes to the dead any more: what others do meanwhile only takes leases from it.
/// 3. Its openings end last. Its number may be reused after that.
class Departure {
 public:
  /// As ObjectTable::depart. Requires: `objects` outlives this, and the participant opens nothing any more.
  Departure(ObjectTable& objects, Owner owner, pid_t pid) noexcept;
  /// Does the next step; false once everything is recovered.
  bool work() noexcept;

 private:
  enum class Stage : std::uint8_t { objects, slabs, openings, over };
  using Entry = ObjectTable::Entry;

  void recover(const Entry& entry) const;
  void note_sent(const Entry& queue);
  void recover_slab_of(const Entry& slab) const;
  void do_next(Entry& entry);

  ObjectTable& objects_;
  Owner owner_;
  pid_t pid_;
  std::vector<std::uint64_t> known_;                  // generations of what it ever opened
  std::map<std::uint64_t, std::set<LeaseRef>> sent_;  // its leases in messages, by the generation of their slab
  Stage stage_ = Stage::objects;
  std::size_t next_ = 0;
};

}  // namespace drover::ipc
