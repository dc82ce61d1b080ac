// tests/session/client/session_helpers.hpp: sessions in tests: how peers join, and waiting for what the keeper does.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/clock.hpp"
#include "drover/ipc/channel.hpp"
#include "drover/session/session.hpp"
#include "session/wire/process_identity.hpp"
#include "support/peer.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace drover::test {

/// Polls until `holds`; false after a generous time.
inline bool eventually(const std::function<bool()>& holds) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  while (!holds()) {
    if (deadline.has_passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Sends a peer an invitation and `text`.
inline void send_invitation(Channel& channel, Session& session, const std::string& text = "come",
                            const std::string& name = "peer") {
  const Fd end = session.invite(name);
  const int number = end.get();
  channel.send(text, {&number, 1});
}

/// In a process peer: joins by the invitation that the test sent, as a worker would; `text` is what came with it.
inline Session accept_session(Peer& peer, std::string* text = nullptr) {
  ChannelMessage message;
  if (peer.channel().receive(message, Deadline::never()) != ReceiveResult::message || message.fds.size() != 1) {
    throw std::runtime_error("the test sent no invitation");
  }
  if (text != nullptr) *text = message.bytes;
  ::setenv("DROVER_SESSION_FD", std::to_string(message.fds.front().release()).c_str(), 1);
  return Session::inherited();
}

/// Whether the process exists and is not a zombie.
inline bool is_running(pid_t pid) {
  const auto path = fmt::format("/proc/{}/stat", pid);
  FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return false;
  std::string text(512, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  static_cast<void>(std::fclose(file));
  const auto end = text.rfind(") ");
  return end != std::string::npos && text.at(end + 2) != 'Z' && text.at(end + 2) != 'X';
}

/// A directory of sessions for one test, seen by the keepers and peers that it starts.
class OwnRuntimeFolder {
 public:
  /// The directory itself.
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "drover"; }
  /// Whether no session has left anything.
  [[nodiscard]] bool is_empty() const {
    return !std::filesystem::exists(path()) || std::filesystem::is_empty(path());
  }

 private:
  TemporaryFolder folder_;
  ScopedEnvironment variable_{"XDG_RUNTIME_DIR", folder_.path().string()};
};

}  // namespace drover::test
