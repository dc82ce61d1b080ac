#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/channel.hpp"
#include "drover/ipc/event.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/session/session.hpp"
#include "session/client/session_helpers.hpp"
#include "session/wire/session_folder.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"

namespace drover::session {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using test::is_running;
using test::PeerGroup;
using test::PeerMode;
using Kind = test::PeerOutcome::Kind;

constexpr test::PeerShape kOnePeer{.mode = PeerMode::processes, .size = 1};

// Ends every session that a test opens, even if an assertion fails.
class NamedSession : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const auto& info : list_sessions()) {
      ADD_FAILURE() << "the test left the session " << info.name;
      end_session(info.name, true);
    }
    EXPECT_TRUE(folder_.is_empty()) << "files of sessions are left";
  }
  [[nodiscard]] bool has(const std::string& entry) const { return std::filesystem::exists(folder_.path() / entry); }

  test::OwnRuntimeFolder folder_;
};

// Opens a session and sends the keeper's pid and the handle of an event.
DROVER_PEER_BODY(opener) {
  Session session = Session::open(peer.parameter("name"));
  Event event(session);
  event.set();
  peer.channel().send(std::to_string(session.keeper_pid()) + " " + event.handle().to_string());
  peer.reach("opened");
  static_cast<void>(peer.receive_text());
}

TEST_F(NamedSession, outlives_the_process_that_opened_it) {
  pid_t keeper = 0;
  {
    const Session session = Session::open("alpha");
    keeper = session.keeper_pid();
    EXPECT_EQ(session.name(), "alpha");
  }
  EXPECT_TRUE(is_running(keeper));
  {
    const Session again = Session::open("alpha");
    EXPECT_EQ(again.keeper_pid(), keeper);
    EXPECT_EQ(again.incarnation(), 2U);
    EXPECT_EQ(again.population().departed, 1U);
  }
  end_session("alpha", false);
  EXPECT_FALSE(is_running(keeper));
}

TEST_F(NamedSession, keeper_is_a_daemon_without_a_terminal) {
  Session session = Session::open("detached");
  const pid_t keeper = session.keeper_pid();
  EXPECT_EQ(::waitpid(keeper, nullptr, WNOHANG), -1);
  EXPECT_NE(::getsid(keeper), ::getsid(0));
  for (const int number : {0, 1}) {
    EXPECT_EQ(std::filesystem::read_symlink("/proc/" + std::to_string(keeper) + "/fd/" + std::to_string(number)),
              "/dev/null");
  }
  EXPECT_EQ(std::filesystem::read_symlink("/proc/" + std::to_string(keeper) + "/fd/2"),
            folder_.path() / "detached.log");
  EXPECT_EQ(std::filesystem::read_symlink("/proc/" + std::to_string(keeper) + "/cwd"), "/");
  session.end();
}

TEST_F(NamedSession, slabs_are_found_by_the_next_process) {
  SlabId slab{};
  {
    Session session = Session::open("weights");
    const Fd file = make_memory_file("kept", 4096);
    Mapping::shared(file, 4096).bytes()[9] = std::byte{99};
    slab = session.deposit(file, "layer 1", 4096);
  }
  Session session = Session::open("weights");
  EXPECT_EQ(Mapping::shared(session.fetch(slab), 4096).bytes()[9], std::byte{99});
  session.end();
}

TEST_F(NamedSession, name_that_is_none_is_refused) {
  test::expect_error(Errc::invalid_argument, [] { static_cast<void>(Session::open("../x")); }, {"letters, digits"});
  test::expect_error(Errc::invalid_argument, [] { static_cast<void>(Session::open("")); });
  test::expect_error(Errc::invalid_argument, [] { static_cast<void>(describe_session("a/b")); });
  test::expect_error(Errc::invalid_argument, [] { end_session("a b", true); });
}

TEST_F(NamedSession, directory_that_is_not_private_is_refused) {
  std::filesystem::create_directory(folder_.path());
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0777), 0);
  test::expect_error(Errc::permission_denied, [] { static_cast<void>(Session::open("x")); }, {"open to others"});
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0700), 0);
}

class NamedSessionRace : public NamedSession, public ::testing::WithParamInterface<int> {};

