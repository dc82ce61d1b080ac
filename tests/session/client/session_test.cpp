#include "drover/session/session.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/event.hpp"
#include "drover/ipc/lock.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/wake/cell_lock.hpp"
#include "process/spawn/init_state.hpp"
#include "session/client/session_helpers.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/leftovers.hpp"
#include "support/peer_group.hpp"
#include "support/temporary_folder.hpp"

namespace drover::session {
namespace {

using namespace std::chrono_literals;
using test::accept_session;
using test::eventually;
using test::PeerGroup;
using test::PeerMode;
using test::ScopedEnvironment;
using test::send_invitation;

DROVER_PEER_BODY(join_and_stay) {
  const Session session = accept_session(peer);
  peer.channel().send("joined " + std::to_string(session.self()));
  static_cast<void>(peer.receive_text());
}

TEST(Session, starts_with_a_keeper_of_its_own_and_ends_with_its_handle) {
  pid_t keeper = 0;
  {
    const Session session = Session::start({.participant_name = "me"});
    keeper = session.keeper_pid();
    EXPECT_NE(keeper, ::getpid());
    EXPECT_TRUE(test::is_running(keeper));
    EXPECT_EQ(session.name(), "");
    EXPECT_NE(session.self(), kNobody);
    EXPECT_EQ(session.incarnation(), 1U);
    EXPECT_NO_THROW(session.check());
    const auto all = session.participants();
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].pid, ::getpid());
    EXPECT_EQ(all[0].name, "me");
    EXPECT_EQ(all[0].number, session.self());
  }
  EXPECT_FALSE(test::is_running(keeper));
}

TEST(Session, lives_as_long_as_any_copy_or_object) {
  auto session = std::make_unique<Session>(Session::start());
  const pid_t keeper = session->keeper_pid();
  auto copy = std::make_unique<Session>(*session);
  session.reset();
  EXPECT_EQ(copy->keeper_pid(), keeper);
  auto event = std::make_unique<Event>(*copy);
  copy.reset();
  EXPECT_TRUE(test::is_running(keeper));
  event->set();
  EXPECT_EQ(event->wait(), WaitResult::done);
  event.reset();
  EXPECT_FALSE(test::is_running(keeper));
}

TEST(Session, several_sessions_in_one_process_are_independent) {
  const Session one = Session::start();
  const Session other = Session::start();
  EXPECT_NE(one.keeper_pid(), other.keeper_pid());
  EXPECT_EQ(one.population().present, 1U);
  const Event event(one);
  test::expect_error(Errc::not_found, [&] { const Event opened(other, event.handle()); });
}

TEST(Session, program_that_did_not_call_init_gets_an_error) {
  process::impl::is_initialised = false;
  test::expect_error(Errc::invalid_argument, [] { static_cast<void>(Session::start()); },
                     {"call drover::init(argc, argv) first in main"});
  process::impl::is_initialised = true;
}

TEST(Session, invalid_keeper_program_is_an_error_and_not_left_behind) {
  {
    const ScopedEnvironment keeper("DROVER_KEEPER", "/nonexistent/keeper");
    test::expect_error(Errc::not_found, [] { static_cast<void>(Session::start()); }, {"/nonexistent/keeper"});
  }
  {
    const ScopedEnvironment keeper("DROVER_KEEPER", "/bin/false");
    test::expect_error(Errc::peer_lost, [] { static_cast<void>(Session::start()); }, {"/bin/false", "drover::init"});
  }
  const test::TemporaryFolder folder;
  const std::string program = folder.path() / "endless";
  std::ofstream(program) << "#!/bin/sh\nexec sleep 1000\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const ScopedEnvironment keeper("DROVER_KEEPER", program);
  test::expect_error(Errc::timed_out, [] { static_cast<void>(Session::start({.patience = 50ms})); },
                     {program, "drover::init"});
}

