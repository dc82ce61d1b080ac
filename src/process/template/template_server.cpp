#include "process/template/template_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/spawn/remote_status.hpp"
#include "process/spawn/spawn_plan.hpp"
#include "process/template/start_area.hpp"
#include "process/template/template_wire.hpp"

namespace drover::process {
namespace {

constexpr int kNothingStarted = 127;
constexpr std::size_t kFixedDescriptors = 3;  // the order, the socket of the child, its directory

const StartArea& start_area() {
  static const StartArea area;
  return area;
}

// Moves to a number of at least `least`; ends the process if none is free.
int lifted_number(int fd, int least) noexcept {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, least);
  if (copy < 0) ::_exit(kNothingStarted);
  return copy;
}

// Closes all others.
std::vector<std::pair<unsigned, unsigned>> all_but(const std::set<int>& kept) {
  std::vector<std::pair<unsigned, unsigned>> closings;
  unsigned next = 0;
  for (const int number : kept) {
    const auto here = static_cast<unsigned>(number);
    if (next < here) closings.emplace_back(next, here - 1);
    next = here + 1;
  }
  closings.emplace_back(next, std::numeric_limits<unsigned>::max());
  return closings;
}

// The handlers of the signals that the C library reserves. It installs them with the first thread of a process and
// not again in a forked child, so a reset would let setuid kill a child that has threads.
class ReservedHandlers {
 public:
  ReservedHandlers() noexcept {
    for (std::size_t i = 0; i < kReserved.size(); ++i) exchange(kReserved[i], nullptr, &handlers_[i]);
  }
  void restore() const noexcept {
    for (std::size_t i = 0; i < kReserved.size(); ++i) exchange(kReserved[i], &handlers_[i], nullptr);
  }

 private:
  using KernelAction = std::array<unsigned long, 4>;  // the kernel's struct sigaction
  static constexpr std::array kReserved = {32, 33};
  static void exchange(int number, const KernelAction* next, KernelAction* before) noexcept {
    ::syscall(SYS_rt_sigaction, number, next, before, sizeof(unsigned long));
  }

  std::array<KernelAction, 2> handlers_ = {};
};

}  // namespace

struct TemplateOrderTaken::State {
  TemplateOrder order;
  Fd socket;
  Fd folder;
  std::vector<Fd> descriptors;  // one for each of order.targets

  void show() const {
    // The newest first, since the last ones may not fit and the mark of a worker must.
    const std::vector<std::string> variables(order.variables.rbegin(), order.variables.rend());
    start_area().show(order.arguments, variables);
  }
};

TemplateOrderTaken::TemplateOrderTaken(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
TemplateOrderTaken::TemplateOrderTaken(TemplateOrderTaken&& other) noexcept = default;
TemplateOrderTaken& TemplateOrderTaken::operator=(TemplateOrderTaken&& other) noexcept = default;
TemplateOrderTaken::~TemplateOrderTaken() = default;

std::size_t TemplateOrderTaken::start() const noexcept { return state_->order.start; }

std::vector<std::string> TemplateOrderTaken::arguments() const {
  const auto& all = state_->order.arguments;
  return {all.end() - static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(all.size(), state_->order.own_arguments)),
          all.end()};
}

const std::vector<std::string>& TemplateOrderTaken::variables() const noexcept { return state_->order.variables; }

void TemplateOrderTaken::refuse(std::string_view why) {
  std::string text(1, remote_status::kRefused);
  text.append(why.substr(0, kMostMessageBytes - 1));
  static_cast<void>(send_message(state_->socket.get(), text, {}));
  state_->socket.reset();
}

bool TemplateOrderTaken::forward(int socket) const {
  const Fd file = file_with(to_bytes(state_->order));
  std::vector<int> descriptors = {file.get(), state_->socket.get(), state_->folder.get()};
  for (const auto& descriptor : state_->descriptors) descriptors.push_back(descriptor.get());
  return send_message(socket, "order", descriptors);
}

