// Shared values: always consistent.
#include "drover/ipc/value.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "ipc/sync/sync_support.hpp"
#include "ipc/sync/value_layout.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
namespace {

using test::eventually;
using test::expect_error;
using test::Herd;
using test::kKills;
using test::kRounds;
using test::TestSession;

struct Largest {
  std::array<std::uint64_t, 8> words;
};

struct Odd {
  std::array<char, 13> text;
};

TEST(Value, holds_the_value_that_was_stored_last) {
  TestSession session;
  Value<int> value(session.join(), 7);
  Value<int> other(session.join(), value.handle());
  EXPECT_EQ(other.load(), 7);
  other.store(-8);
  EXPECT_EQ(value.load(), -8);
  const Value<double> zero(session.join());
  EXPECT_EQ(zero.load(), 0.0);
}

TEST(Value, can_have_any_size_up_to_64_bytes) {
  TestSession session;
  const Odd odd{{'d', 'r', 'o', 'v', 'e', 'r', 0, 1, 2, 3, 4, 5, 6}};
  const Value<Odd> first(session.join(), odd);
  EXPECT_EQ(first.load().text, odd.text);
  const Largest largest{{1, 2, 3, 4, 5, 6, 7, 8}};
  Value<Largest> second(session.join());
  second.store(largest);
  EXPECT_EQ(second.load().words, largest.words);
  const Value<char> third(session.join(), 'x');
  EXPECT_EQ(third.load(), 'x');
}

TEST(Value, opened_as_another_size_is_an_error) {
  TestSession session;
  const auto membership = session.join();
  const Value<int> value(session.join());
  expect_error(Errc::invalid_argument, [&] { const Value<double> wrong(membership, value.handle()); },
               {"has 4 bytes, not 8"});
}

TEST(Value, impossible_size_is_refused_by_the_keeper) {
  TestSession session;
  const auto membership = session.join();
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{65}}) {
    expect_error(Errc::invalid_argument,
                 [&] { static_cast<void>(membership->create({.kind = ObjectKind::value, .parameters = {size}})); });
  }
}

TEST(Value, update_returns_the_new_value) {
  TestSession session;
  Value<int> value(session.join(), 20);
  EXPECT_EQ(value.update([](int old) { return old + 1; }), 21);
  EXPECT_EQ(value.load(), 21);
}

TEST(Value, update_that_throws_changes_nothing_and_blocks_nobody) {
  TestSession session;
  Value<int> value(session.join(), 5);
  EXPECT_THROW(value.update([](int) -> int { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(value.load(), 5);
  value.store(6);
  EXPECT_EQ(value.load(), 6);
}

TEST(Value, write_from_within_an_update_is_an_error_not_a_hang) {
  TestSession session;
  Value<int> value(session.join(), 5);
  const auto store_inside = [&](int old) {
    value.store(old + value.load());
    return old;
  };
  expect_error(Errc::invalid_argument, [&] { value.update(store_inside); }, {"wait for itself"});
  EXPECT_EQ(value.load(), 5);
  value.store(6);
  EXPECT_EQ(value.load(), 6);
}

TEST(Value, child_forked_within_an_update_neither_writes_nor_frees_the_lock) {
  TestSession session;
  const auto membership = session.join();
  Value<int> value(membership, 5);
  const auto& lock = test::layout_for<ValueLayout>(membership, value.handle()).lock;
  const Owner self = membership->self();
  pid_t child = -1;
  const auto fork_and_add = [&](int old) {
    child = ::fork();
    if (child == 0) return old + 100;
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(holder_of(lock), self);
    EXPECT_EQ(value.load(), 5);
    return old + 1;
  };
  try {
    EXPECT_EQ(value.update(fork_and_add), 6);
  } catch (const Error& error) {
    if (child == 0) ::_exit(error.code() == Errc::forked ? 0 : 1);
    throw;
  }
  if (child == 0) ::_exit(2);
  EXPECT_EQ(value.load(), 6);
}

TEST(Value, waiting_ends_with_an_error_when_the_session_is_over) {
  TestSession session;
  const auto membership = session.join();
  Value<int> value(membership, 5);
  const auto holder = session.join();
  auto& lock = test::layout_for<ValueLayout>(membership, value.handle()).lock;
  ASSERT_EQ(try_claim(lock, self_as_holder(*holder)), LockResult::acquired);  // like a stopped writer
  std::thread ender([&] { session.end(); });
  expect_error(Errc::peer_lost, [&] { value.store(6); });
  ender.join();
  EXPECT_EQ(value.load(), 5);
}

TEST(Value, threads_lose_no_update) {
  TestSession session;
  const Value<std::int64_t> value(session.join());
  test::run_threads(session, 4, [&](const std::shared_ptr<Membership>& membership, int) {
    Value<std::int64_t> mine(membership, value.handle());
    for (int round = 0; round < kRounds; ++round) mine.update([](std::int64_t old) { return old + 1; });
  });
  EXPECT_EQ(value.load(), std::int64_t{4} * kRounds);
}

bool is_whole(const Largest& value) {
  for (const std::uint64_t word : value.words) {
    if (word != value.words[0]) return false;
  }
  return true;
}

Largest all(std::uint64_t number) {
  Largest value{};
  value.words.fill(number);
  return value;
}

TEST(Value, readers_never_see_half_a_write) {
  TestSession session;
  const Value<Largest> value(session.join());
  test::run_threads(session, 4, [&](const std::shared_ptr<Membership>& membership, int index) {
    Value<Largest> mine(membership, value.handle());
    std::uint64_t last = 0;
    for (int round = 1; round <= kRounds; ++round) {
      if (index == 0) {
        mine.store(all(static_cast<std::uint64_t>(round)));
      } else {
        const Largest seen = mine.load();
        ASSERT_TRUE(is_whole(seen));
        ASSERT_GE(seen.words[0], last);
        last = seen.words[0];
      }
    }
  });
}

// Adds one to all words; killed anywhere.
DROVER_PEER_BODY(write_value) {
  const auto invited = test::accept_invitation(peer.channel());
  Value<Largest> value(invited.membership, invited.handles.at(0));
  for (;;) value.update([](const Largest& old) { return all(old.words[0] + 1); });
}

TEST(ValueTorture, killed_writers_leave_an_intact_value_and_block_nobody) {
  TestSession session;
  Value<Largest> value(session.join());
  Herd herd(session, "write_value", {value.handle()});
  herd.add();
  herd.add();
  test::RandomPause pause;
  for (int kill = 0; kill < kKills; ++kill) {
    const std::size_t place = pause.pick(herd.size());
    const std::uint64_t before = value.load().words[0];
    ASSERT_TRUE(eventually([&] { return value.load().words[0] > before; }));
    pause();
    herd.remove(place);
    const Largest seen = value.load();
    ASSERT_TRUE(is_whole(seen));
    ASSERT_GE(seen.words[0], before);
    ASSERT_TRUE(eventually([&] { return value.load().words[0] > seen.words[0]; })) << "after kill " << kill;
    herd.replace(place);
  }
}

}  // namespace
}  // namespace drover::ipc
