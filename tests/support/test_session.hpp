// tests/support/test_session.hpp: a session without a keeper process: the test itself keeps the objects.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drover/base/fd.hpp"
#include "drover/base/mapping.hpp"
#include "drover/base/mutex.hpp"
#include "drover/ipc/channel.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/registry/object_table.hpp"

namespace drover::test {

/// Keeps shared objects for a test and its peers, and recovers them when the test says who died. The test must have
/// seen the death (PeerGroup::wait, or a thread that was joined) before it calls `bury`.
class TestSession {
 public:
  TestSession();

  /// A new participant in this process: for the test itself, and for thread peers. Safe from any thread.
  [[nodiscard]] std::shared_ptr<Membership> join();
  /// Sends a process peer what it needs to take part as a new participant with these objects; returns its number.
  Owner invite(Channel& channel, std::span<const ObjectHandle> objects);
  /// Recovers everything of a dead participant, as the keeper would.
  void bury(Owner dead);
  /// From now on every check of a participant throws, as if the keeper had died.
  void end();
  /// How many of the objects have a file, also while a thread of the library opens and closes some.
  [[nodiscard]] std::size_t file_count() const;
  /// The objects.
  [[nodiscard]] ObjectTable& table() noexcept { return *table_; }

 private:
  class Local;

  Owner next_owner();

  Fd page_file_;
  std::shared_ptr<Mapping> page_;
  std::shared_ptr<ObjectTable> table_;
  std::shared_ptr<Mutex> mutex_;
  std::vector<Owner> buried_;  // their numbers are given out again, as the keeper does
  Owner last_ = kNobody;
};

/// In a process peer: takes what `TestSession::invite` sent. `handles` are the objects, in the order sent.
struct Invited {
  std::shared_ptr<Membership> membership;
  std::vector<ObjectHandle> handles;
};
[[nodiscard]] Invited accept_invitation(Channel& channel);

}  // namespace drover::test
