// The table of deaths in docs/sessions.md, row by row.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/ipc/event.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/process/child_process.hpp"
#include "drover/session/session.hpp"
#include "process/inspect/process_table.hpp"
#include "session/client/keeper_link.hpp"
#include "session/client/session_helpers.hpp"
#include "session/client/start_keeper.hpp"
#include "session/wire/process_identity.hpp"
#include "support/expect_error.hpp"
#include "support/leftovers.hpp"
#include "support/peer_group.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace drover::session {
namespace {

using namespace std::chrono_literals;
using test::accept_session;
using test::eventually;
using test::is_running;
using test::PeerGroup;
using test::PeerMode;
using test::send_invitation;
using Kind = test::PeerOutcome::Kind;

constexpr test::PeerShape kOne{.mode = PeerMode::processes, .size = 1};

void expect_all(Kind kind, PeerGroup& group) {
  for (const auto& outcome : group.wait(Deadline::never())) EXPECT_EQ(outcome.kind, kind) << outcome.text;
}

// An application: starts a session, sends the keeper's pid and an invitation to the test.
DROVER_PEER_BODY(application) {
  Session session = Session::start();
  const Fd invitation = session.invite("worker");
  const int number = invitation.get();
  peer.channel().send(std::to_string(session.keeper_pid()), {&number, 1});
  peer.reach("session started");
  static_cast<void>(peer.receive_text());
}

// Joins by an invitation of another process, and stays until it is killed or the session ends.
DROVER_PEER_BODY(worker_that_waits) {
  const Session session = accept_session(peer);
  Event never(session);
  peer.channel().send("waiting");
  try {
    static_cast<void>(never.wait());
  } catch (const Error& error) {
    peer.channel().send(error.what());
  }
}

struct Running {
  PeerGroup application{"application", kOne};
  PeerGroup worker{"worker_that_waits", kOne};
  pid_t keeper = 0;

  void start() {
    application.hold_at(0, "session started");
    application.start();
    worker.start();
    ChannelMessage message;
    ASSERT_EQ(application.channel(0).receive(message, Deadline::never()), ReceiveResult::message);
    keeper = std::stoi(message.bytes);
    const int number = message.fds.at(0).get();
    worker.channel(0).send("come", {&number, 1});
    ASSERT_EQ(worker.receive_text(0), "waiting");
    application.wait_until_held(0, "session started");
  }
};

TEST(SessionCrash, killed_application_takes_keeper_and_workers_along) {
  Running running;
  running.start();
  running.application.kill(0);
  expect_all(Kind::abandoned, running.application);
  expect_all(Kind::abandoned, running.worker);
  EXPECT_TRUE(eventually([&] { return !is_running(running.keeper); }));
}

TEST(SessionCrash, application_that_leaves_takes_keeper_and_workers_along) {
  Running running;
  running.start();
  running.application.release(0);
  running.application.channel(0).send("leave");
  running.application.expect_success();
  expect_all(Kind::abandoned, running.worker);
  EXPECT_FALSE(is_running(running.keeper)) << "the application waits for it";
}

DROVER_PEER_BODY(application_that_does_not_join) {
  const StartedKeeper keeper = start_keeper(Deadline::never());
  peer.channel().send(std::to_string(keeper.process.pid()));
  peer.reach("keeper started");
}

TEST(SessionCrash, application_killed_before_it_joined_leaves_no_keeper) {
  PeerGroup group("application_that_does_not_join", kOne);
  group.kill_at(0, "keeper started");
  group.start();
  const pid_t keeper = std::stoi(group.receive_text(0));
  expect_all(Kind::abandoned, group);
  EXPECT_TRUE(eventually([&] { return !is_running(keeper); }));
}

DROVER_PEER_BODY(opener_that_does_not_join) {
  EXPECT_EQ(start_named_keeper({.name = "orphan", .idle_limit = 1s}, Deadline::never()), NamedStart::started);
  peer.reach("keeper started");
}

TEST(SessionCrash, named_session_whose_opener_was_killed_before_it_joined_ends_by_its_idle_limit) {
  const test::OwnRuntimeFolder folder;
  PeerGroup group("opener_that_does_not_join", kOne);
  group.kill_at(0, "keeper started");
  group.start();
  expect_all(Kind::abandoned, group);
  EXPECT_TRUE(eventually([] { return list_sessions().empty(); }));
  EXPECT_TRUE(folder.is_empty());
}

// The launcher continues without its starter.
TEST(SessionCrash, named_session_whose_opener_was_killed_while_the_launcher_ran_ends_by_its_idle_limit) {
  const test::OwnRuntimeFolder folder;
  const test::TemporaryFolder files;
  const std::string launcher = files.path() / "launcher";
  std::ofstream(launcher) << fmt::format(
      "#!/bin/sh\ntouch {0}/begun\nwhile [ ! -e {0}/go ]; do sleep 0.01; done\nexec {1} \"$@\"\n",
      files.path().string(), own_executable());
  std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
  const test::ScopedEnvironment keeper("DROVER_KEEPER", launcher);
  PeerGroup group("opener_that_does_not_join", kOne);
  group.start();
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(files.path() / "begun"); }));
  group.kill(0);
  expect_all(Kind::abandoned, group);
  std::ofstream(files.path() / "go") << "";
  EXPECT_TRUE(eventually([] { return !list_sessions().empty(); }));
  EXPECT_TRUE(eventually([] { return list_sessions().empty(); }));
  EXPECT_TRUE(folder.is_empty());
}

