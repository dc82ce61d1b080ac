// session/client/keeper_link.hpp: a client's connection to the keeper.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/ipc/channel.hpp"
#include "session/wire/protocol.hpp"
#include "session/wire/session_page.hpp"

namespace drover::session {

/// A reply and the descriptors that came with it.
struct Answer {
  Reply reply;  ///< without failure
  Fd file;      ///< empty if none came
  Fd lifeline;  ///< of a worker that joins, to be kept open: the kernel wakes it when the keeper dies
};

/// Sends requests to the keeper, one at a time, and waits for each reply until the keeper dies or the time limit
/// passes. Not synchronised, except `is_hung_up`, which is thread-safe.
class KeeperLink {
 public:
  /// Takes over a connection. Throws `Errc::permission_denied` if the peer belongs to another user.
  KeeperLink(Fd socket, Duration patience);

  /// Sends a request, with a descriptor unless that is -1, and returns the reply. Throws the keeper's error;
  /// `Errc::peer_lost`, naming the keeper, if it is dead; `Errc::timed_out` if it does not reply;
  /// `Errc::limit_reached` if this process has too many open files for the descriptor, after undoing the request at
  /// the keeper.
  Answer ask(Request request, int fd = -1);
  /// Waits for the replies of earlier requests that timed out. Throws like `ask`.
  void settle() { settle(Deadline::after(patience_)); }
  /// Sends a request that has no reply. Does not fail if the keeper is dead.
  void tell(const Request& request);
  /// Whether the connection has ended. Makes a system call.
  [[nodiscard]] bool is_hung_up() const noexcept;
  /// The connection, for poll; it hangs up when the keeper dies.
  [[nodiscard]] int fd() const noexcept { return channel_.fd(); }
  /// The process id of the keeper, as reported by the kernel.
  [[nodiscard]] pid_t keeper_pid() const noexcept { return keeper_pid_; }
  /// The error for a connection that has ended: whether the keeper is dead or has dropped this process.
  [[nodiscard]] Error lost_error() const;
  /// Sets what messages mention: the session's name, and the page that shows if it has ended. Both outlive the link.
  void set_session(const std::string* name, const PageView* page) noexcept;

 private:
  [[nodiscard]] std::string subject() const;
  void settle(Deadline deadline);
  [[nodiscard]] Answer receive(Deadline deadline);
  [[nodiscard]] Error silent_error() const;
  [[nodiscard]] bool lives() const noexcept;
  void undo(const Reply& reply);

  Channel channel_;
  Duration patience_;
  pid_t keeper_pid_;
  std::uint64_t keeper_start_;  // identifies the keeper together with its pid; 0: unknown
  const std::string* name_ = nullptr;
  const PageView* page_ = nullptr;
  std::uint64_t last_sequence_ = 0;
  std::uint64_t unanswered_ = 0;  // requests whose replies are pending
};

/// Lists the kept entries by name; calls `ask` once for each.
[[nodiscard]] std::vector<KeptInfo> ask_kept(const std::function<Answer(const Request&)>& ask);

}  // namespace drover::session
