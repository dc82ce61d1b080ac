// session/client/session_state.hpp: the participation of this process in a session, shared by all copies of a
// Session.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drover/base/fd.hpp"
#include "drover/base/mapping.hpp"
#include "drover/base/mutex.hpp"
#include "drover/ipc/lease.hpp"
#include "drover/ipc/membership.hpp"
#include "drover/process/child_process.hpp"
#include "drover/session/session.hpp"
#include "session/client/keeper_link.hpp"
#include "session/wire/session_page.hpp"

namespace drover::session {

/// Joins on construction and leaves on destruction. Counts the openings of each object, so that the keeper sees only
/// the first and the last, and maps each memory file once. Does nothing in a forked child.
class SessionState final : public Membership, public std::enable_shared_from_this<SessionState> {
 public:
  /// Joins through `connection` as `participant_name`, or under the name of the invitation if there was one.
  SessionState(Fd connection, const std::string& participant_name, Duration patience);
  ~SessionState() override;

  OpenObject create(const ObjectSpec& spec) override;
  OpenObject create(const ObjectSpec& spec, const Fd& file) override;
  OpenObject open(const ObjectHandle& handle) override;
  void close(const ObjectHandle& handle) noexcept override;
  Fd file_of(const ObjectHandle& handle) override {
    return ask_for_file({.type = RequestType::file, .handle = handle});
  }
  void keep(std::string_view name, std::span<const std::byte> record, std::string_view description,
            std::span<Lease> leases) override;
  Recalled recall(std::string_view name) override;
  std::vector<KeptInfo> kept() override;
  void drop(std::string_view name) override;
  void check() const override;
  [[nodiscard]] Population population() const noexcept override { return page_.population(); }
  [[nodiscard]] bool is_open_to_all() const noexcept override { return !name_.empty(); }
  [[nodiscard]] bool has_participant(Owner number) const noexcept override { return page_.has_participant(number); }

  /// Takes over the keeper, a child of this process, to reap it when the session has ended.
  void own_keeper(ChildProcess keeper);
  /// Sends a request that concerns no object.
  Answer ask(const Request& request, int fd = -1);
  /// Sends a request whose reply is a descriptor. Throws `Errc::corrupt` if none came.
  Fd ask_for_file(const Request& request);
  /// Ends the session and waits until the keeper has ended.
  void end();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] pid_t keeper_pid() const noexcept { return link_.keeper_pid(); }
  [[nodiscard]] std::uint64_t incarnation() const noexcept { return incarnation_; }
  [[nodiscard]] std::vector<ParticipantInfo> participants() const { return page_.participants(); }

 private:
  struct Opening {
    OpenObject object;
    std::uint32_t count = 0;
  };
  struct MappedSlab {
    Mapping memory;
    std::uint32_t objects = 0;
  };

  static OpenObject open_again(Opening& opening);
  OpenObject take_over(Answer answer) DROVER_REQUIRES(mutex_);
  void leave() noexcept;
  void await_keeper() noexcept;

  Mutex mutex_;      // serialises requests, and openings in the order of the keeper
  KeeperLink link_;  // requests need the mutex, reads do not
  std::string name_;
  std::uint64_t incarnation_ = 0;
  PageView page_;
  Fd lifeline_;  // of a worker; only kept open
  std::map<ObjectHandle, Opening> openings_ DROVER_GUARDED_BY(mutex_);
  std::map<std::uint32_t, MappedSlab> slabs_ DROVER_GUARDED_BY(mutex_);
  std::unique_ptr<ChildProcess> keeper_;
};

}  // namespace drover::session