// A child that is stopped before main by process_crash_test.cpp.
pid_t find_starting_keeper() {
  const auto all = process::read_processes().value();
  for (const auto& each : all) {
    const bool is_it =
        each.parent == ::getpid() && process::was_started_with_any(each.pid, {"DROVER_TEST_BEFORE_MAIN=hang"});
    if (is_it) return each.pid;
  }
  return 0;
}

TEST(SessionCrash, keeper_killed_while_it_starts_is_an_error_and_leaves_nothing) {
  const test::OwnRuntimeFolder folder;
  const test::ScopedEnvironment held("DROVER_TEST_BEFORE_MAIN", "hang");
  for (const bool is_named : {false, true}) {
    std::thread killer([] {
      pid_t keeper = 0;
      EXPECT_TRUE(eventually([&] { return (keeper = find_starting_keeper()) != 0; }));
      EXPECT_EQ(::kill(keeper, SIGKILL), 0);
    });
    test::expect_error(Errc::peer_lost,
                       [&] { static_cast<void>(is_named ? Session::open("early") : Session::start()); },
                       {"ended before it became the keeper"});
    killer.join();
    EXPECT_EQ(find_starting_keeper(), 0);
  }
  EXPECT_TRUE(folder.is_empty());
}

DROVER_PEER_BODY(worker_with_a_lock) {
  std::string text;
  const Session session = accept_session(peer, &text);
  Lock lock(session, ObjectHandle::parse(text));
  const Event own(session);
  static_cast<void>(lock.acquire());
  peer.channel().send(own.handle().to_string());
  peer.reach("lock held");
}

TEST(SessionCrash, killed_worker_is_recovered_and_its_number_is_free) {
  Session session = Session::start();
  Lock lock(session);
  PeerGroup group("worker_with_a_lock", kOne);
  group.hold_at(0, "lock held");
  group.start();
  send_invitation(group.channel(0), session, lock.handle().to_string());
  const ObjectHandle own = ObjectHandle::parse(group.receive_text(0));
  group.wait_until_held(0, "lock held");
  EXPECT_EQ(lock.try_acquire(), LockResult::timed_out);
  group.kill(0);
  expect_all(Kind::abandoned, group);
  EXPECT_EQ(lock.acquire(Deadline::after(30s)), LockResult::acquired_after_death);
  lock.release();
  EXPECT_TRUE(eventually([&] { return session.population().departed == 1; }));
  EXPECT_EQ(session.participants().size(), 1U);
  test::expect_error(Errc::not_found, [&] { const Event gone(session, own); }, {own.to_string()});
}

DROVER_PEER_BODY(worker_that_never_joins) { peer.reach("invited"); }

TEST(SessionCrash, worker_killed_before_it_joins_stops_to_count_as_starting) {
  Session session = Session::start();
  PeerGroup group("worker_that_never_joins", kOne);
  group.hold_at(0, "invited");
  group.start();
  group.wait_until_held(0, "invited");
  send_invitation(group.channel(0), session);  // lies in its channel
  EXPECT_EQ(session.population().starting, 1U);
  group.kill(0);
  expect_all(Kind::abandoned, group);
  group.channel(0) = Channel(Fd{});
  EXPECT_TRUE(eventually([&] { return session.population().starting == 0; }));
  EXPECT_EQ(session.population().departed, 0U) << "it never was a participant";
}

