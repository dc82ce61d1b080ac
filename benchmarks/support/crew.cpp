#include "support/crew.hpp"

#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::bench {
namespace {

// Descriptors in a worker, and the argument that makes a process a worker; the worker's number follows.
constexpr int kChannelFd = 3;
constexpr int kBoardFd = 4;
constexpr int kSessionFd = 5;
constexpr std::string_view kWorkerArgument = "--worker";
constexpr const char* kSessionVariable = "DROVER_SESSION_FD";
constexpr std::string_view kFailed = "failed: ";
// A step takes seconds at most, so a worker that is silent for so long hangs.
constexpr std::chrono::seconds kPatience{60};

}  // namespace

Post::Post(std::size_t number)
    : channel_(Fd(kChannelFd)),
      session_(Session::inherited()),
      memory_(Mapping::shared(Fd(kBoardFd), sizeof(Board))),
      board_(std::launder(reinterpret_cast<Board*>(memory_.data()))),
      number_(number) {
  require(number_ < kMostWorkers, "the number of a benchmark worker is missing or too large");
}

bool Post::receive(ChannelMessage& into) {
  return channel_.receive(into, Deadline::never()) == ReceiveResult::message;
}

void Post::expect(std::string_view text) {
  ChannelMessage message;
  if (!receive(message)) throw std::runtime_error("the conductor is gone");
  if (message.bytes != text)
    throw std::runtime_error(fmt::format("received '{}' instead of '{}'", message.bytes, text));
}

void Post::send(std::string_view text) { channel_.send(text); }

void work_if_worker(int argc, char** argv, const std::function<void(ChannelMessage& order, Post& post)>& handle) {
  if (argc != 3 || argv[1] != kWorkerArgument) return;
  Post post(std::stoul(argv[2]));
  try {
    ChannelMessage order;
    while (post.receive(order)) handle(order, post);
    std::exit(0);
  } catch (const std::exception& error) {
    try {
      post.send(std::string(kFailed) + error.what());
    } catch (const Error&) {
      fmt::print(stderr, "{}\n", error.what());  // the conductor is gone too
    }
    std::exit(1);
  }
}

Crew::Crew(const Session& session, std::size_t size) : session_(session) {
  require(size <= kMostWorkers, "the benchmark has too many workers");
  const Fd memory = make_memory_file("drover-bench-board", sizeof(Board));
  memory_ = Mapping::shared(memory, sizeof(Board));
  board_ = new (memory_.data()) Board{};  // NOLINT(cppcoreguidelines-prefer-member-initializer): after the memory
  for (std::size_t number = 0; number < size; ++number) members_.push_back(start(number, memory));
}

Crew::Member Crew::start(std::size_t number, const Fd& memory) {
  auto [ours, theirs] = Channel::make_pair();
  const auto name = fmt::format("bench {}", number);
  const Fd invitation = session_.invite(name);
  SpawnOptions options;
  options.executable = own_executable();
  options.arguments = {std::string(kWorkerArgument), std::to_string(number)};
  options.environment = {{kSessionVariable, std::to_string(kSessionFd)}};
  options.inherit = {{theirs.fd(), kChannelFd}, {memory.get(), kBoardFd}, {invitation.get(), kSessionFd}};
  options.parent_death_signal = SIGKILL;
  return {.process = ChildProcess::spawn(options), .channel = std::move(ours)};
}

void Crew::clear_board() noexcept {
  board_->signals.is_stopped.store(0);
  board_->signals.total.store(kUnknown);
  board_->samples.count.store(0);
  for (auto& progress : board_->progress) progress.count.store(0);
}

void Crew::send(std::size_t worker, std::string_view text, std::span<const int> fds) {
  members_.at(worker).channel.send(text, fds);
}

std::string Crew::receive(std::size_t worker) {
  Member& member = members_.at(worker);
  ChannelMessage message;
  switch (member.channel.receive(message, Deadline::after(kPatience))) {
    case ReceiveResult::message: break;
    case ReceiveResult::timed_out: throw std::runtime_error(fmt::format("worker {} does not answer", worker));
    case ReceiveResult::peer_lost: {
      const auto status = member.process.wait(Deadline::after(kPatience));
      throw std::runtime_error(fmt::format("worker {} {}", worker, status ? status->to_string() : "hangs"));
    }
  }
  if (message.bytes.starts_with(kFailed))
    throw std::runtime_error(fmt::format("worker {} {}", worker, message.bytes));
  return std::move(message.bytes);
}

void Crew::expect(std::size_t worker, std::string_view text) {
  const auto received = receive(worker);
  if (received != text)
    throw std::runtime_error(fmt::format("worker {} sent '{}' instead of '{}'", worker, received, text));
}

std::vector<double> Crew::samples() const {
  const auto count = board_->samples.count.load(std::memory_order_acquire);
  const auto& found = board_->samples.nanoseconds;
  return {found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace drover::bench
