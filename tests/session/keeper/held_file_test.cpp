// Objects with a file in real sessions: how it is shared, how long it lives, and what happens when a process dies.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/event.hpp"
#include "drover/session/session.hpp"
#include "session/client/session_helpers.hpp"
#include "session/client/session_state.hpp"
#include "session/keeper/keeper_thread.hpp"
#include "session/wire/process_identity.hpp"
#include "support/build.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/peer_group.hpp"
#include "support/slab_spec.hpp"

namespace drover::session {
namespace {

using namespace std::chrono_literals;
using test::accept_session;
using test::eventually;
using test::FaultSeam;
using test::KeeperThread;
using test::PeerGroup;
using test::PeerMode;
using test::send_invitation;
using test::slab_spec;
using Kind = test::PeerOutcome::Kind;

constexpr test::PeerShape kOne{.mode = PeerMode::processes, .size = 1};
constexpr std::chrono::milliseconds kPatience{20000};
constexpr std::size_t kBytes = 4096;
constexpr ObjectSpec kEventSpec{.kind = ObjectKind::event, .parameters = {}};

// A file with one distinctive byte.
Fd marked_file(const std::string& label, int mark) {
  Fd file = make_memory_file(label, kBytes);
  Mapping::shared(file, kBytes).bytes()[11] = static_cast<std::byte>(mark);
  return file;
}

int mark_of(const Fd& file) { return static_cast<int>(Mapping::shared(file, kBytes).bytes()[11]); }

// How many descriptors of memory files with this label a process has.
std::size_t count_held(pid_t pid, const std::string& label) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid))) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.find("memfd:" + label) != std::string::npos) ++count;
  }
  return count;
}

std::shared_ptr<Membership> membership_of(const Session& session) { return session; }

void expect_killed(PeerGroup& group) {
  for (const auto& outcome : group.wait(Deadline::never())) EXPECT_EQ(outcome.kind, Kind::abandoned) << outcome.text;
}

TEST(HeldFile, is_held_by_the_keeper_until_the_last_closing) {
  const Session session = Session::start();
  const auto self = membership_of(session);
  Fd file = marked_file("held slab", 5);
  const OpenObject made = self->create(slab_spec(kBytes), file);
  file.reset();
  EXPECT_EQ(count_held(session.keeper_pid(), "held slab"), 1U);
  const Fd got = self->file_of(made.handle);
  EXPECT_EQ(mark_of(got), 5);
  EXPECT_EQ(::fcntl(got.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  static_cast<void>(self->open(made.handle));
  self->close(made.handle);
  EXPECT_EQ(mark_of(self->file_of(made.handle)), 5) << "one of two openings was closed";
  self->close(made.handle);
  test::expect_error(Errc::not_found, [&] { static_cast<void>(self->file_of(made.handle)); },
                     {made.handle.to_string(), "does not exist"});
  EXPECT_EQ(count_held(session.keeper_pid(), "held slab"), 0U);
  EXPECT_EQ(mark_of(got), 5) << "a descriptor keeps the bytes";
}

TEST(HeldFile, wrong_use_is_an_error) {
  const Session session = Session::start();
  const auto self = membership_of(session);
  const Fd file = marked_file("wrong", 1);
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(self->create(slab_spec(kBytes), Fd{})); },
                     {"empty descriptor"});
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(self->create(slab_spec(kBytes))); },
                     {"without a file"});
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(self->create(kEventSpec, file)); },
                     {"with a file"});
  const Event event(session);
  test::expect_error(Errc::not_found, [&] { static_cast<void>(self->file_of(event.handle())); }, {"has no file"});
  EXPECT_EQ(count_held(session.keeper_pid(), "wrong"), 0U);
}