DROVER_PEER_BODY(worker_that_invites) {
  Session session = accept_session(peer);
  const Fd invitation = session.invite("second");
  const int number = invitation.get();
  peer.channel().send("invitation", {&number, 1});
  peer.reach("invited");
}

TEST(SessionCrash, invitation_outlives_its_requester) {
  Session session = Session::start();
  PeerGroup first("worker_that_invites", kOne);
  first.kill_at(0, "invited");
  first.start();
  send_invitation(first.channel(0), session);
  ChannelMessage message;
  ASSERT_EQ(first.channel(0).receive(message, Deadline::never()), ReceiveResult::message);
  expect_all(Kind::abandoned, first);
  EXPECT_TRUE(eventually([&] { return session.population().departed == 1; }));
  EXPECT_EQ(session.population().starting, 1U);
  PeerGroup second("worker_that_waits", kOne);
  second.start();
  const int number = message.fds.at(0).get();
  second.channel(0).send("come", {&number, 1});
  message.fds.clear();
  EXPECT_EQ(second.receive_text(0), "waiting");
  EXPECT_EQ(session.population().present, 2U);
  session.end();
  expect_all(Kind::abandoned, second);
}

DROVER_PEER_BODY(worker_that_execs) {
  std::string text;
  const Session session = accept_session(peer, &text);
  Lock lock(session, ObjectHandle::parse(text));
  static_cast<void>(lock.acquire());
  ::execl("/bin/sleep", "sleep", "1000", nullptr);
}

TEST(SessionCrash, worker_that_execs_is_silent_and_keeps_what_it_holds_until_it_dies) {
  Session session = Session::start();
  Lock lock(session);
  PeerGroup group("worker_that_execs", kOne);
  group.start();
  send_invitation(group.channel(0), session, lock.handle().to_string());
  ASSERT_TRUE(eventually([&] {
    const auto all = session.participants();
    return all.size() == 2 && all[1].state == ParticipantState::silent;
  }));
  EXPECT_EQ(session.population().present, 2U);
  EXPECT_EQ(lock.try_acquire(), LockResult::timed_out) << "it was recovered although its process lives";
  group.kill(0);
  expect_all(Kind::abandoned, group);
  EXPECT_EQ(lock.acquire(Deadline::after(30s)), LockResult::acquired_after_death);
  lock.release();
}

DROVER_PEER_BODY(worker_that_forks) {
  std::string text;
  const Session session = accept_session(peer, &text);
  Lock lock(session, ObjectHandle::parse(text));
  static_cast<void>(lock.acquire());
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  peer.channel().send(std::to_string(child));
  peer.reach("forked");
}

TEST(SessionCrash, worker_s_death_is_seen_even_while_a_child_that_it_forked_lives) {
  Session session = Session::start();
  Lock lock(session);
  PeerGroup group("worker_that_forks", kOne);
  group.kill_at(0, "forked");
  group.start();
  send_invitation(group.channel(0), session, lock.handle().to_string());
  const pid_t child = std::stoi(group.receive_text(0));
  expect_all(Kind::abandoned, group);
  EXPECT_TRUE(is_running(child));
  EXPECT_EQ(lock.acquire(Deadline::after(30s)), LockResult::acquired_after_death);
  lock.release();
  EXPECT_TRUE(eventually([&] { return session.population().departed == 1; }));
  ::kill(child, SIGKILL);
}

DROVER_PEER_BODY(worker_that_dies_while_asking) {
  ChannelMessage message;
  ASSERT_EQ(peer.channel().receive(message, Deadline::never()), ReceiveResult::message);
  Channel keeper(std::move(message.fds.at(0)));
  Request request{.type = RequestType::join, .sequence = 1, .name = "asker"};
  request.number = process_start_time(::getpid()).value();
  keeper.send(encode(request));
  for (int i = 0; i < 20; ++i) {
    keeper.send(encode(Request{.type = RequestType::create, .spec = {.kind = ObjectKind::event, .parameters = {}}}));
  }
  peer.reach("asked");
}

