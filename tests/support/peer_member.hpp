// tests/support/peer_member.hpp: the group's side of one peer. Private to the harness.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "drover/base/clock.hpp"
#include "drover/ipc/channel.hpp"
#include "support/peer_group.hpp"

namespace drover::test {

/// A started peer. Destruction ends the peer.
class PeerMember {
 public:
  virtual ~PeerMember() = default;
  PeerMember(const PeerMember&) = delete;
  PeerMember& operator=(const PeerMember&) = delete;

  /// The channel to the body of the peer.
  [[nodiscard]] Channel& channel() noexcept { return channel_; }
  /// The next message from the harness of the peer; nullopt if the peer has ended or the deadline passes.
  [[nodiscard]] std::optional<std::string> next_word(Deadline deadline);
  /// Releases it from the point that holds it.
  void release();
  /// Same as PeerGroup::kill.
  virtual void kill() = 0;
  /// Its process id; throws for a thread.
  [[nodiscard]] virtual pid_t pid() const = 0;
  /// Same as PeerGroup::wait.
  [[nodiscard]] virtual PeerOutcome wait(Deadline deadline) = 0;

 protected:
  PeerMember(Channel channel, Channel control) : channel_(std::move(channel)), control_(std::move(control)) {}

  /// Whether it is held at a point, according to the messages read by `next_word`.
  [[nodiscard]] bool is_held() const noexcept { return is_held_; }
  /// The failure it reported; reads all pending messages.
  [[nodiscard]] std::string failure_text();
  /// Closes both channels to the peer.
  void close_channels();

 private:
  Channel channel_;
  Channel control_;
  std::string failure_;
  bool is_held_ = false;
};

/// Starts a peer according to its plan.
[[nodiscard]] std::unique_ptr<PeerMember> start_peer(const PeerPlan& plan);

}  // namespace drover::test
