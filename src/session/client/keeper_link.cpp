#include "session/client/keeper_link.hpp"

#include <unistd.h>

#include <span>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/inspect/process_table.hpp"
#include "process/spawn/standard_streams.hpp"
#include "session/wire/connection.hpp"

namespace drover::session {
namespace {

constexpr std::chrono::milliseconds kKeeperTimeToDie{500};

Reply read_reply(const std::string& bytes) {
  return parse_reply(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

pid_t check_keeper(const Fd& socket) {
  const Credentials keeper = peer_credentials(socket);
  if (keeper.uid == ::geteuid()) return keeper.pid;
  throw Error(Errc::permission_denied,
              fmt::format("the keeper of the session (process {}) belongs to user {}, this process to user {}",
                          keeper.pid, keeper.uid, ::geteuid()),
              "run it as the user who started the session");
}

std::uint64_t start_of(pid_t pid) {
  const auto process = process::read_process(pid);
  return process ? process->start : 0;
}

}  // namespace

KeeperLink::KeeperLink(Fd socket, Duration patience)
    : channel_(Fd{}), patience_(patience), keeper_pid_(check_keeper(socket)), keeper_start_(start_of(keeper_pid_)) {
  channel_ = Channel(process::above_standard_streams(std::move(socket)));
}

// A keeper that refuses a connection sends the reason and closes, so its message is read even if a send fails.
Answer KeeperLink::ask(Request request, int fd) {
  const Deadline deadline = Deadline::after(patience_);
  settle(deadline);
  request.sequence = ++last_sequence_;
  const std::span<const int> fds(&fd, fd >= 0 ? 1 : 0);
  if (channel_.send(encode(request), fds, deadline) == SendResult::timed_out) throw silent_error();
  ++unanswered_;
  Answer answer = receive(deadline);
  if (answer.reply.failure) throw Error(*answer.reply.failure, answer.reply.text, answer.reply.remedy);
  if (answer.reply.sequence == request.sequence && answer.reply.type == request.type) return answer;
  throw Error(Errc::corrupt, fmt::format("the keeper (process {}) sent a reply to another request", keeper_pid_),
              "let all processes of a session use the same drover");
}

void KeeperLink::tell(const Request& request) {
  const bool is_sent = channel_.send(encode(request), {}, Deadline::after(patience_)) == SendResult::sent;
  if (is_sent && has_reply(request.type)) ++unanswered_;
}

// Receives the replies of abandoned requests and undoes those requests before the next one: both sides count the
// objects in each memory file and must agree.
void KeeperLink::settle(Deadline deadline) {
  while (unanswered_ > 0) undo(receive(deadline).reply);
}

Answer KeeperLink::receive(Deadline deadline) {
  ChannelMessage message;
  try {
    switch (channel_.receive(message, deadline)) {
      case ReceiveResult::timed_out: throw silent_error();
      case ReceiveResult::peer_lost: throw lost_error();
      case ReceiveResult::message: break;
    }
  } catch (const Error&) {
    if (message.bytes.empty()) throw;
    --unanswered_;
    undo(read_reply(message.bytes));  // its descriptor was dropped
    throw;
  }
  --unanswered_;
  Answer answer{.reply = read_reply(message.bytes), .file = {}};
  if (!message.fds.empty()) answer.file = std::move(message.fds.front());
  if (message.fds.size() > 1) answer.lifeline = process::above_standard_streams(std::move(message.fds[1]));
  return answer;
}

// Undoes a request whose reply this process cannot use.
void KeeperLink::undo(const Reply& reply) {
  if (reply.failure) return;
  switch (reply.type) {
    case RequestType::create:
    case RequestType::open: return tell({.type = RequestType::close, .handle = reply.handle});
    case RequestType::deposit: return tell({.type = RequestType::withdraw, .number = reply.number});
    case RequestType::join: return tell({.type = RequestType::leave});
    default: return;
  }
}

bool KeeperLink::is_hung_up() const noexcept { return drover::session::is_hung_up(channel_.fd()); }

void KeeperLink::set_session(const std::string* name, const PageView* page) noexcept {
  name_ = name;
  page_ = page;
}

std::string KeeperLink::subject() const {
  return name_ == nullptr || name_->empty() ? "the session" : fmt::format("session '{}'", *name_);
}

Error KeeperLink::lost_error() const {
  if (page_ != nullptr && page_->is_ending()) {
    return {Errc::peer_lost, fmt::format("{} has ended (its keeper was process {})", subject(), keeper_pid_),
            "start or open it again"};
  }
  if (lives()) {
    return {Errc::peer_lost,
            fmt::format("the keeper (process {}) of {} is alive but has dropped its connection to process {}",
                        keeper_pid_, subject(), ::getpid()),
            "see the log of the keeper; check that this program does not write to descriptors that are not its own"};
  }
  return {Errc::peer_lost,
          fmt::format("the keeper (process {}) of {} has died, so process {} can no longer use the session",
                      keeper_pid_, subject(), ::getpid()),
          "start the program again, since its objects are lost; find out why the keeper died: `dmesg` shows if "
          "it crashed or the kernel was out of memory"};
}

// The kernel closes the connections of a dying process shortly before its pidfd reports the death.
bool KeeperLink::lives() const noexcept {
  const Fd pidfd(process::pidfd_open(keeper_pid_));
  const auto process = process::read_process(keeper_pid_);
  if (!pidfd.is_open() || !process || process->start != keeper_start_) return false;
  return !process::pidfd_wait(pidfd.get(), Deadline::after(kKeeperTimeToDie));
}

Error KeeperLink::silent_error() const {
  return {Errc::timed_out,
          fmt::format("the keeper (process {}) of {} did not answer within {} ms", keeper_pid_, subject(),
                      std::chrono::duration_cast<std::chrono::milliseconds>(patience_).count()),
          "check if it is stopped or starved of CPU; SessionOptions::patience gives it more time"};
}

std::vector<KeptInfo> ask_kept(const std::function<Answer(const Request&)>& ask) {
  std::vector<KeptInfo> all;
  Request request{.type = RequestType::kept};
  for (;;) {
    KeptInfo info = ask(request).reply.kept.info;
    if (info.name <= request.kept.info.name) return all;
    request.kept.info.name = info.name;
    all.push_back(std::move(info));
  }
}

}  // namespace drover::session
