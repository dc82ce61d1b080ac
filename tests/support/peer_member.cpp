#include "support/peer_member.hpp"

#include <csignal>
#include <exception>
#include <future>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#include "drover/process/child_process.hpp"
#include "support/peer_control.hpp"
#include "support/peer_main.hpp"

namespace drover::test {
namespace {

using Kind = PeerOutcome::Kind;

PeerOutcome run_and_catch(Peer& peer, PeerBody body) {
  try {
    body(peer);
    return {.kind = Kind::success, .text = "returned"};
  } catch (const PeerAbandoned&) {
    return {.kind = Kind::abandoned, .text = "abandoned at a point"};
  } catch (const std::exception& error) {
    return {.kind = Kind::failed, .text = error.what()};
  } catch (...) {
    return {.kind = Kind::failed, .text = "an exception of an unknown type"};
  }
}

// Takes ownership of the peer, so that its channels are closed before its outcome is known, as with a process.
PeerOutcome run_in_thread(Peer&& started, PeerBody body) {
  Peer peer = std::move(started);
  return run_and_catch(peer, body);
}

class ThreadMember : public PeerMember {
 public:
  ThreadMember(Channel channel, Channel control, Peer peer, PeerBody body)
      : PeerMember(std::move(channel), std::move(control)) {
    std::packaged_task<PeerOutcome(Peer&&, PeerBody)> task(run_in_thread);
    outcome_ = task.get_future().share();
    thread_ = std::thread(std::move(task), std::move(peer), body);
  }
  ~ThreadMember() override {
    close_channels();
    thread_.join();
  }

  void kill() override {
    if (!is_held()) throw std::logic_error("a thread peer can be killed only while it is held at a point");
    close_channels();
  }
  [[nodiscard]] pid_t pid() const override { throw std::logic_error("a thread peer has no process id"); }
  [[nodiscard]] PeerOutcome wait(Deadline deadline) override {
    if (deadline.is_never()) return outcome_.get();
    const bool is_done = outcome_.wait_until(deadline.moment()) == std::future_status::ready;
    return is_done ? outcome_.get() : PeerOutcome{.kind = Kind::running, .text = "still running"};
  }

 private:
  std::shared_future<PeerOutcome> outcome_;
  std::thread thread_;
};

class ProcessMember : public PeerMember {
 public:
  ProcessMember(Channel channel, Channel control, ChildProcess child)
      : PeerMember(std::move(channel), std::move(control)), child_(std::move(child)) {}

  void kill() override { child_.kill(SIGKILL); }
  [[nodiscard]] pid_t pid() const override { return child_.pid(); }
  [[nodiscard]] PeerOutcome wait(Deadline deadline) override {
    const auto ended = child_.wait(deadline);
    if (!ended) return {.kind = Kind::running, .text = fmt::format("process {} is still running", child_.pid())};
    auto text = ended->to_string();
    if (const auto reported = failure_text(); !reported.empty()) text += ": " + reported;
    if (ended->is_success()) return {.kind = Kind::success, .text = std::move(text)};
    return {.kind = ended->signal() == SIGKILL ? Kind::abandoned : Kind::failed, .text = std::move(text)};
  }

 private:
  ChildProcess child_;
};

}  // namespace

std::optional<std::string> PeerMember::next_word(Deadline deadline) {
  if (control_.fd() < 0) return std::nullopt;
  ChannelMessage message;
  if (control_.receive(message, deadline) != ReceiveResult::message) return std::nullopt;
  if (message.bytes.starts_with(kFailedPrefix)) failure_ = message.bytes.substr(kFailedPrefix.size());
  is_held_ = message.bytes.starts_with(kHeldPrefix);
  return std::move(message.bytes);
}

void PeerMember::release() {
  if (!is_held_) throw std::logic_error("only a held peer can be released");
  is_held_ = false;
  control_.send(kGoOn);
}

std::string PeerMember::failure_text() {
  while (next_word(Deadline::after(std::chrono::seconds(0)))) continue;
  return failure_;
}

void PeerMember::close_channels() {
  channel_ = Channel(Fd{});
  control_ = Channel(Fd{});
}

std::unique_ptr<PeerMember> start_peer(const PeerPlan& plan) {
  auto [channel, peer_channel] = Channel::make_pair();
  auto [control, peer_control] = Channel::make_pair();
  if (plan.mode == PeerMode::threads) {
    return std::make_unique<ThreadMember>(std::move(channel), std::move(control),
                                          Peer(plan, std::move(peer_channel), std::move(peer_control)),
                                          find_peer_body(plan.body));
  }
  auto child =
      ChildProcess::spawn({.executable = own_executable(),
                           .arguments = peer_arguments(plan),
                           .environment = {},
                           .inherit = {{peer_channel.fd(), kPeerChannel}, {peer_control.fd(), kPeerControl}}});
  return std::make_unique<ProcessMember>(std::move(channel), std::move(control), std::move(child));
}

}  // namespace drover::test