int TemplateOrderTaken::take_socket() { return state_->socket.release(); }

void TemplateOrderTaken::become(pid_t parent) {
  TemplateOrder& order = state_->order;
  SpawnPlan& plan = order.plan;
  int highest = STDERR_FILENO;
  for (const int target : order.targets) highest = std::max(highest, target);
  const int socket = lifted_number(state_->socket.get(), highest + 1);
  const int self = lifted_number(Fd(pidfd_open(::getpid())).get(), highest + 1);
  std::set<int> kept = {socket, self};
  for (std::size_t i = 0; i < order.targets.size(); ++i) {
    plan.moves.emplace_back(lifted_number(state_->descriptors[i].get(), highest + 1), order.targets[i]);
    kept.insert(order.targets[i]);
  }
  plan.closings = all_but(kept);
  plan.parent = parent;
  if (::fchdir(state_->folder.get()) != 0) ::_exit(kNothingStarted);
  ::umask(static_cast<mode_t>(order.creation_mask));
  // Their descriptors are closed with the rest, and their numbers may be reused.
  static_cast<void>(state_->socket.release());
  static_cast<void>(state_->folder.release());
  for (auto& descriptor : state_->descriptors) static_cast<void>(descriptor.release());
  const ReservedHandlers reserved;
  apply_spawn_plan(plan);
  reserved.restore();
  ::clearenv();  // the old texts are overwritten; the caller sets new ones
  state_->show();
  const remote_status::StartedMessage message{.pid = ::getpid()};
  const std::string_view bytes(reinterpret_cast<const char*>(&message), sizeof message);
  if (!send_message(socket, bytes, {self})) ::_exit(kNothingStarted);
  ::close(socket);
  ::close(self);
}

TemplateServer::TemplateServer(int control) : control_(control) { static_cast<void>(start_area()); }

std::optional<std::string> TemplateServer::await_word(Deadline deadline) const {
  for (;;) {
    std::array<pollfd, 2> news = {pollfd{.fd = control_, .events = POLLIN, .revents = 0},
                                  pollfd{.fd = kTemplateApplication, .events = POLLIN, .revents = 0}};
    ::poll(news.data(), news.size(), deadline.poll_timeout());
    if (news[1].revents != 0) ::_exit(0);
    const auto message = receive_message(control_);
    if (!message && errno != EAGAIN) throw Error(Errc::peer_lost, "the application has closed this template");
    if (message && message->bytes == kWord && message->descriptors.size() == 1) {
      return contents_of(message->descriptors.front());
    }
    if (!message && deadline.has_passed()) return std::nullopt;
  }
}

void TemplateServer::say_ready(std::string_view notes) const {
  const auto text = fmt::format("ready\n{}", notes.substr(0, kMostMessageBytes / 2));
  static_cast<void>(send_message(control_, text, {}));
}

std::optional<TemplateOrderTaken> TemplateServer::take() const {
  auto message = receive_message(control_);
  if (!message) {
    if (errno == EAGAIN || errno == EMFILE || errno == ENFILE) return std::nullopt;
    throw Error(Errc::peer_lost, "the application has closed this template");
  }
  if (message->descriptors.size() < kFixedDescriptors) return std::nullopt;  // some were dropped: too many open files
  auto state = std::make_unique<TemplateOrderTaken::State>();
  state->socket = std::move(message->descriptors[1]);
  state->folder = std::move(message->descriptors[2]);
  for (std::size_t i = kFixedDescriptors; i < message->descriptors.size(); ++i) {
    state->descriptors.push_back(std::move(message->descriptors[i]));
  }
  state->order = order_from_bytes(contents_of(message->descriptors[0]));
  TemplateOrderTaken order(std::move(state));
  if (order.state_->descriptors.size() == order.state_->order.targets.size()) return order;
  order.refuse("the template has too many open files and lost descriptors of the order");
  return std::nullopt;
}

}  // namespace drover::process
