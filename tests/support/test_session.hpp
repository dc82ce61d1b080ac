// tests/support/test_session.hpp: a session without a keeper process, in which the test itself keeps the objects.
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

/// Keeps shared objects for a test and its peers, and recovers them when the test reports a death. Before it calls
/// `recover`, the test must know that the participant is dead (PeerGroup::wait, or a joined thread).
class TestSession {
 public:
  TestSession();

  /// A new participant in this process, for the test itself or a thread peer. Thread-safe.
  [[nodiscard]] std::shared_ptr<Membership> join();
  /// Invites a process peer as a new participant with these objects; returns its number.
  Owner invite(Channel& channel, std::span<const ObjectHandle> objects);
  /// Recovers everything that a dead participant held, as the keeper would.
  void recover(Owner dead);
  /// Ends the session: from now on every check of a participant throws, as if the keeper had died.
  void end();
  /// Number of objects with a file. Thread-safe, because a thread of the library may open and close some meanwhile.
  [[nodiscard]] std::size_t file_count() const;
  /// The objects.
  [[nodiscard]] ipc::ObjectTable& table() noexcept { return *table_; }

 private:
  class Local;

  Owner next_owner();

  Fd page_file_;
  std::shared_ptr<Mapping> page_;
  std::shared_ptr<ipc::ObjectTable> table_;
  std::shared_ptr<Mutex> mutex_;
  std::vector<Owner> recovered_;  // their numbers are reused, as by the keeper
  Owner last_ = kNobody;
};

/// The result of `accept_invitation`; `handles` are the objects in the order sent.
struct Invited {
  std::shared_ptr<Membership> membership;
  std::vector<ObjectHandle> handles;
};
/// Joins the session of `TestSession::invite` in a process peer.
[[nodiscard]] Invited accept_invitation(Channel& channel);

}  // namespace drover::test
