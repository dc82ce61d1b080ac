#include "session/keeper/participant_table.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "session/wire/protocol.hpp"
#include "support/expect_error.hpp"

namespace drover::session {
namespace {

Participant named(const std::string& name, pid_t pid = 100) {
  Participant participant;
  participant.info.name = name;
  participant.info.pid = pid;
  participant.info.start_time = 12345;
  return participant;
}

TEST(ParticipantTable, what_the_keeper_writes_the_others_read) {
  ParticipantTable table;
  const PageView view(table.page_file());
  EXPECT_TRUE(view.participants().empty());
  Participant worker = named("worker", 4711);
  worker.info.is_worker = true;
  const Participant& added = table.add(std::move(worker), false);
  const auto seen = view.participants();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].number, added.info.number);
  EXPECT_EQ(seen[0].incarnation, 1U);
  EXPECT_EQ(seen[0].pid, 4711);
  EXPECT_EQ(seen[0].start_time, 12345U);
  EXPECT_EQ(seen[0].name, "worker");
  EXPECT_EQ(seen[0].state, ParticipantState::present);
  EXPECT_TRUE(seen[0].is_worker);
}

TEST(ParticipantTable, incarnations_are_never_given_twice_and_numbers_rest) {
  ParticipantTable table;
  std::set<std::uint64_t> incarnations;
  std::set<Owner> numbers;
  for (int i = 0; i < 100; ++i) {
    const auto& info = table.add(named("again"), false).info;
    EXPECT_TRUE(incarnations.insert(info.incarnation).second);
    EXPECT_TRUE(numbers.insert(info.number).second) << "a number was given out again although others are free";
    table.remove(info.number);
  }
  EXPECT_EQ(table.population().departed, 100U);
}

TEST(ParticipantTable, number_is_reused_when_all_others_are_taken) {
  ParticipantTable table;
  for (int i = 0; i < kMaxParticipants; ++i) table.add(named("full"), false);
  test::expect_error(Errc::limit_reached, [&] { table.add(named("one more"), false); }, {"1023 participants"});
  test::expect_error(Errc::limit_reached, [&] { table.announce(); }, {"1023 participants"});
  table.remove(500);
  EXPECT_EQ(table.find(500), nullptr);
  EXPECT_EQ(table.add(named("next"), false).info.number, 500);
  EXPECT_EQ(PageView(table.page_file()).participants().size(), std::size_t{kMaxParticipants});
}

TEST(ParticipantTable, place_is_reserved_for_an_announced_participant) {
  ParticipantTable table;
  for (int i = 0; i < kMaxParticipants - 1; ++i) table.add(named("full"), false);
  table.announce();
  test::expect_error(Errc::limit_reached, [&] { table.add(named("uninvited"), false); });
  EXPECT_NO_THROW(table.add(named("invited"), true));
}

TEST(ParticipantTable, population_counts_present_starting_and_departed) {
  ParticipantTable table;
  const PageView view(table.page_file());
  table.announce();
  table.announce();
  EXPECT_EQ(view.population().starting, 2U);
  const Owner number = table.add(named("came"), true).info.number;
  table.retract();
  EXPECT_EQ(view.population().present, 1U);
  EXPECT_EQ(view.population().starting, 0U);
  table.remove(number);
  table.remove(number);
  EXPECT_EQ(view.population().present, 0U);
  EXPECT_EQ(view.population().departed, 1U);
}

TEST(ParticipantTable, counts_fit_in_one_word) {
  const Population most{.present = 1023, .starting = 1023, .departed = (1ULL << 40U) - 1};
  const Population back = unpack(pack(most));
  EXPECT_EQ(back.present, 1023U);
  EXPECT_EQ(back.starting, 1023U);
  EXPECT_EQ(back.departed, most.departed);
}