TEST_P(NamedSessionRace, concurrent_openers_share_one_keeper) {
  for (int round = 0; round < 3; ++round) {
    PeerGroup group("opener", {.mode = PeerMode::processes, .size = GetParam()}, {{"name", "race"}});
    group.start();
    std::set<std::string> keepers;
    for (int rank = 0; rank < GetParam(); ++rank) {
      const std::string text = group.receive_text(rank);
      keepers.insert(text.substr(0, text.find(' ')));
    }
    EXPECT_EQ(keepers.size(), 1U);
    EXPECT_EQ(describe_session("race").population.present, static_cast<std::uint32_t>(GetParam()));
    for (int rank = 0; rank < GetParam(); ++rank) group.channel(rank).send("go");
    group.expect_success();
    end_session("race", false);
    EXPECT_TRUE(folder_.is_empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, NamedSessionRace, ::testing::Values(1, 2, 8));

TEST_F(NamedSession, killed_opener_departs_and_the_session_stays) {
  const Session session = Session::open("stays");
  PeerGroup group("opener", kOnePeer, {{"name", "stays"}});
  group.kill_at(0, "opened");
  group.start();
  const std::string text = group.receive_text(0);
  static_cast<void>(group.wait(Deadline::never()));
  EXPECT_TRUE(eventually([&] { return session.population().departed == 1; }));
  EXPECT_NO_THROW(session.check());
  const auto handle = ObjectHandle::parse(text.substr(text.find(' ') + 1));
  test::expect_error(Errc::not_found, [&] { const Event gone(session, handle); });
  Session(session).end();
}

TEST_F(NamedSession, killed_keeper_is_replaced_by_the_next_opener) {
  Session first = Session::open("again");
  const pid_t keeper = first.keeper_pid();
  Event event(first);
  ASSERT_EQ(::kill(keeper, SIGKILL), 0);
  ASSERT_TRUE(eventually([&] { return !is_running(keeper); }));
  EXPECT_TRUE(has("again.sock")) << "left by the killed one";
  Session second = Session::open("again");
  EXPECT_NE(second.keeper_pid(), keeper);
  EXPECT_EQ(second.population().present, 1U);
  test::expect_error(Errc::peer_lost, [&] { first.check(); },
                     {"session 'again'", "has died", std::to_string(keeper)});
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(event.wait()); });
  second.end();
}

TEST_F(NamedSession, what_a_killed_keeper_left_is_not_listed_and_removed) {
  pid_t keeper = 0;
  {
    const Session session = Session::open("dead");
    keeper = session.keeper_pid();
    ASSERT_EQ(::kill(keeper, SIGKILL), 0);
    ASSERT_TRUE(eventually([&] { return !is_running(keeper); }));
  }
  EXPECT_FALSE(folder_.is_empty());
  test::expect_error(Errc::not_found, [] { static_cast<void>(describe_session("dead")); },
                     {"this user has no session 'dead'"});
  EXPECT_TRUE(folder_.is_empty());
  EXPECT_TRUE(list_sessions().empty());
}

TEST_F(NamedSession, log_of_the_keeper_is_bounded) {
  Session session = Session::open("noisy");
  const auto log = folder_.path() / "noisy.log";
  const auto size = [&] { return std::filesystem::exists(log) ? std::filesystem::file_size(log) : 0; };
  const auto complain = [] {  // the keeper logs that a visitor breaks the protocol
    Channel visitor(SessionFolder::open().connect("noisy").value());
    visitor.send("nonsense");
    ChannelMessage message;
    while (visitor.receive(message, Deadline::after(20s)) == ReceiveResult::message) continue;
  };
  complain();
  ASSERT_GT(size(), 0U) << log;
  std::ofstream(log, std::ios::app) << std::string(2 << 20, 'x');
  complain();
  EXPECT_GT(size(), 0U);
  EXPECT_LT(size(), 1U << 20U);
  session.end();
  std::filesystem::remove(log);
}

TEST_F(NamedSession, ends_after_its_idle_limit_and_not_before) {
  pid_t keeper = 0;
  {
    const Session session = Session::open("short", {.idle_limit = 1s});
    keeper = session.keeper_pid();
    EXPECT_EQ(describe_session("short").idle_limit, 1s);
  }
  EXPECT_TRUE(eventually([&] { return !is_running(keeper); }));
  EXPECT_TRUE(folder_.is_empty());
}