TEST(Session, options_that_make_no_sense_are_refused) {
  const auto start = [](const SessionOptions& options) { static_cast<void>(Session::start(options)); };
  test::expect_error(Errc::invalid_argument, [&] { start({.patience = 0ms}); });
  test::expect_error(Errc::invalid_argument, [&] { start({.idle_limit = -1s}); });
  test::expect_error(Errc::invalid_argument, [&] { start({.participant_name = "two\nlines"}); });
  test::expect_error(Errc::invalid_argument, [&] { start({.participant_name = std::string(64, 'x')}); });
}

TEST(Session, longest_patience_and_idle_limit_mean_for_ever) {
  const test::OwnRuntimeFolder folder;
  Session session =
      Session::open("for-ever", {.idle_limit = std::chrono::hours::max(), .patience = std::chrono::hours::max()});
  EXPECT_EQ(describe_session("for-ever").idle_limit, 0s);
  session.end();
}

// Something has overwritten the word: nobody would ever free the lock.
TEST(Session, lock_whose_holder_does_not_exist_is_an_error_not_a_hang) {
  const Session session = Session::start();
  const std::shared_ptr<Membership> membership = session;
  Lock lock(session);
  const OpenObject object = membership->open(lock.handle());
  auto& cell = *reinterpret_cast<ipc::CellLockLayout*>(ipc::layout_of(object.data));
  cell.word = ipc::lock_word::stamp_of({.owner = 900, .thread = 1});
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(lock.acquire()); }, {"900", "does not exist"});
  EXPECT_EQ(lock.try_acquire(), LockResult::timed_out);
  membership->close(lock.handle());
}

TEST(Session, process_that_was_not_started_into_a_session_gets_an_error) {
  {
    const ScopedEnvironment none("DROVER_SESSION_FD", std::nullopt);
    test::expect_error(Errc::not_found, [] { static_cast<void>(Session::inherited()); },
                       {"not started into a session"});
  }
  for (const char* const number : {"0", "77"}) {  // no socket; not open
    const ScopedEnvironment wrong("DROVER_SESSION_FD", number);
    test::expect_error(Errc::not_found, [] { static_cast<void>(Session::inherited()); }, {"is not a connection"});
  }
  const ScopedEnvironment nonsense("DROVER_SESSION_FD", "three");
  test::expect_error(Errc::invalid_argument, [] { static_cast<void>(Session::inherited()); }, {"DROVER_SESSION_FD"});
}

class SessionJoins : public ::testing::TestWithParam<int> {};