// The keeper may hear of its death before, between or after the requests that still lie in the socket.
TEST(SessionCrash, worker_killed_in_the_middle_of_requests_leaves_nothing) {
  const test::OwnRuntimeFolder folder;
  Session session = Session::open("asked");
  for (int round = 0; round < 5; ++round) {
    PeerGroup group("worker_that_dies_while_asking", kOne);
    group.kill_at(0, "asked");
    group.start();
    send_invitation(group.channel(0), session);
    expect_all(Kind::abandoned, group);
    EXPECT_TRUE(eventually([&] { return session.population().starting == 0 && session.population().present == 1; }));
    EXPECT_EQ(session.participants().size(), 1U);
    EXPECT_EQ(describe_session("asked").objects, 0U);
  }
  session.end();
}

// Opens one lock after the other, acquires them, and closes every second one without releasing it.
DROVER_PEER_BODY(worker_that_collects_locks) {
  std::string text;
  const Session session = accept_session(peer, &text);
  std::istringstream handles(text);
  std::vector<Lock> kept;
  for (std::string handle; handles >> handle;) {
    peer.channel().send("next");
    Lock lock(session, ObjectHandle::parse(handle));
    static_cast<void>(lock.acquire());
    if (kept.size() % 2 == 0) kept.push_back(std::move(lock));
  }
  for (;;) ::pause();
}

// The keeper recovers what a participant ever opened, and must know of it wherever the participant dies.
TEST(SessionCrash, whatever_a_worker_held_is_freed_wherever_it_is_killed) {
  Session session = Session::start();
  std::vector<Lock> locks;
  std::string handles;
  for (int i = 0; i < 20; ++i) handles += locks.emplace_back(session).handle().to_string() + " ";
  for (std::size_t round = 0; round < locks.size(); round += 3) {
    PeerGroup group("worker_that_collects_locks", kOne);
    group.start();
    send_invitation(group.channel(0), session, handles);
    for (std::size_t heard = 0; heard <= round; ++heard) ASSERT_EQ(group.receive_text(0), "next");
    group.kill(0);
    expect_all(Kind::abandoned, group);
    for (Lock& lock : locks) {
      ASSERT_TRUE(is_acquired(lock.acquire(Deadline::after(60s)))) << round;
      lock.release();
    }
  }
}

TEST(SessionCrash, killed_keeper_is_an_error_for_everybody) {
  Running running;
  running.start();
  ASSERT_EQ(::kill(running.keeper, SIGKILL), 0);
  const std::string text = running.worker.receive_text(0);
  EXPECT_NE(text.find("peer_lost"), std::string::npos) << text;
  EXPECT_NE(text.find("the keeper (process " + std::to_string(running.keeper) + ")"), std::string::npos) << text;
  running.worker.expect_success();
  running.application.release(0);
  running.application.channel(0).send("leave");
  running.application.expect_success();
}

TEST(SessionCrash, killed_keeper_ends_waits_requests_and_checks_of_the_application) {
  Session session = Session::start();
  Event never(session);
  const std::string pid = std::to_string(session.keeper_pid());
  std::thread waiter([&] { test::expect_error(Errc::peer_lost, [&] { static_cast<void>(never.wait()); }, {pid}); });
  ASSERT_EQ(::kill(session.keeper_pid(), SIGKILL), 0);
  waiter.join();
  test::expect_error(Errc::peer_lost, [&] { session.check(); }, {"has died", pid, "start the program again"});
  test::expect_error(Errc::peer_lost, [&] { const Event late(session); }, {pid});
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(session.invite("x")); }, {pid});
}

// The number of puts that report success before one throws `Errc::peer_lost`.
int puts_until_lost(Queue& queue) {
  int count = 0;
  try {
    while (count < 2000 && queue.put("text", Deadline::after({})) == PutResult::put) ++count;
    ADD_FAILURE() << count << " puts, and no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
  }
  return count;
}

DROVER_PEER_BODY(application_that_execs) {
  const Session session = Session::start();
  peer.channel().send(std::to_string(session.keeper_pid()));
  static_cast<void>(peer.receive_text());
  ::execl("/bin/sleep", "sleep", "1000", nullptr);
}

TEST(SessionCrash, session_ends_with_an_application_that_executes_another_program) {
  PeerGroup group("application_that_execs", kOne);
  group.start();
  const pid_t keeper = std::stoi(group.receive_text(0));
  ASSERT_TRUE(is_running(keeper));
  group.channel(0).send("go");
  EXPECT_TRUE(eventually([&] { return !is_running(keeper); }));
  group.kill(0);
  expect_all(Kind::abandoned, group);
}

