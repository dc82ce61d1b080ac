#include "support/peer_main.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <exception>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/peer_control.hpp"
#include "support/runner.hpp"

namespace drover::test {
namespace {

constexpr std::string_view kPeerRole = "--drover-peer";

struct PeerStart {
  PeerPlan plan;
  pid_t parent = 0;
};

std::pair<std::string, std::string> split(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos) throw std::invalid_argument(fmt::format("peer argument '{}'", text));
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

void take_argument(PeerStart& start, std::string_view argument) {
  auto [key, value] = split(argument);
  PeerPlan& plan = start.plan;
  if (key == "body")
    plan.body = value;
  else if (key == "rank")
    plan.rank = std::stoi(value);
  else if (key == "size")
    plan.size = std::stoi(value);
  else if (key == "parent")
    start.parent = std::stoi(value);
  else if (key == "kill")
    plan.kill_at.insert(value);
  else if (key == "hold")
    plan.hold_at.insert(value);
  else if (key == "parameter")
    plan.parameters.insert(split(value));
  else
    throw std::invalid_argument("peer argument '" + key + "'");
}

PeerStart parse(std::span<char* const> arguments) {
  PeerStart start;
  for (const char* const argument : arguments.subspan(2)) take_argument(start, argument);
  return start;
}

// The channels must not leak into programs that the body starts.
Channel take_channel(int number) {
  ::fcntl(number, F_SETFD, FD_CLOEXEC);
  return Channel(Fd(number));
}

// The texts of all failed assertions. No test is running, so GoogleTest attributes them to the program.
std::string failed_assertions() {
  const auto& result = ::testing::UnitTest::GetInstance()->ad_hoc_test_result();
  std::string text;
  for (int i = 0; i < result.total_part_count(); ++i) {
    const auto& part = result.GetTestPartResult(i);
    if (!part.failed()) continue;
    const char* const file = part.file_name() == nullptr ? "unknown file" : part.file_name();
    text += fmt::format("{}:{}: {}\n", file, part.line_number(), part.message());
  }
  return text;
}

std::string run_body(Peer& peer, PeerBody body) {
  try {
    body(peer);
    return failed_assertions();
  } catch (const std::exception& error) {
    return failed_assertions() + error.what();
  }
}

}  // namespace

std::vector<std::string> peer_arguments(const PeerPlan& plan) {
  std::vector<std::string> arguments = {std::string(kPeerRole), "body=" + plan.body,
                                        fmt::format("rank={}", plan.rank), fmt::format("size={}", plan.size),
                                        fmt::format("parent={}", ::getpid())};
  for (const auto& point : plan.kill_at) arguments.push_back("kill=" + point);
  for (const auto& point : plan.hold_at) arguments.push_back("hold=" + point);
  for (const auto& [name, value] : plan.parameters) arguments.push_back(fmt::format("parameter={}={}", name, value));
  return arguments;
}

bool is_peer(std::span<char* const> arguments) { return arguments.size() > 1 && arguments[1] == kPeerRole; }

int run_peer(std::span<char* const> arguments) {
  int argument_count = 1;
  ::testing::InitGoogleTest(&argument_count, const_cast<char**>(arguments.data()));  // NOLINT: only the name is read
  const PeerStart start = parse(arguments);
  die_with(start.parent);
  Peer peer(start.plan, take_channel(kPeerChannel), take_channel(kPeerControl));
  const auto failure = run_body(peer, find_peer_body(start.plan.body));
  if (failure.empty()) return 0;
  fmt::print(stderr, "peer {} of {}, body {}, failed: {}\n", peer.rank(), peer.size(), start.plan.body, failure);
  peer.report_failure(failure);
  return 1;
}

}  // namespace drover::test