// An announced participant is always counted as starting or present: all counts change in one store.
TEST(ParticipantTable, no_participant_vanishes_between_starting_and_present) {
  ParticipantTable table;
  const PageView view(table.page_file());
  table.announce();
  std::atomic<bool> is_over = false;
  std::thread reader([&] {
    while (!is_over) {
      const Population seen = view.population();
      EXPECT_GE(seen.present + seen.starting, 1U);
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const Owner number = table.add(named("blink"), true).info.number;
    table.announce();
    table.remove(number);
  }
  is_over = true;
  reader.join();
}

TEST(ParticipantTable, reader_never_sees_half_of_a_participant) {
  ParticipantTable table;
  const PageView view(table.page_file());
  std::atomic<bool> is_over = false;
  std::thread reader([&] {
    while (!is_over) {
      for (const auto& info : view.participants()) {
        EXPECT_EQ(info.name, std::to_string(info.pid) + std::string(40, '.')) << "name and pid of different ones";
      }
    }
  });
  for (int i = 1; i < 3000; ++i) {
    const Owner number = table.add(named(std::to_string(i) + std::string(40, '.'), i), false).info.number;
    if (i % 3 == 0) table.set_silent(*table.find(number));
    table.remove(number);
  }
  is_over = true;
  reader.join();
}

TEST(ParticipantTable, silent_participant_is_shown_so) {
  ParticipantTable table;
  const PageView view(table.page_file());
  Participant& participant = table.add(named("quiet"), false);
  participant.connection = 9;
  table.set_silent(participant);
  EXPECT_EQ(participant.connection, 0U);
  EXPECT_EQ(view.participants().at(0).state, ParticipantState::silent);
  EXPECT_EQ(to_string(ParticipantState::silent), "silent");
  EXPECT_EQ(to_string(ParticipantState::present), "present");
}

TEST(ParticipantTable, one_is_found_by_incarnation) {
  ParticipantTable table;
  table.add(named("first"), false);
  table.add(named("second"), false);
  ASSERT_NE(table.find_incarnation(2), nullptr);
  EXPECT_EQ(table.find_incarnation(2)->info.name, "second");
  EXPECT_EQ(table.find_incarnation(3), nullptr);
}

TEST(ParticipantTable, longest_name_is_shown_whole) {
  ParticipantTable table;
  const std::string name(kMostNameBytes, 'n');
  table.add(named(name), false);
  EXPECT_EQ(PageView(table.page_file()).participants().at(0).name, name);
}

TEST(ParticipantTable, everybody_sees_that_the_session_ends) {
  ParticipantTable table;
  const PageView view(table.page_file());
  EXPECT_FALSE(view.is_ending());
  EXPECT_GE(view.age().count(), 0);
  table.set_ending();
  EXPECT_TRUE(view.is_ending());
}

TEST(PageView, what_is_no_page_is_corrupt) {
  test::expect_error(Errc::corrupt, [] { const PageView view(make_memory_file("short", 4096)); });
  test::expect_error(Errc::corrupt, [] { const PageView view(make_memory_file("zero", sizeof(SessionPage))); },
                     {"not the page of a session of this version"});
  const Fd closed;
  test::expect_error(Errc::corrupt, [&] { const PageView view(closed); });
}

TEST(PageView, slot_over_which_the_keeper_died_is_left_out) {
  ParticipantTable table;
  table.add(named("whole"), false);
  const Owner torn = table.add(named("torn"), false).info.number;
  const PageView view(table.page_file());
  const Mapping keepers = Mapping::shared(table.page_file(), sizeof(SessionPage));
  ++reinterpret_cast<SessionPage*>(keepers.data())->slots.at(torn).version;
  const auto seen = view.participants();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].name, "whole");
}

TEST(PageView, slot_with_an_unknown_state_is_left_out) {
  ParticipantTable table;
  const Owner number = table.add(named("odd"), false).info.number;
  const Mapping keepers = Mapping::shared(table.page_file(), sizeof(SessionPage));
  reinterpret_cast<SessionPage*>(keepers.data())->slots.at(number).state = 77;
  EXPECT_TRUE(PageView(table.page_file()).participants().empty());
}

}  // namespace
}  // namespace drover::session
