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

/// A started peer. Destruction ends it.
class PeerMember {
 public:
  virtual ~PeerMember() = default;
  PeerMember(const PeerMember&) = delete;
  PeerMember& operator=(const PeerMember&) = delete;

  /// To the peer's body.
  [[nodiscard]] Channel& channel() noexcept { return channel_; }
  /// What the peer's harness says next; nothing when it has ended or the deadline passes.
  [[nodiscard]] std::optional<std::string> next_word(Deadline deadline);
  /// Lets it leave the point that holds it.
  void release();
  /// As PeerGroup::kill.
  virtual void kill() = 0;
  /// Its process id; throws for a thread.
  [[nodiscard]] virtual pid_t pid() const = 0;
  /// As PeerGroup::wait.
  [[nodiscard]] virtual PeerOutcome wait(Deadline deadline) = 0;

 protected:
  PeerMember(Channel channel, Channel control) : channel_(std::move(channel)), control_(std::move(control)) {}

  /// Whether it stands at a point, as far as `next_word` has heard.
  [[nodiscard]] bool is_held() const noexcept { return is_held_; }
  /// What it reported of its failure; reads what has not been read.
  [[nodiscard]] std::string failure_text();
  /// The peer sees both its channels end.
  void close_channels();

 private:
  Channel channel_;
  Channel control_;
  std::string failure_;
  bool is_held_ = false;
};

/// Starts a peer as its plan says.
[[nodiscard]] std::unique_ptr<PeerMember> start_peer(const PeerPlan& plan);

}  // namespace drover::test
