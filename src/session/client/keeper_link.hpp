// session/client/keeper_link.hpp: a client's end of the connection to the keeper.
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

namespace drover {

/// A reply and the descriptor that came with it.
struct Answer {
  Reply reply;  ///< without failure
  Fd file;      ///< empty where none came
};

/// Asks the keeper, one request at a time, and waits for the answer so long as the keeper lives and patience lasts.
/// One thread at a time may ask or tell; `is_hung_up` is safe for all.
class KeeperLink {
 public:
  /// Takes over a connection to the keeper. Throws `Errc::permission_denied` if a process of another user is at its
  /// end.
  KeeperLink(Fd socket, std::chrono::milliseconds patience);

  /// Sends a request, with a descriptor unless that is -1, and returns the answer. Throws what the keeper answers;
  /// `Errc::peer_lost`, naming it, if it is gone; `Errc::timed_out` if it does not answer; `Errc::limit_reached` if
  /// this process has too many open files for the descriptor, after which nothing is left open at the keeper.
  Answer ask(Request request, int fd = -1);
  /// Waits until no earlier request, which this process has given up, can still be answered. Throws as `ask`.
  void settle() { settle(Deadline::after(patience_)); }
  /// Sends a request and does not wait for a reply. A keeper that is gone is no error.
  void tell(const Request& request);
  /// Whether the connection has ended. A system call.
  [[nodiscard]] bool is_hung_up() const noexcept;
  /// The connection, to be polled; it hangs up when the keeper is gone.
  [[nodiscard]] int fd() const noexcept { return channel_.fd(); }
  /// The process that keeps the session, as the kernel says.
  [[nodiscard]] pid_t keeper_pid() const noexcept { return keeper_pid_; }
  /// The error of a connection that has ended; it tells a keeper that is gone from one that has dropped us.
  [[nodiscard]] Error lost_error() const;
  /// For messages: the session's name, and the page that tells whether it has ended. Both outlive the link.
  void set_session(const std::string* name, const PageView* page) noexcept;

 private:
  [[nodiscard]] std::string subject() const;
  void settle(Deadline deadline);
  [[nodiscard]] Answer receive(Deadline deadline);
  [[nodiscard]] Error silent_error() const;
  [[nodiscard]] bool lives() const noexcept;
  void undo(const Reply& reply);

  Channel channel_;
  std::chrono::milliseconds patience_;
  pid_t keeper_pid_;
  std::uint64_t keeper_start_;  // with the pid it names the keeper exactly; 0: not known
  const std::string* name_ = nullptr;
  const PageView* page_ = nullptr;
  std::uint64_t last_sequence_ = 0;
  std::uint64_t unanswered_ = 0;  // requests whose replies are still to come
};

/// Everything that is kept, by name; `ask` asks the keeper, once for each.
[[nodiscard]] std::vector<KeptInfo> ask_kept(const std::function<Answer(const Request&)>& ask);

}  // namespace drover
