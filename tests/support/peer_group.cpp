#include "support/peer_group.hpp"

#include <array>
#include <exception>
#include <ostream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/peer_control.hpp"
#include "support/peer_member.hpp"

namespace drover::test {
namespace {

void require_rank(int rank, std::size_t size) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= size) {
    throw std::out_of_range(fmt::format("there is no peer {} in a group of {} started peers", rank, size));
  }
}

}  // namespace

std::vector<PeerShape> all_peer_shapes() {
  std::vector<PeerShape> shapes;
  for (const auto mode : {PeerMode::threads, PeerMode::processes}) {
    for (const int size : {1, 2, 3, 5, 8}) shapes.push_back({.mode = mode, .size = size});
  }
  return shapes;
}

std::string to_string(const PeerShape& shape) { return fmt::format("{}_{}", to_string(shape.mode), shape.size); }

void PrintTo(const PeerShape& shape, std::ostream* out) { *out << to_string(shape); }

void PrintTo(PeerOutcome::Kind kind, std::ostream* out) {
  constexpr std::array kNames = {"success", "failed", "abandoned", "running"};
  *out << kNames.at(static_cast<std::size_t>(kind));
}

PeerGroup::PeerGroup(const std::string& body, PeerShape shape, const std::map<std::string, std::string>& parameters) {
  if (shape.size < 1) throw std::invalid_argument("a group has at least one peer");
  static_cast<void>(find_peer_body(body));  // an unknown name is better refused here than in the peer
  for (int rank = 0; rank < shape.size; ++rank) {
    plans_.push_back({.body = body, .mode = shape.mode, .rank = rank, .size = shape.size, .parameters = parameters});
  }
}

PeerGroup::~PeerGroup() {
  if (members_.empty() || is_waited_for_) return;
  if (std::uncaught_exceptions() > 0 || ::testing::Test::HasFatalFailure()) return;
  ADD_FAILURE() << "a group of peers was started but never waited for; how its peers ended is unknown";
}

PeerMember& PeerGroup::member(int rank) const {
  require_rank(rank, members_.size());
  return *members_[static_cast<std::size_t>(rank)];
}

PeerPlan& PeerGroup::plan(int rank) {
  if (!members_.empty()) throw std::logic_error("points are planned before the peers are started");
  require_rank(rank, plans_.size());
  return plans_[static_cast<std::size_t>(rank)];
}

void PeerGroup::kill_at(int rank, std::string point) { plan(rank).kill_at.insert(std::move(point)); }
void PeerGroup::hold_at(int rank, std::string point) { plan(rank).hold_at.insert(std::move(point)); }

void PeerGroup::start() {
  if (!members_.empty()) throw std::logic_error("a group of peers is started once");
  for (const auto& each : plans_) members_.push_back(start_peer(each));
}

Channel& PeerGroup::channel(int rank) { return member(rank).channel(); }

std::string PeerGroup::receive_text(int rank) {
  ChannelMessage message;
  if (channel(rank).receive(message, Deadline::never()) == ReceiveResult::message) return message.bytes;
  const auto outcome = member(rank).wait(Deadline::never());
  throw std::runtime_error(fmt::format("peer {} ended before it sent a message: {}", rank, outcome.text));
}

pid_t PeerGroup::pid(int rank) const { return member(rank).pid(); }

void PeerGroup::wait_until_held(int rank, std::string_view point) {
  auto& peer = member(rank);
  const auto word = peer.next_word(Deadline::never());
  if (!word) {
    const auto outcome = peer.wait(Deadline::never());
    throw std::runtime_error(fmt::format("peer {} ended before point '{}': {}", rank, point, outcome.text));
  }
  if (*word != std::string(kHeldPrefix).append(point)) {
    throw std::runtime_error(fmt::format("peer {} was awaited at point '{}' but says: {}", rank, point, *word));
  }
}

void PeerGroup::release(int rank) { member(rank).release(); }
void PeerGroup::kill(int rank) { member(rank).kill(); }

std::vector<PeerOutcome> PeerGroup::wait(Deadline deadline) {
  is_waited_for_ = true;
  std::vector<PeerOutcome> outcomes;
  outcomes.reserve(members_.size());
  for (const auto& each : members_) outcomes.push_back(each->wait(deadline));
  return outcomes;
}

void PeerGroup::expect_success() {
  const auto outcomes = wait(Deadline::never());
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].kind, PeerOutcome::Kind::success)
        << "peer " << rank << " of " << outcomes.size() << ": " << outcomes[rank].text;
  }
}

}  // namespace drover::test
