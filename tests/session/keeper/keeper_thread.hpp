// tests/session/keeper/keeper_thread.hpp: a keeper in a thread of the test, so that its calls can be made to fail.
#pragma once

#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "drover/base/fd.hpp"
#include "drover/ipc/channel.hpp"
#include "session/client/keeper_link.hpp"
#include "session/keeper/keeper.hpp"
#include "session/wire/protocol.hpp"
#include "session/wire/session_folder.hpp"

namespace drover::test {

/// Keeps a session as long as it lives, at most. Everybody in it is a part of the test's process. So workers must
/// have left before it ends: they would be killed, and the test with them.
class KeeperThread {
 public:
  explicit KeeperThread(const session::KeeperSettings& settings = {})
      : KeeperThread(settings, Channel::make_pair()) {}
  ~KeeperThread() {
    connection_.reset();
    starter_ = Channel(Fd{});
    if (!thread_.joinable()) return;  // it has ended by itself
    if (!name_.empty())
      session::KeeperLink(connect(), kPatience).ask({.type = session::RequestType::end, .number = 1});
    thread_.join();
  }
  KeeperThread(const KeeperThread&) = delete;
  KeeperThread& operator=(const KeeperThread&) = delete;

  /// The application's end, to join with; once.
  [[nodiscard]] Fd take_connection() { return std::move(connection_); }
  /// A visitor's connection to a named one.
  [[nodiscard]] Fd connect() const { return session::SessionFolder::open().connect(name_).value(); }
  /// As an application that has joined, or gives up.
  void close_starter() { starter_ = Channel(Fd{}); }
  /// Waits until the keeper has ended by itself.
  void join() { thread_.join(); }

 private:
  KeeperThread(const session::KeeperSettings& settings, std::pair<Channel, Channel> ends)
      : name_(settings.name),
        starter_(std::move(ends.first)),
        keeper_(settings, Fd(::dup(ends.second.fd()))),
        thread_([this] { keeper_.run(); }) {
    ends.second = Channel(Fd{});
    ChannelMessage hello;
    if (starter_.receive(hello, Deadline::never()) == ReceiveResult::message && !hello.fds.empty()) {
      connection_ = std::move(hello.fds.front());
    }
  }

  static constexpr std::chrono::milliseconds kPatience{20000};

  std::string name_;
  Channel starter_;
  Fd connection_;
  session::Keeper keeper_;
  std::thread thread_;
};

}  // namespace drover::test