TEST_P(SessionJoins, at_once_give_everybody_a_number_of_their_own) {
  Session session = Session::start();
  PeerGroup group("join_and_stay", {.mode = PeerMode::processes, .size = GetParam()});
  group.start();
  for (int rank = 0; rank < GetParam(); ++rank) {
    send_invitation(group.channel(rank), session, "come", "peer " + std::to_string(rank));
  }
  std::set<std::string> numbers = {"joined " + std::to_string(session.self())};
  for (int rank = 0; rank < GetParam(); ++rank) EXPECT_TRUE(numbers.insert(group.receive_text(rank)).second);
  EXPECT_EQ(session.population().present, static_cast<std::uint32_t>(GetParam()) + 1);
  EXPECT_EQ(session.population().starting, 0U);
  std::set<std::uint64_t> incarnations;
  for (const auto& each : session.participants()) {
    EXPECT_TRUE(incarnations.insert(each.incarnation).second);
    EXPECT_EQ(each.is_worker, each.pid != ::getpid());
    EXPECT_TRUE(each.name.starts_with("peer ") || each.pid == ::getpid()) << each.name;
  }
  for (int rank = 0; rank < GetParam(); ++rank) group.channel(rank).send("go");
  group.expect_success();
  EXPECT_EQ(session.population().present, 1U) << "all left before they ended";
  EXPECT_EQ(session.population().departed, static_cast<std::uint64_t>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Sizes, SessionJoins, ::testing::Values(1, 2, 8));

DROVER_PEER_BODY(inherit_twice) {
  {
    const Session first = accept_session(peer);
    const Session second = Session::inherited();
    EXPECT_EQ(first.self(), second.self());
    EXPECT_EQ(first.population().present, 2U);
  }
  test::expect_error(Errc::not_found, [] { static_cast<void>(Session::inherited()); }, {"has left the session"});
}

TEST(Session, is_inherited_once_per_process_however_often_it_is_asked_for) {
  Session session = Session::start();
  PeerGroup group("inherit_twice", {.mode = PeerMode::processes, .size = 1});
  group.start();
  send_invitation(group.channel(0), session);
  group.expect_success();
}

DROVER_PEER_BODY(set_what_is_given) {
  std::string text;
  const Session session = accept_session(peer, &text);
  const auto space = text.find(' ');
  Event event(session, ObjectHandle::parse(text.substr(0, space)));
  Lock lock(session, ObjectHandle::parse(text.substr(space + 1)));
  const LockResult result = lock.acquire();
  EXPECT_EQ(result, LockResult::acquired);
  event.set();
  lock.release();
}

TEST(Session, objects_are_shared_between_its_processes) {
  Session session = Session::start();
  Event event(session);
  const Lock lock(session);
  PeerGroup group("set_what_is_given", {.mode = PeerMode::processes, .size = 2});
  group.start();
  const std::string handles = event.handle().to_string() + " " + lock.handle().to_string();
  for (int rank = 0; rank < 2; ++rank) send_invitation(group.channel(rank), session, handles);
  EXPECT_EQ(event.wait(Deadline::after(30s)), WaitResult::done);
  group.expect_success();
  EXPECT_FALSE(lock.is_held());
}

TEST(Session, threads_may_use_it_at_once) {
  Session session = Session::start();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&session] {
      for (int round = 0; round < 50; ++round) {
        Event event(session);
        Event again(session, event.handle());
        event.set();
        EXPECT_TRUE(again.is_set());
        EXPECT_GE(session.participants().size(), 1U);
        session.check();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

DROVER_PEER_BODY(deposit_and_die) {
  Session session = accept_session(peer);
  const Fd file = make_memory_file("deposited", 4096);
  Mapping::shared(file, 4096).bytes()[5] = std::byte{55};
  const SlabId slab = session.deposit(file, "from a peer", 4096);
  peer.channel().send(std::to_string(static_cast<std::uint64_t>(slab)));
  peer.reach("deposited");
}

TEST(Session, slab_outlives_the_process_that_made_it) {
  Session session = Session::start();
  PeerGroup group("deposit_and_die", {.mode = PeerMode::processes, .size = 1});
  group.kill_at(0, "deposited");
  group.start();
  send_invitation(group.channel(0), session);
  const SlabId slab{std::stoull(group.receive_text(0))};
  static_cast<void>(group.wait(Deadline::never()));
  EXPECT_TRUE(eventually([&] { return session.population().departed == 1; }));
  const Fd fetched = session.fetch(slab);
  EXPECT_EQ(Mapping::shared(fetched, 4096).bytes()[5], std::byte{55});
  session.withdraw(slab);
  test::expect_error(Errc::not_found, [&] { static_cast<void>(session.fetch(slab)); }, {"no slab with the number"});
  session.withdraw(slab);
}

TEST(Session, bad_deposits_and_invitations_are_refused_here) {
  Session session = Session::start();
  const Fd empty;
  const Fd file = make_memory_file("slab", 4096);
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(session.deposit(empty, "x", 1)); });
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(session.deposit(file, "", 1)); });
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(session.invite("")); });
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(session.invite(std::string(64, 'x'))); });
}

TEST(Session, unused_invitation_stops_counting) {
  Session session = Session::start();
  {
    const Fd invitation = session.invite("nobody");
    EXPECT_EQ(session.population().starting, 1U);
  }
  EXPECT_TRUE(eventually([&] { return session.population().starting == 0; }));
}