TEST_F(NamedSession, listing_sessions_creates_no_directory) {
  EXPECT_TRUE(list_sessions().empty());
  test::expect_error(Errc::not_found, [] { static_cast<void>(describe_session("none")); });
  test::expect_error(Errc::not_found, [] { end_session("none", true); });
  EXPECT_FALSE(std::filesystem::exists(folder_.path()));
}

TEST_F(NamedSession, listing_shows_the_maker_of_each_kept_entry) {
  Session one = Session::open("one", {.participant_name = "tester", .idle_limit = 90s});
  Session two = Session::open("two");
  const Event event(one);
  const Fd file = make_memory_file("slab", 8192);
  const SlabId slab = one.deposit(file, "weights", 8192);
  const auto all = list_sessions();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "one");
  EXPECT_EQ(all[1].name, "two");
  const SessionInfo& info = all[0];
  EXPECT_EQ(info.keeper_pid, one.keeper_pid());
  EXPECT_GE(info.age.count(), 0);
  EXPECT_EQ(info.idle_limit, 90s);
  EXPECT_EQ(info.population.present, 1U) << "a process that lists sessions takes no part";
  EXPECT_EQ(info.objects, 1U);
  EXPECT_GT(info.object_bytes, 0U);
  EXPECT_EQ(info.slab_bytes, 8192U);
  ASSERT_EQ(info.participants.size(), 1U);
  EXPECT_EQ(info.participants[0].name, "tester");
  ASSERT_EQ(info.slabs.size(), 1U);
  EXPECT_EQ(info.slabs[0].id, slab);
  EXPECT_EQ(info.slabs[0].label, "weights");
  EXPECT_EQ(info.slabs[0].bytes, 8192U);
  EXPECT_EQ(info.problem, "");
  one.end();
  two.end();
}

TEST_F(NamedSession, end_is_refused_with_participants_unless_forced) {
  Session session = Session::open("busy");
  test::expect_error(Errc::busy, [] { end_session("busy", false); }, {"'busy' has 1 participants", "by force"});
  EXPECT_NO_THROW(session.check());
  end_session("busy", true);
  test::expect_error(Errc::peer_lost, [&] { session.check(); }, {"session 'busy' has ended"});
  test::expect_error(Errc::not_found, [] { end_session("busy", false); });
}

TEST_F(NamedSession, keeper_that_does_not_answer_is_listed_so_and_ended_by_force) {
  Session session = Session::open("stuck", {.patience = 5s});
  const pid_t keeper = session.keeper_pid();
  ASSERT_EQ(::kill(keeper, SIGSTOP), 0);
  const auto all = list_sessions();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].keeper_pid, keeper);
  EXPECT_NE(all[0].problem.find("did not answer"), std::string::npos) << all[0].problem;
  test::expect_error(Errc::timed_out, [] { static_cast<void>(Session::open("stuck", {.patience = 500ms})); });
  test::expect_error(Errc::timed_out, [] { end_session("stuck", false); });
  end_session("stuck", true);
  EXPECT_FALSE(is_running(keeper));
  EXPECT_TRUE(folder_.is_empty());
}

// What was asked for and came too late is given back.
TEST_F(NamedSession, answers_that_come_too_late_leave_nothing) {
  Session session = Session::open("late", {.patience = 1500ms});
  const Fd file = make_memory_file("slab", 4096);
  ASSERT_EQ(::kill(session.keeper_pid(), SIGSTOP), 0);
  test::expect_error(Errc::timed_out, [&] { const Event event(session); });
  test::expect_error(Errc::timed_out, [&] { static_cast<void>(session.deposit(file, "late", 1)); });
  test::expect_error(Errc::timed_out, [&] { static_cast<void>(session.invite("late")); });
  ASSERT_EQ(::kill(session.keeper_pid(), SIGCONT), 0);
  ASSERT_TRUE(eventually([&] {
    try {
      session.withdraw(SlabId{999});
      return true;
    } catch (const Error&) {
      return false;
    }
  }));
  EXPECT_TRUE(eventually([] {
    const auto info = describe_session("late");
    return info.objects == 0 && info.slabs.empty() && info.population.starting == 0;
  }));
  session.end();
}

TEST_F(NamedSession, keeper_asked_to_terminate_leaves_nothing) {
  const Session session = Session::open("term");
  ASSERT_EQ(::kill(session.keeper_pid(), SIGTERM), 0);
  EXPECT_TRUE(eventually([&] { return !is_running(session.keeper_pid()); }));
  test::expect_error(Errc::peer_lost, [&] { session.check(); }, {"session 'term' has ended"});
}

