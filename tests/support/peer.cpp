#include "support/peer.hpp"

#include <unistd.h>

#include <csignal>
#include <ostream>
#include <stdexcept>

#include <fmt/format.h>

#include "support/peer_control.hpp"

namespace drover::test {
namespace {

std::map<std::string, PeerBody>& bodies() {
  static std::map<std::string, PeerBody> registered;
  return registered;
}

}  // namespace

std::string to_string(PeerMode mode) { return mode == PeerMode::threads ? "threads" : "processes"; }

void PrintTo(PeerMode mode, std::ostream* out) { *out << to_string(mode); }

const std::string& Peer::parameter(const std::string& name) const {
  const auto found = plan_.parameters.find(name);
  if (found == plan_.parameters.end()) throw std::out_of_range("the test passed no parameter '" + name + "'");
  return found->second;
}

std::string Peer::receive_text() {
  ChannelMessage message;
  if (channel_.receive(message, Deadline::never()) != ReceiveResult::message) {
    throw std::runtime_error(fmt::format("peer {} waited for a message, but the test closed the channel", rank()));
  }
  return message.bytes;
}

void Peer::reach(std::string_view point) {
  if (plan_.kill_at.contains(point)) die();
  if (!plan_.hold_at.contains(point)) return;
  control_.send(std::string(kHeldPrefix).append(point));
  ChannelMessage answer;
  const auto result = control_.receive(answer, Deadline::never());
  if (result != ReceiveResult::message || answer.bytes != kGoOn) die();
}

void Peer::report_failure(std::string_view text) noexcept {
  try {
    control_.send(std::string(kFailedPrefix).append(text.substr(0, Channel::kMaxBytes / 2)));
  } catch (const std::exception& error) {
    fmt::print(stderr, "peer {} cannot report its failure: {}\n", rank(), error.what());
  }
}

void Peer::die() const {
  if (mode() == PeerMode::threads) throw PeerAbandoned{};
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

bool register_peer_body(const char* name, PeerBody body) {
  if (!bodies().emplace(name, body).second) throw std::logic_error(fmt::format("two peer bodies are named {}", name));
  return true;
}

PeerBody find_peer_body(const std::string& name) {
  if (const auto found = bodies().find(name); found != bodies().end()) return found->second;
  std::string known;
  for (const auto& [each, body] : bodies()) known += " " + each;
  throw std::invalid_argument(fmt::format("no peer body is named '{}'; known names:{}", name, known));
}

}  // namespace drover::test