TEST(Session, end_is_for_everybody) {
  Session session = Session::start();
  const pid_t keeper = session.keeper_pid();
  Event event(session);
  PeerGroup group("join_and_stay", {.mode = PeerMode::processes, .size = 2});
  group.start();
  for (int rank = 0; rank < 2; ++rank) send_invitation(group.channel(rank), session);
  for (int rank = 0; rank < 2; ++rank) static_cast<void>(group.receive_text(rank));
  session.end();
  for (const auto& outcome : group.wait(Deadline::never())) {
    EXPECT_EQ(outcome.kind, test::PeerOutcome::Kind::abandoned) << "workers are killed: " << outcome.text;
  }
  const auto pid = std::to_string(keeper);
  test::expect_error(Errc::peer_lost, [&] { session.check(); }, {"the session has ended", pid});
  test::expect_error(Errc::peer_lost, [&] { const Event late(session); }, {"has ended"});
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(event.wait()); }, {"has ended"});
  test::expect_error(Errc::peer_lost, [&] { session.end(); });
}

// A forked child has copies of everything in its parent's session and may use none of it.
TEST(Session, forked_child_is_not_a_participant_and_affects_none) {
  auto session = std::make_unique<Session>(Session::start());
  auto event = std::make_unique<Event>(*session);
  const pid_t child = ::fork();
  if (child == 0) {
    int faults = 0;
    const auto expect = [&](Errc code, const std::function<void()>& action) {
      try {
        action();
        ++faults;
      } catch (const Error& error) {
        if (error.code() != code) ++faults;
      }
    };
    if (session->self() != kNobody) ++faults;
    expect(Errc::peer_lost, [&] { session->check(); });
    expect(Errc::forked, [&] { const Event made(*session); });
    expect(Errc::forked, [&] { const Event opened(*session, event->handle()); });
    expect(Errc::forked, [&] { static_cast<void>(session->invite("x")); });
    expect(Errc::forked, [&] { session->end(); });
    event.reset();
    session.reset();
    ::_exit(faults);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "that many things went wrong in the child, times 256";
  EXPECT_NO_THROW(session->check());
  EXPECT_EQ(session->population().present, 1U);
  event->set();
  const Event again(*session, event->handle());
  EXPECT_TRUE(again.is_set());
}

TEST(Session, failing_calls_at_the_start_are_errors_and_leave_nothing) {
  for (const auto& [call, error, code] :
       {std::tuple("socketpair", EMFILE, Errc::limit_reached), std::tuple("recvmsg", ENOMEM, Errc::out_of_memory),
        std::tuple("mmap", ENOMEM, Errc::out_of_memory), std::tuple("mprotect", ENOMEM, Errc::out_of_memory),
        std::tuple("getsockopt", EMFILE, Errc::limit_reached), std::tuple("sendmsg", ENOMEM, Errc::out_of_memory)}) {
    SCOPED_TRACE(call);
    const test::FaultSeam fail(call, error, {.times = 1});
    test::expect_error(code, [] { static_cast<void>(Session::start()); }, {call});
  }
}

// The memory file of an object could not be mapped: the opening is ended, and a second try works.
TEST(Session, object_that_cannot_be_mapped_is_not_left_open) {
  Session session = Session::start();
  for (int round = 0; round < 3; ++round) {
    const test::FaultSeam fail("mmap", ENOMEM, {.times = 1});
    test::expect_error(Errc::out_of_memory, [&] { const Event event(session); }, {"mmap"});
  }
  Event event(session);
  event.set();
  EXPECT_TRUE(event.is_set());
}

TEST(Session, keeper_without_a_path_is_refused) {
  const ScopedEnvironment keeper("DROVER_KEEPER", "drover");
  test::expect_error(Errc::invalid_argument, [] { static_cast<void>(Session::start()); },
                     {"DROVER_KEEPER=drover is not a path", "PATH"});
}

DROVER_PEER_BODY(worker_that_cannot_join) {
  auto [ours, theirs] = Channel::make_pair();
  const ScopedEnvironment variable("DROVER_SESSION_FD", std::to_string(::dup(ours.fd())));
  theirs = Channel(Fd{});
  test::expect_error(Errc::peer_lost, [] { static_cast<void>(Session::inherited()); });
  test::expect_error(Errc::not_found, [] { static_cast<void>(Session::inherited()); }, {"could not join"});
}

TEST(Session, worker_that_could_not_join_has_not_left) {
  PeerGroup group("worker_that_cannot_join", {.mode = PeerMode::processes, .size = 1});
  group.start();
  group.expect_success();
}

}  // namespace
}  // namespace drover::session