TEST(SessionCrash, put_into_a_session_that_has_ended_is_an_error) {
  Session session = Session::start();
  Queue queue(session);
  Loan loan = queue.loan(8);
  session.end();
  EXPECT_EQ(puts_until_lost(queue), 0);
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(queue.put(std::string(5000, 'x'))); });
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(queue.publish(loan)); });
}

TEST(SessionCrash, put_after_the_keeper_was_killed_is_an_error) {
  const Session session = Session::start();
  Queue queue(session);
  ASSERT_EQ(queue.put("before"), PutResult::put);
  ASSERT_EQ(::kill(session.keeper_pid(), SIGKILL), 0);
  EXPECT_TRUE(eventually([&] { return !is_running(session.keeper_pid()); }));
  EXPECT_EQ(puts_until_lost(queue), 0);
}

TEST(SessionCrash, put_to_a_stopped_keeper_s_session_succeeds) {
  const Session session = Session::start();
  Queue queue(session);
  ASSERT_EQ(::kill(session.keeper_pid(), SIGSTOP), 0);
  EXPECT_EQ(queue.put("text"), PutResult::put);
  ASSERT_EQ(::kill(session.keeper_pid(), SIGCONT), 0);
}

TEST(SessionCrash, keeper_killed_in_the_middle_of_a_request_is_an_error) {
  Session session = Session::start();
  ASSERT_EQ(::kill(session.keeper_pid(), SIGSTOP), 0);
  std::thread asker([&] {
    test::expect_error(Errc::peer_lost, [&] { const Event event(session); }, {std::to_string(session.keeper_pid())});
  });
  ASSERT_EQ(::kill(session.keeper_pid(), SIGKILL), 0);
  asker.join();
}

TEST(SessionCrash, stopped_keeper_is_an_error_and_is_used_again_when_continued) {
  std::optional<Session> started;
  ASSERT_TRUE(eventually([&] {  // on a busy machine a keeper may need more than 200 ms to start
    try {
      started.emplace(Session::start({.patience = 200ms}));
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::timed_out) << error.what();
      return false;
    }
  }));
  Session& session = *started;
  const Event kept(session);
  ASSERT_EQ(::kill(session.keeper_pid(), SIGSTOP), 0);
  test::expect_error(Errc::timed_out, [&] { const Event event(session); },
                     {"did not answer within 200 ms", std::to_string(session.keeper_pid())});
  test::expect_error(Errc::timed_out, [&] { static_cast<void>(session.invite("nobody")); });
  EXPECT_NO_THROW(session.check()) << "it is not gone";
  ASSERT_EQ(::kill(session.keeper_pid(), SIGCONT), 0);
  // On a busy machine the keeper may need more than one patience to come back.
  ASSERT_TRUE(eventually([&] {
    try {
      const Event event(session);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::timed_out) << error.what();
      return false;
    }
  }));
  EXPECT_TRUE(eventually([&] { return session.population().starting == 0; })) << "nobody got the invitation";
}

TEST(SessionCrash, worker_sees_the_keeper_dead_even_if_the_application_is_dead_too) {
  Running running;
  running.start();
  ASSERT_EQ(::kill(running.keeper, SIGSTOP), 0);  // so that it cannot kill the worker first
  running.application.kill(0);
  expect_all(Kind::abandoned, running.application);
  ASSERT_EQ(::kill(running.keeper, SIGKILL), 0);
  const std::string text = running.worker.receive_text(0);
  EXPECT_NE(text.find("peer_lost"), std::string::npos) << text;
  running.worker.expect_success();
}

TEST(SessionCrash, keeper_asked_to_terminate_ends_the_session_in_order) {
  Running running;
  running.start();
  ASSERT_EQ(::kill(running.keeper, SIGTERM), 0);
  expect_all(Kind::abandoned, running.worker);
  running.application.release(0);
  running.application.channel(0).send("leave");
  running.application.expect_success();
}

// A child that the application forked has copies of all its descriptors, for as long as it lives.
TEST(SessionCrash, keeper_s_death_is_seen_even_while_a_forked_child_has_all_descriptors) {
  Session session = Session::start();
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  ASSERT_EQ(::kill(session.keeper_pid(), SIGKILL), 0);
  EXPECT_TRUE(eventually([&] {
    try {
      session.check();
      return false;
    } catch (const Error& error) {
      return error.code() == Errc::peer_lost;
    }
  }));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace drover::session
