// tests/torture/torture_session.hpp: a session whose participants are forked from its keeper, thousands per minute.
#pragma once

#include <sys/types.h>

#include <memory>
#include <set>
#include <vector>

#include "drover/ipc/membership.hpp"
#include "ipc/registry/object_table.hpp"

namespace drover::test {

/// The driver is keeper and parent. Participants inherit its mappings of the objects, so that starting one takes only
/// a fork. Numbers are reused at once, which is the hardest case for recovery.
class TortureSession {
 public:
  TortureSession();

  /// Creates an object, which the driver opens first.
  ObjectHandle create(const ObjectSpec& spec);
  /// The driver as a participant.
  [[nodiscard]] const std::shared_ptr<Membership>& driver() const noexcept { return driver_; }
  /// An object in the driver's mapping.
  [[nodiscard]] OpenObject object(const ObjectHandle& handle) const;

  /// A number for a new participant, which opens all objects. Call before the fork.
  Owner admit();
  /// In the forked child: the membership with that number.
  [[nodiscard]] std::shared_ptr<Membership> take_part(Owner owner) const;
  /// Recovers everything that a dead participant held and frees its number. Requires: reaped.
  void recover(Owner owner, pid_t pid);

  /// Recovers a living participant, which is always a fault.
  void recover_alive(Owner owner);

  [[nodiscard]] std::size_t bytes() const noexcept { return table_.bytes(); }

 private:
  class Member;
  struct Page;

  Mapping page_memory_;
  ipc::ObjectTable table_;
  std::vector<OpenObject> objects_;
  std::set<Owner> present_;
  Owner last_recovered_ = kNobody;
  std::shared_ptr<Membership> driver_;
};

}  // namespace drover::test