TEST(HeldFile, files_of_objects_count_as_slabs_of_the_session) {
  const test::OwnRuntimeFolder folder;
  Session session = Session::open("counted");
  const auto self = membership_of(session);
  const Fd file = marked_file("counted", 1);
  static_cast<void>(session.deposit(file, "weights", 100));
  const OpenObject made = self->create(slab_spec(kBytes), file);
  SessionInfo info = describe_session("counted");
  EXPECT_EQ(info.slab_count, 2U);
  EXPECT_EQ(info.slab_bytes, kBytes + 100);
  EXPECT_EQ(info.slabs.size(), 1U) << "those that have a number";
  self->close(made.handle);
  info = describe_session("counted");
  EXPECT_EQ(info.slab_count, 1U);
  EXPECT_EQ(info.slab_bytes, 100U);
  session.end();
}

DROVER_PEER_BODY(makes_a_slab_and_dies) {
  const Session session = accept_session(peer);
  const auto self = membership_of(session);
  const OpenObject made = self->create(slab_spec(kBytes), marked_file("inherited slab", 66));
  peer.channel().send(made.handle.to_string());
  peer.reach("made");
}

TEST(HeldFileCrash, file_outlives_its_killed_maker_while_the_object_is_open) {
  Session session = Session::start();
  const auto self = membership_of(session);
  PeerGroup group("makes_a_slab_and_dies", kOne);
  group.hold_at(0, "made");
  group.start();
  send_invitation(group.channel(0), session);
  const ObjectHandle handle = ObjectHandle::parse(group.receive_text(0));
  static_cast<void>(self->open(handle));
  group.wait_until_held(0, "made");
  group.kill(0);
  expect_killed(group);
  ASSERT_TRUE(eventually([&] { return session.population().departed == 1; }));
  EXPECT_EQ(mark_of(self->file_of(handle)), 66);
  self->close(handle);
  EXPECT_TRUE(eventually([&] { return count_held(session.keeper_pid(), "inherited slab") == 0; }));
}

TEST(HeldFileCrash, file_goes_with_its_killed_maker_if_the_object_is_not_open) {
  Session session = Session::start();
  PeerGroup group("makes_a_slab_and_dies", kOne);
  group.kill_at(0, "made");
  group.start();
  send_invitation(group.channel(0), session);
  const ObjectHandle handle = ObjectHandle::parse(group.receive_text(0));
  expect_killed(group);
  EXPECT_TRUE(eventually([&] { return count_held(session.keeper_pid(), "inherited slab") == 0; }));
  test::expect_error(Errc::not_found, [&] { static_cast<void>(membership_of(session)->open(handle)); });
}

DROVER_PEER_BODY(dies_while_it_makes_slabs) {
  ChannelMessage message;
  ASSERT_EQ(peer.channel().receive(message, Deadline::never()), ReceiveResult::message);
  Channel keeper(std::move(message.fds.at(0)));
  Request request{.type = RequestType::join, .sequence = 1, .name = "maker"};
  request.number = process_start_time(::getpid()).value();
  keeper.send(encode(request));
  const Fd file = marked_file("on its way", 1);
  for (int i = 0; i < 20; ++i) {
    keeper.send(encode(Request{.type = RequestType::create, .spec = slab_spec(kBytes)}), std::array{file.get()});
  }
  peer.reach("asked");
}

// The keeper may hear of the death before, between or after the requests that still lie in the socket.
TEST(HeldFileCrash, maker_killed_while_the_request_is_on_its_way_leaves_no_file) {
  const test::OwnRuntimeFolder folder;
  Session session = Session::open("on-its-way");
  for (int round = 0; round < 5; ++round) {
    const bool is_stopped = round % 2 == 1;  // then all of them lie there when the keeper hears of the death
    PeerGroup group("dies_while_it_makes_slabs", kOne);
    group.kill_at(0, "asked");
    group.start();
    Fd invitation = session.invite("maker");
    if (is_stopped) {
      ASSERT_EQ(::kill(session.keeper_pid(), SIGSTOP), 0);
    }
    group.channel(0).send("come", std::array{invitation.get()});
    expect_killed(group);
    ASSERT_EQ(::kill(session.keeper_pid(), SIGCONT), 0);
    invitation.reset();
    EXPECT_TRUE(eventually([&] {
      const auto population = session.population();
      return population.starting == 0 && population.present == 1 &&
             count_held(session.keeper_pid(), "on its way") == 0;
    }));
    const SessionInfo info = describe_session("on-its-way");
    EXPECT_EQ(info.objects, 0U);
    EXPECT_EQ(info.slab_count, 0U);
  }
  session.end();
}

