#include "session/keeper/keeper.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/mapping.hpp"
#include "drover/ipc/event.hpp"
#include "session/client/session_helpers.hpp"
#include "session/client/session_state.hpp"
#include "session/keeper/keeper_thread.hpp"
#include "session/wire/process_identity.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/leftovers.hpp"
#include "support/peer_group.hpp"

namespace drover::session {
namespace {

using namespace std::chrono_literals;
using test::FaultSeam;
using test::KeeperThread;

constexpr std::chrono::milliseconds kKeeperPatience{20000};

std::shared_ptr<SessionState> join(KeeperThread& keeper) {
  auto state = std::make_shared<SessionState>(keeper.take_connection(), "test", kKeeperPatience);
  keeper.close_starter();
  return state;
}

std::shared_ptr<SessionState> join_invited(SessionState& host, const std::string& name) {
  return std::make_shared<SessionState>(host.ask_for_file({.type = RequestType::invite, .name = name}), "",
                                        kKeeperPatience);
}

// Of a named session, where a visitor that joins is not a worker.
class NamedKeeper : public ::testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<SessionState> join_as(const std::string& name) const {
    return std::make_shared<SessionState>(keeper_.connect(), name, kKeeperPatience);
  }

  test::OwnRuntimeFolder folder_;
  KeeperThread keeper_{KeeperSettings{.name = "kept", .idle_limit = 3600s}};
};

Reply receive_reply(Channel& channel) {
  ChannelMessage message;
  EXPECT_EQ(channel.receive(message, Deadline::after(20s)), ReceiveResult::message);
  return parse_reply(std::as_bytes(std::span(message.bytes.data(), message.bytes.size())));
}

bool is_dropped(Channel& channel) {
  ChannelMessage message;
  for (;;) {
    const auto result = channel.receive(message, Deadline::after(20s));
    if (result != ReceiveResult::message) return result == ReceiveResult::peer_lost;
  }
}

Request join_request(const std::string& name = "raw") {
  return {
      .type = RequestType::join, .sequence = 1, .number = process_start_time(::getpid()).value_or(0), .name = name};
}

constexpr ObjectSpec kKeptEvent{.kind = ObjectKind::event, .parameters = {}};

TEST(Keeper, application_joins_and_its_leaving_ends_the_session) {
  KeeperThread keeper;
  auto state = join(keeper);
  EXPECT_NE(state->self(), kNobody);
  EXPECT_EQ(state->incarnation(), 1U);
  EXPECT_EQ(state->name(), "");
  EXPECT_EQ(state->keeper_pid(), ::getpid());
  EXPECT_EQ(state->population().present, 1U);
  ASSERT_EQ(state->participants().size(), 1U);
  EXPECT_EQ(state->participants()[0].name, "test");
  EXPECT_EQ(state->participants()[0].pid, ::getpid());
  EXPECT_FALSE(state->participants()[0].is_worker);
  state.reset();
  keeper.join();
}

TEST(Keeper, application_that_gives_up_before_it_joins_ends_the_session) {
  KeeperThread keeper;
  keeper.close_starter();
  keeper.join();
}

TEST(Keeper, objects_go_with_their_last_opening_and_memory_files_with_their_last_object) {
  KeeperThread keeper;
  auto host = join(keeper);
  auto guest = join_invited(*host, "guest");
  const OpenObject made = host->create(kKeptEvent);
  const OpenObject opened = guest->open(made.handle);
  EXPECT_EQ(opened.handle, made.handle);
  EXPECT_EQ(opened.spec.kind, ObjectKind::event);
  EXPECT_NE(opened.data, made.data) << "each maps it by itself";
  const OpenObject again = guest->open(made.handle);
  EXPECT_EQ(again.data, opened.data) << "one maps it once";
  host->close(made.handle);
  guest->close(made.handle);
  EXPECT_EQ(guest->open(made.handle).data, opened.data) << "one of two openings was closed";
  guest->close(made.handle);
  guest->close(made.handle);
  const auto counts = [&] { return host->ask({.type = RequestType::describe}).reply.counts; };
  EXPECT_TRUE(test::eventually([&] { return counts().objects == 0; }));
  EXPECT_EQ(counts().object_bytes, 0U);
  test::expect_error(Errc::not_found, [&] { static_cast<void>(guest->open(made.handle)); },
                     {made.handle.to_string()});
}

TEST(Keeper, memory_file_is_sent_again_after_it_was_closed) {
  KeeperThread keeper;
  auto host = join(keeper);
  auto guest = join_invited(*host, "guest");
  const OpenObject first = host->create(kKeptEvent);
  const OpenObject second = host->create(kKeptEvent);
  ASSERT_EQ(first.handle.slab, second.handle.slab) << "small objects share a file";
  for (int round = 0; round < 3; ++round) {
    EXPECT_NE(guest->open(first.handle).data, nullptr);
    EXPECT_NE(guest->open(second.handle).data, nullptr);
    guest->close(first.handle);
    guest->close(second.handle);
  }
}

TEST(Keeper, bad_spec_is_an_error_and_leaves_nothing) {
  KeeperThread keeper;
  auto host = join(keeper);
  ObjectSpec bad{.kind = ObjectKind::queue, .parameters = {~0ULL, ~0ULL}};
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(host->create(bad)); });
  EXPECT_EQ(host->ask({.type = RequestType::describe}).reply.counts.objects, 0U);
}

