// Too many open files on either side, and other users.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/channel.hpp"
#include "drover/ipc/event.hpp"
#include "drover/session/session.hpp"
#include "session/client/session_helpers.hpp"
#include "session/wire/protocol.hpp"
#include "support/build.hpp"
#include "support/expect_error.hpp"
#include "support/leftovers.hpp"
#include "support/peer_group.hpp"

namespace drover::session {
namespace {

using namespace std::chrono_literals;
using test::accept_session;
using test::kIsAddressSanitized;
using test::PeerGroup;
using test::PeerMode;

constexpr test::PeerShape kOneGuest{.mode = PeerMode::processes, .size = 1};
constexpr uid_t kNobodyUser = 65534;

// Leaves no descriptor free below the limit of this process.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit tight = before_;
    tight.rlim_cur = static_cast<rlim_t>(Fd(::dup(0)).get());  // the lowest that is free
    ::setrlimit(RLIMIT_NOFILE, &tight);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

DROVER_PEER_BODY(receiver_without_descriptors) {
  std::string text;
  Session session = accept_session(peer, &text);
  const ObjectHandle handle = ObjectHandle::parse(text.substr(0, text.find(' ')));
  const SlabId slab{std::stoull(text.substr(text.find(' ') + 1))};
  for (int round = 0; round < 3; ++round) {
    const NoDescriptors none;
    test::expect_error(Errc::limit_reached, [&] { const Event event(session, handle); }, {"ulimit -n"});
    test::expect_error(Errc::limit_reached, [&] { const Event event(session); }, {"too many open files"});
    test::expect_error(Errc::limit_reached, [&] { static_cast<void>(session.fetch(slab)); });
    test::expect_error(Errc::limit_reached, [&] { static_cast<void>(session.invite("nobody")); });
  }
  Event event(session, handle);
  event.set();
  EXPECT_TRUE(session.fetch(slab).is_open());
  EXPECT_TRUE(test::eventually([&] { return session.population().starting == 0; }));
  peer.channel().send("used");
  static_cast<void>(peer.receive_text());
}

TEST(SessionLimits, receiver_with_too_many_open_files_gets_an_error_and_loses_nothing) {
  if (kIsAddressSanitized) GTEST_SKIP() << "the undefined-behaviour sanitizer needs descriptors of its own";
  const test::OwnRuntimeFolder folder;
  Session session = Session::open("tight");
  Event event(session);
  const Fd file = make_memory_file("slab", 4096);
  const SlabId slab = session.deposit(file, "slab", 4096);
  PeerGroup group("receiver_without_descriptors", kOneGuest);
  group.start();
  test::send_invitation(group.channel(0), session,
                        event.handle().to_string() + " " + std::to_string(static_cast<std::uint64_t>(slab)));
  EXPECT_EQ(group.receive_text(0), "used");
  EXPECT_TRUE(event.is_set());
  EXPECT_EQ(describe_session("tight").objects, 1U) << "what could not be received was closed";
  group.channel(0).send("go");
  group.expect_success();
  session.end();
}

DROVER_PEER_BODY(joiner_without_descriptors) {
  ChannelMessage message;
  ASSERT_EQ(peer.channel().receive(message, Deadline::never()), ReceiveResult::message);
  ::setenv("DROVER_SESSION_FD", std::to_string(message.fds.at(0).release()).c_str(), 1);
  const NoDescriptors none;
  test::expect_error(Errc::limit_reached, [] { static_cast<void>(Session::inherited()); });
}

TEST(SessionLimits, process_that_cannot_join_gets_an_error_and_is_not_a_participant) {
  if (kIsAddressSanitized) GTEST_SKIP() << "the undefined-behaviour sanitizer needs descriptors of its own";
  Session session = Session::start();
  PeerGroup group("joiner_without_descriptors", kOneGuest);
  group.start();
  test::send_invitation(group.channel(0), session);
  group.expect_success();
  EXPECT_TRUE(test::eventually([&] { return session.population().starting == 0; }));
  EXPECT_TRUE(test::eventually([&] { return session.population().present == 1; }));
}

// The keeper inherits the hard limit and may not raise it.
DROVER_PEER_BODY(application_with_a_low_limit) {
  constexpr rlim_t kLow = 40;
  rlimit limit{.rlim_cur = kLow, .rlim_max = kLow};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  Session session = Session::start();
  const Fd file = make_memory_file("slab", 4096);
  std::vector<SlabId> slabs;
  try {
    for (;;) {
      ASSERT_LT(slabs.size(), kLow);
      slabs.push_back(session.deposit(file, "slab", 4096));
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::limit_reached) << error.what();
    EXPECT_NE(error.message().find("the keeper (process " + std::to_string(session.keeper_pid()) + ")"),
              std::string::npos)
        << error.what();
  }
  EXPECT_GT(slabs.size(), 10U);
  test::expect_error(Errc::limit_reached, [&] { const Event event(session); }, {"memfd_create"});
  test::expect_error(Errc::limit_reached, [&] { static_cast<void>(session.invite("x")); }, {"socketpair"});
  EXPECT_NO_THROW(session.check());
  EXPECT_TRUE(session.fetch(slabs.front()).is_open()) << "what it has it still gives";
  for (const SlabId slab : slabs) session.withdraw(slab);
  Event event(session);
  event.set();
  EXPECT_TRUE(event.is_set());
  EXPECT_TRUE(session.invite("x").is_open());
}

TEST(SessionLimits, keeper_with_too_many_open_files_gives_errors_and_works_on) {
  if (kIsAddressSanitized) GTEST_SKIP() << "the undefined-behaviour sanitizer needs descriptors of its own";
  PeerGroup group("application_with_a_low_limit", kOneGuest);
  group.start();
  group.expect_success();
}

DROVER_PEER_BODY(application_with_a_soft_limit) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_max = 200;
  limit.rlim_cur = 30;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  Session session = Session::start();
  const Fd file = make_memory_file("slab", 4096);
  for (int i = 0; i < 100; ++i) EXPECT_NO_THROW(static_cast<void>(session.deposit(file, "slab", 4096)));
}

TEST(SessionLimits, keeper_raises_its_limit_of_open_files) {
  PeerGroup group("application_with_a_soft_limit", kOneGuest);
  group.start();
  group.expect_success();
}

DROVER_PEER_BODY(guest_of_another_user) {
  ChannelMessage message;
  ASSERT_EQ(peer.channel().receive(message, Deadline::never()), ReceiveResult::message);
  ASSERT_EQ(::setresuid(kNobodyUser, kNobodyUser, kNobodyUser), 0);
  ::setenv("DROVER_SESSION_FD", std::to_string(message.fds.at(0).duplicate().release()).c_str(), 1);
  test::expect_error(Errc::permission_denied, [] { static_cast<void>(Session::inherited()); }, {"user 0", "65534"});
  // A program that is not drover does not check its own user; the keeper does.
  Channel keeper(std::move(message.fds.at(0)));
  keeper.send(encode(Request{.type = RequestType::describe, .sequence = 1}));
  ChannelMessage answer;
  ASSERT_EQ(keeper.receive(answer, Deadline::never()), ReceiveResult::message);
  const Reply reply = parse_reply(std::as_bytes(std::span(answer.bytes.data(), answer.bytes.size())));
  EXPECT_EQ(reply.failure, Errc::permission_denied);
  EXPECT_TRUE(answer.fds.empty());
  EXPECT_EQ(keeper.receive(answer, Deadline::never()), ReceiveResult::peer_lost);
}

TEST(SessionLimits, invitation_is_of_no_use_to_another_user) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const test::OwnRuntimeFolder folder;
  Session session = Session::open("mine");
  PeerGroup group("guest_of_another_user", kOneGuest);
  group.start();
  test::send_invitation(group.channel(0), session);
  group.expect_success();
  EXPECT_TRUE(test::eventually([&] { return session.population().starting == 0; }));
  EXPECT_EQ(session.participants().size(), 1U);
  session.end();
  // The keeper has logged the visitor, so its log file stays.
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "mine.log"));
}

