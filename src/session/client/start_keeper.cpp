#include "session/client/start_keeper.hpp"

#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/config.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "process/spawn/init_state.hpp"
#include "session/keeper/keeper_arguments.hpp"
#include "session/wire/protocol.hpp"

namespace drover::session {
namespace {

constexpr const char* kKeeperVariable = "DROVER_KEEPER";

std::string keeper_program() {
  if (const auto program = environment_path(kKeeperVariable)) {
    if (program->find('/') != std::string::npos) return *program;
    throw Error(Errc::invalid_argument, fmt::format("{}={} is not a path", kKeeperVariable, *program),
                "give the path of the program, such as /usr/local/bin/drover; PATH is not searched");
  }
  if (!process::was_initialised()) {
    throw Error(Errc::invalid_argument,
                "cannot start a session: this program would be its keeper but has not called drover::init",
                "call drover::init(argc, argv) first in main, or set DROVER_KEEPER to the path of the drover tool");
  }
  return process::start_command().keeper;
}

SpawnOptions keeper_options(const KeeperArguments& arguments, const Channel& theirs) {
  SpawnOptions options;
  options.executable = keeper_program();
  options.arguments = to_arguments(arguments);
  options.inherit = {{theirs.fd(), kKeeperChannel}};
  options.unset = {"DROVER_SESSION_FD", kMarkVariable};  // the keeper is not a participant or a worker
  options.placement.folder = "/";                        // so that it keeps no file system busy
  options.streams.input = StandardStream::null();
  options.streams.output = StandardStream::null();
  options.group = ChildGroup::own_session;  // Ctrl-C goes to the application, whose end the keeper notices
  return options;
}

struct Hello {
  Reply reply;
  Fd file;
};

Hello receive_hello(Channel& channel, const std::string& program, Deadline deadline) {
  ChannelMessage message;
  switch (channel.receive(message, deadline)) {
    case ReceiveResult::timed_out:
      throw Error(Errc::timed_out, fmt::format("'{}' did not become the keeper of a session in time", program),
                  "call drover::init(argc, argv) first in its main; a slow machine needs more time "
                  "(SessionOptions::patience)");
    case ReceiveResult::peer_lost:
      throw Error(Errc::peer_lost, fmt::format("'{}' ended before it became the keeper of a session", program),
                  "call drover::init(argc, argv) first in its main; see its standard error");
    case ReceiveResult::message: break;
  }
  Hello hello{.reply = parse_reply(std::as_bytes(std::span(message.bytes.data(), message.bytes.size()))), .file = {}};
  if (!message.fds.empty()) hello.file = std::move(message.fds.front());
  return hello;
}

// Ignores its exit status, which is unknown in a program that ignores SIGCHLD or reaps all children.
void await_launcher(ChildProcess& launcher, Deadline deadline) {
  try {
    static_cast<void>(launcher.wait(deadline));
  } catch (const Error& error) {
    log(LogLevel::info, error.what());
  }
}

}  // namespace

StartedKeeper start_keeper(Deadline deadline) {
  auto [ours, theirs] = Channel::make_pair();
  const SpawnOptions options = keeper_options({}, theirs);
  ChildProcess process = ChildProcess::spawn(options);
  theirs = Channel(Fd{});
  Hello hello = receive_hello(ours, options.executable, deadline);
  if (hello.reply.failure) throw Error(*hello.reply.failure, hello.reply.text, hello.reply.remedy);
  if (!hello.file.is_open()) throw Error(Errc::corrupt, "the keeper sent no connection for the application");
  return {.process = std::move(process), .connection = std::move(hello.file), .starter = std::move(ours)};
}

NamedStart start_named_keeper(const KeeperSettings& settings, Deadline deadline) {
  auto [ours, theirs] = Channel::make_pair();
  const SpawnOptions options = keeper_options({.settings = settings, .is_launcher = true}, theirs);
  ChildProcess launcher = ChildProcess::spawn(options);
  theirs = Channel(Fd{});
  const Hello hello = receive_hello(ours, options.executable, deadline);
  await_launcher(launcher, deadline);
  if (!hello.reply.failure) return NamedStart::started;
  if (*hello.reply.failure == Errc::busy) return NamedStart::taken;
  throw Error(*hello.reply.failure, hello.reply.text, hello.reply.remedy);
}

}  // namespace drover::session
