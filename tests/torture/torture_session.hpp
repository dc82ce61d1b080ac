// tests/torture/torture_session.hpp: a session whose participants are forked from its keeper, thousands a minute.
#pragma once

#include <sys/types.h>

#include <memory>
#include <set>
#include <vector>

#include "drover/ipc/membership.hpp"
#include "ipc/registry/object_table.hpp"

namespace drover::test {

/// The driver is keeper and parent. Participants find the objects mapped where the driver has them, so that starting
/// one is a fork and nothing else. Numbers are used again at once, as hard as a keeper could make it.
class TortureSession {
 public:
  TortureSession();

  /// Makes an object; the driver is its first opener.
  ObjectHandle create(const ObjectSpec& spec);
  /// The driver as a participant.
  [[nodiscard]] const std::shared_ptr<Membership>& driver() const noexcept { return driver_; }
  /// An object as the driver sees it.
  [[nodiscard]] OpenObject object(const ObjectHandle& handle) const;

  /// A number for a new participant that opens all objects. Call before its fork.
  Owner admit();
  /// In the fork: the membership under that number.
  [[nodiscard]] std::shared_ptr<Membership> take_part(Owner owner) const;
  /// Recovers everything of a dead participant, whose number is then free. Requires: reaped.
  void bury(Owner owner, pid_t pid);

  /// Recovers a participant that lives: never right.
  void bury_alive(Owner owner);

  [[nodiscard]] std::size_t bytes() const noexcept { return table_.bytes(); }

 private:
  class Member;
  struct Page;

  Mapping page_memory_;
  ObjectTable table_;
  std::vector<OpenObject> objects_;
  std::set<Owner> present_;
  Owner last_buried_ = kNobody;
  std::shared_ptr<Membership> driver_;
};

}  // namespace drover::test