TEST(Keeper, invitation_counts_as_starting_until_it_is_used_or_closed) {
  KeeperThread keeper;
  auto host = join(keeper);
  Fd unused = host->ask_for_file({.type = RequestType::invite, .name = "never"});
  Fd used = host->ask_for_file({.type = RequestType::invite, .name = "soon"});
  EXPECT_EQ(host->population().starting, 2U);
  auto guest = std::make_shared<SessionState>(std::move(used), "ignored", kKeeperPatience);
  EXPECT_EQ(host->population().starting, 1U);
  EXPECT_EQ(host->population().present, 2U);
  const auto seen = host->participants();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[1].name, "soon") << "the invitation's name counts";
  EXPECT_TRUE(seen[1].is_worker);
  unused.reset();
  EXPECT_TRUE(test::eventually([&] { return host->population().starting == 0; }));
  guest.reset();
  EXPECT_EQ(host->population().present, 1U) << "a participant is gone when its leave returns";
  EXPECT_EQ(host->population().departed, 1U);
}

TEST(Keeper, garbage_is_dropped_and_the_others_are_served) {
  const test::CapturedLog log;
  KeeperThread keeper;
  auto host = join(keeper);
  for (const std::string& bytes : {std::string("x"), std::string(request_bytes, '\0'), std::string(5000, 'y')}) {
    Channel channel(host->ask_for_file({.type = RequestType::invite, .name = "hostile"}));
    channel.send(bytes);
    EXPECT_EQ(receive_reply(channel).failure, Errc::corrupt);
    EXPECT_TRUE(is_dropped(channel));
  }
  EXPECT_NO_THROW(host->ask({.type = RequestType::describe}));
  EXPECT_EQ(host->population().starting, 0U);
  EXPECT_TRUE(log.contains("control message of a session"));
}

TEST_F(NamedKeeper, unrequested_descriptors_are_closed) {
  Channel channel(keeper_.connect());
  channel.send(encode(Request{.type = RequestType::describe}));
  static_cast<void>(receive_reply(channel));
  const std::size_t before = test::open_descriptors().size();
  const std::vector<int> many(50, STDERR_FILENO);
  channel.send(encode(Request{.type = RequestType::describe}), many);
  EXPECT_FALSE(receive_reply(channel).failure);
  // The keeper, a thread here, closes them after it has sent the reply.
  EXPECT_TRUE(test::eventually([&] { return test::open_descriptors().size() <= before; }));
}

TEST_F(NamedKeeper, client_that_does_not_read_is_dropped_and_the_others_are_served) {
  auto host = join_as("host");
  Channel channel(keeper_.connect());
  const std::string describe = encode(Request{.type = RequestType::describe});
  SendResult result = SendResult::sent;
  for (int sent = 0; result == SendResult::sent; ++sent) {
    ASSERT_LT(sent, 100000);
    result = channel.send(describe, {}, Deadline::after(20s));
  }
  EXPECT_EQ(result, SendResult::peer_lost);
  EXPECT_NO_THROW(host->ask({.type = RequestType::describe}));
}

TEST(Keeper, visitor_may_read_but_not_change) {
  const test::CapturedLog log;
  KeeperThread keeper;
  auto host = join(keeper);
  for (const auto type :
       {RequestType::create, RequestType::open, RequestType::invite, RequestType::deposit, RequestType::fetch,
        RequestType::withdraw, RequestType::leave, RequestType::hello, RequestType::file}) {
    SCOPED_TRACE(to_string(type));
    Channel channel(host->ask_for_file({.type = RequestType::invite, .name = "visitor"}));
    channel.send(encode(Request{.type = RequestType::describe, .sequence = 1}));
    EXPECT_FALSE(receive_reply(channel).failure);
    channel.send(encode(Request{.type = type, .sequence = 2, .name = "x"}));
    EXPECT_EQ(receive_reply(channel).failure, Errc::corrupt);
    EXPECT_TRUE(is_dropped(channel));
  }
}