TEST_F(NamedSession, workers_of_a_named_session_are_killed_with_it) {
  Session session = Session::open("herd");
  PeerGroup group("join_and_stay", {.mode = PeerMode::processes, .size = 2});
  group.start();
  for (int rank = 0; rank < 2; ++rank) test::send_invitation(group.channel(rank), session);
  for (int rank = 0; rank < 2; ++rank) static_cast<void>(group.receive_text(rank));
  end_session("herd", true);
  for (const auto& outcome : group.wait(Deadline::never())) EXPECT_EQ(outcome.kind, Kind::abandoned) << outcome.text;
}

TEST_F(NamedSession, is_opened_again_right_after_it_was_ended) {
  for (int round = 0; round < 10; ++round) {
    Session session = Session::open("often");
    EXPECT_EQ(session.incarnation(), 1U) << "a new one each time";
    session.end();
  }
}

// A keeper that is stopped so long that its backlog is full.
TEST_F(NamedSession, keeper_with_a_full_queue_is_listed_so_and_ended_by_force) {
  Session session = Session::open("full");
  const pid_t keeper = session.keeper_pid();
  ASSERT_EQ(::kill(keeper, SIGSTOP), 0);
  std::vector<Fd> waiting;
  while (auto connection = SessionFolder::open().connect("full")) waiting.push_back(std::move(*connection));
  const auto all = list_sessions();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].keeper_pid, keeper);
  EXPECT_NE(all[0].problem.find("does not accept connections"), std::string::npos) << all[0].problem;
  test::expect_error(Errc::timed_out, [] { static_cast<void>(describe_session("full")); }, {std::to_string(keeper)});
  test::expect_error(Errc::timed_out, [] { end_session("full", false); }, {"by force"});
  end_session("full", true);
  EXPECT_FALSE(is_running(keeper));
}

TEST_F(NamedSession, what_killed_keepers_and_others_left_hides_no_session) {
  Session session = Session::open("fine");
  std::filesystem::create_directory(folder_.path() / "odd.lock");
  std::ofstream(folder_.path() / "started.lock") << "";
  std::ofstream(folder_.path() / "started.new") << "";
  const auto all = list_sessions();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "fine");
  EXPECT_EQ(all[0].problem, "");
  EXPECT_EQ(all[1].name, "odd");
  EXPECT_NE(all[1].problem, "");
  EXPECT_FALSE(has("started.lock"));
  EXPECT_FALSE(has("started.new"));
  std::filesystem::remove(folder_.path() / "odd.lock");
  session.end();
}

TEST_F(NamedSession, keeper_keeps_no_connection_to_its_starter) {
  Session session = Session::open("clean");
  const auto sockets = [&] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", session.keeper_pid()))) {
      std::error_code ignored;
      count += std::filesystem::read_symlink(entry.path(), ignored).string().starts_with("socket:") ? 1 : 0;
    }
    return count;
  };
  EXPECT_TRUE(eventually([&] { return sockets() == 2; })) << "where it listens, and ours; there are " << sockets();
  session.end();
}

DROVER_PEER_BODY(opener_that_ignores_its_children) {
  static_cast<void>(std::signal(SIGCHLD, SIG_IGN));
  Session session = Session::open("childless");
  EXPECT_NO_THROW(session.check());
  session.end();
}

TEST_F(NamedSession, can_be_opened_by_a_program_that_ignores_its_children) {
  PeerGroup group("opener_that_ignores_its_children", kOnePeer);
  group.start();
  group.expect_success();
}

// As daemons do.
DROVER_PEER_BODY(opener_without_streams) {
  for (const int number : {0, 1, 2}) ::close(number);
  Session session = Session::open("quiet");
  for (const int number : {0, 1, 2}) {
    EXPECT_EQ(std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", session.keeper_pid(), number)),
              number == 2 ? SessionFolder::open().path() + "/quiet.log" : "/dev/null");
  }
  static_cast<void>(::write(2, "nobody is to get this\n", 22) < 0);
  session.end();
}

TEST_F(NamedSession, can_be_opened_by_a_program_without_standard_streams) {
  PeerGroup group("opener_without_streams", kOnePeer);
  group.start();
  group.expect_success();
}

}  // namespace
}  // namespace drover::session