DROVER_PEER_BODY(visitor_of_another_user) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = peer.parameter("path");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ASSERT_EQ(::setresuid(kNobodyUser, kNobodyUser, kNobodyUser), 0);
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const int connected = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  if (peer.parameter("can_connect") == "no") {
    EXPECT_NE(connected, 0) << "the directory keeps others out";
    return;
  }
  ASSERT_EQ(connected, 0);
  Channel keeper(std::move(socket));
  ChannelMessage answer;
  ASSERT_EQ(keeper.receive(answer, Deadline::never()), ReceiveResult::message);
  const Reply reply = parse_reply(std::as_bytes(std::span(answer.bytes.data(), answer.bytes.size())));
  EXPECT_EQ(reply.failure, Errc::permission_denied);
  EXPECT_NE(reply.text.find("user 65534"), std::string::npos);
  EXPECT_EQ(keeper.receive(answer, Deadline::never()), ReceiveResult::peer_lost);
}

TEST(SessionLimits, named_session_of_another_user_is_out_of_reach) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const test::OwnRuntimeFolder folder;
  Session session = Session::open("mine");
  const std::string path = folder.path() / "mine.sock";
  const auto visit = [&](const std::string& can_connect) {
    PeerGroup group("visitor_of_another_user", kOneGuest, {{"path", path}, {"can_connect", can_connect}});
    group.start();
    group.expect_success();
  };
  visit("no");
  // Even if the directory is opened to others, the keeper checks the user of each connection.
  ASSERT_EQ(::chmod(folder.path().parent_path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
  visit("yes");
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
  EXPECT_NO_THROW(session.check());
  session.end();
}

DROVER_PEER_BODY(application_with_small_files) {
  rlimit small{};
  ::getrlimit(RLIMIT_FSIZE, &small);
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  test::expect_error(Errc::limit_reached, [] { static_cast<void>(Session::start()); },
                     {"file size limit", "ulimit -f"});
}

TEST(SessionLimits, memory_file_above_the_limit_of_file_sizes_is_an_error_of_the_keeper) {
  PeerGroup group("application_with_small_files", kOneGuest);
  group.start();
  group.expect_success();
}

}  // namespace
}  // namespace drover::session