TEST_F(NamedKeeper, join_of_a_process_that_is_not_the_sender_is_refused) {
  Channel channel(keeper_.connect());
  Request request = join_request();
  request.number += 1;  // as if the pid were that of a later process, or its clock another
  channel.send(encode(request));
  const Reply refused = receive_reply(channel);
  EXPECT_EQ(refused.failure, Errc::unsupported);
  EXPECT_NE(refused.text.find("reports the start time"), std::string::npos) << refused.text;
  channel.send(encode(join_request()));
  const Reply joined = receive_reply(channel);
  EXPECT_FALSE(joined.failure) << "the right one may join";
  EXPECT_EQ(joined.number, 1U) << "and is the first";
}

TEST_F(NamedKeeper, second_join_and_nameless_join_are_refused) {
  const test::CapturedLog log;
  auto host = join_as("host");
  Channel channel(keeper_.connect());
  channel.send(encode(join_request()));
  EXPECT_FALSE(receive_reply(channel).failure);
  channel.send(encode(join_request()));
  EXPECT_EQ(receive_reply(channel).failure, Errc::corrupt);
  EXPECT_EQ(host->population().present, 2U);
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(host->ask_for_file({.type = RequestType::invite})); },
                     {"is empty"});
}

// It has the connection of the participant, and is another process.
TEST_F(NamedKeeper, forked_child_cannot_ask_over_the_connection_of_its_parent) {
  auto host = join_as("host");
  Channel channel(keeper_.connect());
  channel.send(encode(join_request()));
  EXPECT_FALSE(receive_reply(channel).failure);
  const auto request = encode(Request{.type = RequestType::create, .sequence = 2, .spec = kKeptEvent});
  const pid_t child = ::fork();
  if (child == 0) {
    channel.send(request);
    ::_exit(0);
  }
  EXPECT_EQ(receive_reply(channel).failure, Errc::forked);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  channel.send(encode(Request{.type = RequestType::create, .sequence = 3, .spec = kKeptEvent}));
  EXPECT_FALSE(receive_reply(channel).failure) << "the participant itself may go on";
}

TEST_F(NamedKeeper, silent_participant_keeps_what_it_holds) {
  auto host = join_as("host");
  const OpenObject made = host->create(kKeptEvent);
  {
    Channel channel(keeper_.connect());
    channel.send(encode(join_request()));
    EXPECT_FALSE(receive_reply(channel).failure);
    channel.send(encode(Request{.type = RequestType::open, .sequence = 2, .handle = made.handle}));
    EXPECT_FALSE(receive_reply(channel).failure);
  }
  ASSERT_TRUE(test::eventually([&] { return host->participants().at(1).state == ParticipantState::silent; }));
  host->close(made.handle);
  EXPECT_NO_THROW(static_cast<void>(host->open(made.handle))) << "the silent one still has it open";
  EXPECT_EQ(host->population().present, 2U);
}

TEST(Keeper, slabs_are_held_until_they_are_withdrawn) {
  KeeperThread keeper;
  auto host = join(keeper);
  auto guest = join_invited(*host, "guest");
  const Fd file = make_memory_file("slab", 4096);
  Mapping::shared(file, 4096).bytes()[7] = std::byte{42};
  const auto number =
      guest->ask({.type = RequestType::deposit, .number = 4096, .name = "weights"}, file.get()).reply.number;
  guest.reset();
  const Fd fetched = host->ask_for_file({.type = RequestType::fetch, .number = number});
  EXPECT_EQ(Mapping::shared(fetched, 4096).bytes()[7], std::byte{42});
  const Reply listed = host->ask({.type = RequestType::list, .number = 0}).reply;
  EXPECT_EQ(listed.number, number);
  EXPECT_EQ(listed.text, "weights");
  EXPECT_EQ(listed.counts.slab_bytes, 4096U);
  EXPECT_EQ(host->ask({.type = RequestType::list, .number = number}).reply.number, 0U);
  host->ask({.type = RequestType::withdraw, .number = number});
  host->ask({.type = RequestType::withdraw, .number = number});
  test::expect_error(Errc::not_found,
                     [&] { static_cast<void>(host->ask({.type = RequestType::fetch, .number = number})); });
  const auto next = host->ask({.type = RequestType::deposit, .name = "next"}, file.get()).reply.number;
  EXPECT_GT(next, number) << "numbers are never used twice";
}