TEST(HeldFileCrash, killed_keeper_is_an_error_and_descriptors_stay_good) {
  const Session session = Session::start();
  const auto self = membership_of(session);
  const OpenObject made = self->create(slab_spec(kBytes), marked_file("orphan", 7));
  const Fd got = self->file_of(made.handle);
  ASSERT_EQ(::kill(session.keeper_pid(), SIGKILL), 0);
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(self->file_of(made.handle)); });
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(self->create(slab_spec(kBytes), got)); });
  EXPECT_EQ(mark_of(got), 7);
}

// What comes too late is closed before the next request, and its file goes with it.
TEST(HeldFileCrash, slab_made_by_a_keeper_that_was_stopped_too_long_does_not_stay) {
  const Session session = Session::start({.patience = 2s});
  const auto self = membership_of(session);
  const Fd file = marked_file("too late", 1);
  ASSERT_EQ(::kill(session.keeper_pid(), SIGSTOP), 0);
  test::expect_error(Errc::timed_out, [&] { static_cast<void>(self->create(slab_spec(kBytes), file)); });
  ASSERT_EQ(::kill(session.keeper_pid(), SIGCONT), 0);
  EXPECT_TRUE(eventually([&] {
    try {
      const Event event(session);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::timed_out);
      return false;
    }
  }));
  EXPECT_TRUE(eventually([&] { return count_held(session.keeper_pid(), "too late") == 0; }));
}

// Participants that speak to the keeper as they like, and one that shows that it lives.
class HeldFileRequests : public ::testing::Test {
 protected:
  HeldFileRequests() {
    channel_.send(encode(Request{.type = RequestType::join,
                                 .sequence = 1,
                                 .number = process_start_time(::getpid()).value_or(0),
                                 .name = "raw"}));
    EXPECT_FALSE(receive().failure);
  }
  [[nodiscard]] Reply receive() {
    EXPECT_EQ(channel_.receive(message_, Deadline::after(20s)), ReceiveResult::message);
    return parse_reply(std::as_bytes(std::span(message_.bytes.data(), message_.bytes.size())));
  }
  [[nodiscard]] Reply ask(const Request& request, std::size_t files) {
    const std::vector<int> fds(files, file_.get());
    channel_.send(encode(request), fds);
    return receive();
  }
  [[nodiscard]] SessionCounts counts() { return host_->ask({.type = RequestType::describe}).reply.counts; }

  test::OwnRuntimeFolder folder_;
  KeeperThread keeper_{KeeperSettings{.name = "raw", .idle_limit = 3600s}};
  std::shared_ptr<SessionState> host_ = std::make_shared<SessionState>(keeper_.connect(), "host", kPatience);
  Channel channel_{keeper_.connect()};
  ChannelMessage message_;
  Fd file_ = marked_file("raw", 9);
};

TEST_F(HeldFileRequests, create_with_the_wrong_number_of_descriptors_is_refused) {
  const test::CapturedLog log;
  const Request slab{.type = RequestType::create, .spec = slab_spec(kBytes)};
  const Request event{.type = RequestType::create, .spec = kEventSpec};
  EXPECT_EQ(ask(slab, 0).failure, Errc::invalid_argument);
  EXPECT_EQ(ask(event, 1).failure, Errc::invalid_argument);
  for (const std::size_t many : {2U, 3U, 50U}) {
    const Reply refused = ask(slab, many);
    EXPECT_EQ(refused.failure, Errc::corrupt) << many << " descriptors";
    EXPECT_NE(refused.text.find("file of a slab came with"), std::string::npos) << refused.text;
  }
  EXPECT_EQ(ask(event, 2).failure, Errc::corrupt);
  EXPECT_EQ(counts().objects, 0U);
  EXPECT_EQ(count_held(::getpid(), "raw"), 1U) << "our own";
  EXPECT_FALSE(ask(slab, 1).failure) << "and it still is listened to";
}