TEST_F(NamedKeeper, deposit_without_a_descriptor_is_refused) {
  const test::CapturedLog log;
  auto guest = join_as("guest");
  test::expect_error(Errc::corrupt, [&] { guest->ask({.type = RequestType::deposit, .name = "nothing"}); },
                     {"0 descriptors"});
}

TEST_F(NamedKeeper, one_process_cannot_take_the_places_of_others) {
  std::vector<std::shared_ptr<SessionState>> joined;
  test::expect_error(Errc::limit_reached,
                     [&] {
                       for (int i = 0; i < 500; ++i) joined.push_back(join_as("again"));
                     },
                     {std::to_string(::getpid()), "64 times"});
  EXPECT_EQ(joined.size(), 64U);
  joined.pop_back();
  EXPECT_NO_THROW(joined.push_back(join_as("again")));
}

TEST(Keeper, lack_of_descriptors_in_the_keeper_is_an_error_and_nothing_is_lost) {
  KeeperThread keeper;
  auto host = join(keeper);
  const auto ask_invite = [&] { static_cast<void>(host->ask_for_file({.type = RequestType::invite, .name = "x"})); };
  {
    const FaultSeam fail("socketpair", EMFILE);
    test::expect_error(Errc::limit_reached, ask_invite, {"socketpair", "ulimit -n"});
  }
  {
    const FaultSeam fail("epoll_ctl", ENOSPC, {.times = 1});
    test::expect_error(Errc::limit_reached, ask_invite, {"epoll_ctl"});
  }
  {
    const FaultSeam fail("memfd_create", EMFILE);
    test::expect_error(Errc::limit_reached, [&] { static_cast<void>(host->create(kKeptEvent)); });
  }
  EXPECT_EQ(host->population().starting, 0U);
  Fd end = host->ask_for_file({.type = RequestType::invite, .name = "patient"});
  Channel channel(std::move(end));
  for (const char* const call : {"pidfd_open", "epoll_ctl"}) {
    const FaultSeam fail(call, EMFILE);
    channel.send(encode(join_request()));
    EXPECT_EQ(receive_reply(channel).failure, Errc::limit_reached) << call;
    EXPECT_EQ(host->population().present, 1U) << call;
  }
}

// Descriptors on their way are limited for all processes of a user together.
TEST_F(NamedKeeper, descriptor_that_cannot_be_sent_is_an_error_and_nothing_stays_done) {
  auto host = join_as("host");
  const OpenObject made = host->create(kKeptEvent);
  const auto expect_refused = [&](const std::function<void()>& action) {
    const FaultSeam fail("sendmsg", ETOOMANYREFS, {.nth = 2, .times = 1});  // the first is the request
    test::expect_error(Errc::limit_reached, action, {"a descriptor for a client", "ulimit -n"});
  };
  expect_refused([&] { static_cast<void>(join_as("guest")); });
  EXPECT_EQ(host->population().present, 1U);
  auto guest = join_as("guest");
  expect_refused([&] { static_cast<void>(guest->open(made.handle)); });
  expect_refused([&] { static_cast<void>(guest->create(kKeptEvent)); });
  EXPECT_EQ(guest->ask({.type = RequestType::describe}).reply.counts.objects, 1U);
  expect_refused([&] { static_cast<void>(guest->ask_for_file({.type = RequestType::invite, .name = "x"})); });
  EXPECT_TRUE(test::eventually([&] { return host->population().starting == 0; }));
  EXPECT_NE(guest->open(made.handle).data, nullptr) << "and the memory file comes with the next";
}

TEST_F(NamedKeeper, second_keeper_of_a_name_is_refused) {
  const KeeperSettings settings{.name = "kept", .idle_limit = 3600s};
  test::expect_error(Errc::busy, [&] { const KeeperThread second(settings); }, {"'kept' already has a keeper"});
  EXPECT_NO_THROW(static_cast<void>(join_as("late")));
}

TEST_F(NamedKeeper, visitor_gets_an_error_if_there_is_no_descriptor) {
  {
    const FaultSeam fail("accept4", EMFILE, {.times = 1});
    KeeperLink link(keeper_.connect(), kKeeperPatience);
    test::expect_error(Errc::limit_reached, [&] { link.ask({.type = RequestType::describe}); }, {"in the keeper"});
  }
  KeeperLink link(keeper_.connect(), kKeeperPatience);
  EXPECT_EQ(link.ask({.type = RequestType::describe}).reply.text, "kept");
}

TEST(Keeper, session_without_participants_ends_after_its_idle_limit) {
  const test::OwnRuntimeFolder folder;
  KeeperThread keeper({.name = "idle", .idle_limit = 1s});
  keeper.join();
  EXPECT_TRUE(folder.is_empty());
}

TEST_F(NamedKeeper, visitor_ends_a_session_with_participants_only_by_force) {
  auto member = join_as("member");
  KeeperLink link(keeper_.connect(), kKeeperPatience);
  test::expect_error(Errc::busy, [&] { link.ask({.type = RequestType::end}); }, {"'kept' has 1 participants"});
  EXPECT_NO_THROW(member->check());
  link.ask({.type = RequestType::end, .number = 1});
  keeper_.join();
  test::expect_error(Errc::peer_lost, [&] { member->check(); },
                     {"session 'kept' has ended", std::to_string(::getpid())});
}

TEST_F(NamedKeeper, requests_to_a_session_that_ends_are_refused) {
  auto host = join_as("host");
  auto guest = join_as("guest");
  host->ask({.type = RequestType::end, .number = 1});
  keeper_.join();
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(guest->create(kKeptEvent)); }, {"'kept' has ended"});
  EXPECT_TRUE(folder_.is_empty());
}

TEST_F(NamedKeeper, files_of_the_next_keeper_of_the_name_are_left_alone) {
  std::filesystem::remove(folder_.path() / "kept.lock");  // as systems do that clean up /tmp
  KeeperLink first(keeper_.connect(), kKeeperPatience);
  static_cast<void>(first.ask({.type = RequestType::describe}));
  {
    const KeeperThread next(KeeperSettings{.name = "kept", .idle_limit = 3600s});
    first.ask({.type = RequestType::end, .number = 1});
    keeper_.join();
    EXPECT_NO_THROW(KeeperLink(next.connect(), kKeeperPatience).ask({.type = RequestType::describe}));
  }
  EXPECT_TRUE(folder_.is_empty());
}

// Trying again and again would cost the machine a CPU for nothing.
TEST_F(NamedKeeper, without_any_descriptor_in_the_machine_it_listens_again_later) {
  KeeperLink link = [&] {
    const FaultSeam fail("accept4", ENFILE);
    const FaultSeam fail_again("accept4 again", ENFILE);
    KeeperLink early(keeper_.connect(), kKeeperPatience);
    EXPECT_TRUE(test::eventually([&] { return fail_again.strikes() > 0; }));
    std::this_thread::sleep_for(50ms);
    EXPECT_LE(fail_again.strikes(), 2);
    return early;
  }();
  EXPECT_EQ(link.ask({.type = RequestType::describe}).reply.text, "kept");
}

TEST(Keeper, name_that_it_cannot_listen_under_is_given_up) {
  const test::OwnRuntimeFolder folder;
  for (const char* const call : {"bind", "listen", "renameat"}) {
    const FaultSeam fail(call, ENOMEM);
    test::expect_error(Errc::out_of_memory, [] { const KeeperThread keeper({.name = "failed"}); }, {call});
    EXPECT_TRUE(folder.is_empty()) << call;
  }
}

TEST_F(NamedKeeper, dropped_client_learns_that_the_keeper_is_alive) {
  Fd connection = keeper_.connect();
  Channel careless(connection.duplicate());
  KeeperLink link(std::move(connection), kKeeperPatience);
  careless.send("this is no request");
  ASSERT_TRUE(test::eventually([&] { return link.is_hung_up(); }));
  EXPECT_NE(std::string(link.lost_error().what()).find("has dropped its connection"), std::string::npos);
}

// Killing takes long here: the keeper tries to find the descendants of the worker and fails.
TEST(Keeper, answer_to_an_end_comes_before_workers_are_killed) {
  KeeperThread keeper;
  test::PeerGroup group("join_and_stay", {.mode = test::PeerMode::processes, .size = 1});
  group.start();
  const auto host = std::make_shared<SessionState>(keeper.take_connection(), "test", 1s);
  keeper.close_starter();
  const Fd invitation = host->ask_for_file({.type = RequestType::invite, .name = "worker"});
  group.channel(0).send("come", std::array{invitation.get()});
  static_cast<void>(group.receive_text(0));
  const test::CapturedLog log;
  {
    const FaultSeam blind("openat", EMFILE);
    EXPECT_NO_THROW(host->ask({.type = RequestType::end, .number = 1}));
  }
  EXPECT_EQ(group.wait(Deadline::never()).at(0).kind, test::PeerOutcome::Kind::abandoned);
  keeper.join();
}

}  // namespace
}  // namespace drover::session