// Closing it would block the keeper while its peer does not read.
TEST_F(HeldFileRequests, socket_that_lingers_is_refused_and_closed_at_once) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  ASSERT_EQ(::bind(listener.get(), plain, length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), plain, &length), 0);
  Fd lingering(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(lingering.get(), plain, length), 0);
  const linger long_time{.l_onoff = 1, .l_linger = 1000};
  ASSERT_EQ(::setsockopt(lingering.get(), SOL_SOCKET, SO_LINGER, &long_time, sizeof(long_time)), 0);
  const std::string much(1 << 16, 'x');
  while (::send(lingering.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
  const int number = lingering.get();
  channel_.send(encode({.type = RequestType::deposit, .number = 1, .name = "lump"}), {&number, 1});
  EXPECT_EQ(receive().failure, Errc::invalid_argument);
  linger now{};
  length = sizeof(now);
  ASSERT_EQ(::getsockopt(number, SOL_SOCKET, SO_LINGER, &now, &length), 0);
  EXPECT_EQ(now.l_onoff, 0) << "whoever closes it last does not wait";
}

TEST_F(HeldFileRequests, file_comes_only_for_an_object_that_is_open) {
  const OpenObject made = host_->create(slab_spec(kBytes), file_);
  Request request{.type = RequestType::file, .handle = made.handle};
  EXPECT_EQ(ask(request, 0).failure, Errc::invalid_argument) << "it is the host's";
  EXPECT_TRUE(message_.fds.empty());
  EXPECT_FALSE(ask({.type = RequestType::open, .handle = made.handle}, 0).failure);
  EXPECT_FALSE(ask(request, 0).failure);
  ASSERT_EQ(message_.fds.size(), 1U);
  EXPECT_EQ(mark_of(message_.fds[0]), 9);
  request.handle.generation += 1;
  EXPECT_EQ(ask(request, 0).failure, Errc::not_found);
  EXPECT_EQ(counts().slabs, 1U);
  EXPECT_EQ(counts().slab_bytes, kBytes);
}

TEST_F(HeldFileRequests, visitors_may_not) {
  const test::CapturedLog log;
  const OpenObject made = host_->create(slab_spec(kBytes), file_);
  for (const auto type : {RequestType::file, RequestType::create}) {
    channel_ = Channel(keeper_.connect());
    const Reply refused = ask({.type = type, .spec = slab_spec(kBytes), .handle = made.handle}, 1);
    EXPECT_EQ(refused.failure, Errc::corrupt);
    EXPECT_EQ(channel_.receive(message_, Deadline::after(20s)), ReceiveResult::peer_lost);
  }
  EXPECT_EQ(counts().slabs, 1U);
}

TEST_F(HeldFileRequests, descriptor_that_cannot_be_sent_is_an_error_and_nothing_stays_done) {
  const auto expect_refused = [&](int nth, const std::function<void()>& action) {
    const FaultSeam fail("sendmsg", ETOOMANYREFS, {.nth = nth, .times = 1});
    test::expect_error(Errc::limit_reached, action, {"ulimit -n"});
  };
  const auto create = [&] { static_cast<void>(host_->create(slab_spec(kBytes), file_)); };
  expect_refused(1, create);  // the request, with the file
  expect_refused(2, create);  // the reply, with the memory file
  EXPECT_EQ(counts().slabs, 0U);
  const OpenObject made = host_->create(slab_spec(kBytes), file_);
  expect_refused(2, [&] { static_cast<void>(host_->file_of(made.handle)); });
  EXPECT_EQ(mark_of(host_->file_of(made.handle)), 9);
}

TEST_F(HeldFileRequests, keeper_without_memory_for_the_object_closes_its_file) {
  for (const char* const call : {"memfd_create", "mmap"}) {
    const FaultSeam fail(call, ENOMEM);
    test::expect_error(Errc::out_of_memory, [&] { static_cast<void>(host_->create(slab_spec(kBytes), file_)); });
  }
  EXPECT_EQ(counts().slabs, 0U);
  EXPECT_EQ(count_held(::getpid(), "raw"), 1U) << "our own";
}

DROVER_PEER_BODY(takes_files_without_descriptors) {
  std::string text;
  const Session session = accept_session(peer, &text);
  const auto self = membership_of(session);
  const ObjectHandle handle = ObjectHandle::parse(text);
  const Fd file = marked_file("unreceived", 1);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(Fd(::dup(0)).get());  // the lowest that is free
  ::setrlimit(RLIMIT_NOFILE, &tight);
  test::expect_error(Errc::limit_reached, [&] { static_cast<void>(self->create(slab_spec(kBytes), file)); },
                     {"too many open files", "ulimit -n"});
  ::setrlimit(RLIMIT_NOFILE, &before);
  static_cast<void>(self->open(handle));
  ::setrlimit(RLIMIT_NOFILE, &tight);
  test::expect_error(Errc::limit_reached, [&] { static_cast<void>(self->file_of(handle)); }, {"ulimit -n"});
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(mark_of(self->file_of(handle)), 8);
  EXPECT_TRUE(eventually([&] { return count_held(session.keeper_pid(), "unreceived") == 0; }));
}

TEST(HeldFileLimits, participant_with_too_many_open_files_gets_an_error_and_leaves_nothing) {
  if (test::kIsAddressSanitized) GTEST_SKIP() << "the undefined-behaviour sanitizer needs descriptors of its own";
  Session session = Session::start();
  const OpenObject made = membership_of(session)->create(slab_spec(kBytes), marked_file("wanted", 8));
  PeerGroup group("takes_files_without_descriptors", kOne);
  group.start();
  send_invitation(group.channel(0), session, made.handle.to_string());
  group.expect_success();
  membership_of(session)->close(made.handle);
}

// The keeper inherits the hard limit and may not raise it.
DROVER_PEER_BODY(fills_the_keeper_with_slabs) {
  constexpr rlim_t kLow = 40;
  const rlimit limit{.rlim_cur = kLow, .rlim_max = kLow};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  const Session session = Session::start();
  const auto self = membership_of(session);
  const Fd file = marked_file("many", 4);
  std::vector<ObjectHandle> slabs;
  const auto create = [&] { slabs.push_back(self->create(slab_spec(kBytes), file).handle); };
  try {
    while (slabs.size() < kLow) create();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::limit_reached) << error.what();
    EXPECT_NE(error.message().find(fmt::format("the keeper (process {})", session.keeper_pid())), std::string::npos)
        << error.what();
  }
  ASSERT_GT(slabs.size(), 10U);
  ASSERT_LT(slabs.size(), kLow);
  EXPECT_EQ(mark_of(self->file_of(slabs.front())), 4) << "what it has it still gives";
  self->close(slabs.front());
  EXPECT_NO_THROW(create());
  for (std::size_t i = 1; i < slabs.size(); ++i) self->close(slabs[i]);
}

TEST(HeldFileLimits, keeper_with_too_many_open_files_gives_an_error_and_works_on) {
  if (test::kIsAddressSanitized) GTEST_SKIP() << "the undefined-behaviour sanitizer needs descriptors of its own";
  PeerGroup group("fills_the_keeper_with_slabs", kOne);
  group.start();
  group.expect_success();
}

}  // namespace
}  // namespace drover::session
