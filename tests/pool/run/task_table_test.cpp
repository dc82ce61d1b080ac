// The registered tasks of a program.
#include "pool/run/task_table.hpp"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/expect_error.hpp"

namespace drover::pool {
namespace {

using test::expect_error;

const TaskBody empty_body = [](Decoder& /*from*/, Encoder& /*to*/) {};

std::uint64_t fingerprint_of(std::initializer_list<std::pair<std::string, std::string>> tasks) {
  TaskTable table;
  for (const auto& [name, signature] : tasks) table.add(name, signature, empty_body);
  table.close();
  return table.fingerprint();
}

TEST(TaskTable, tasks_are_numbered_by_name_when_it_closes) {
  TaskTable table;
  const auto& second = table.add("b", "() -> nothing", empty_body);
  const auto& first = table.add("a", "(int32) -> int32", empty_body);
  table.close();
  table.close();
  EXPECT_EQ(first.index, 0U);
  EXPECT_EQ(second.index, 1U);
  EXPECT_EQ(first.signature, "(int32) -> int32");
  EXPECT_EQ(table.at(1), &second);
  EXPECT_EQ(table.at(2), nullptr);
  EXPECT_EQ(table.at(0xFFFFFFFF), nullptr);
  EXPECT_EQ(table.all().size(), 2U);
  EXPECT_EQ(&table.find("a"), &first);
}

TEST(TaskTable, closing_reports_a_duplicate_name) {
  TaskTable table;
  table.add("twin", "()", empty_body);
  table.add("twin", "(int32)", empty_body);
  expect_error(Errc::invalid_argument, [&] { table.close(); }, {"two tasks are named 'twin'", "unique name"});
  expect_error(Errc::invalid_argument, [&] { table.close(); });
}

TEST(TaskTable, empty_names_and_late_tasks_are_refused) {
  TaskTable table;
  expect_error(Errc::invalid_argument, [&] { table.add("", "()", empty_body); }, {"empty name"});
  table.close();
  expect_error(Errc::invalid_argument, [&] { table.add("late", "()", empty_body); }, {"'late'", "before main"});
  EXPECT_TRUE(table.all().empty());
}

TEST(TaskTable, an_unknown_name_is_reported_with_existing_ones) {
  TaskTable table;
  const auto find = [&] { static_cast<void>(table.find("x")); };
  expect_error(Errc::not_found, find, {"no task is named 'x'", "none"});
  for (int i = 10; i < 40; ++i) table.add("task-" + std::to_string(i), "()", empty_body);
  expect_error(Errc::not_found, find, {"the 30 tasks", "task-10, task-11", "task-29"});
}

TEST(TaskTable, different_programs_have_different_fingerprints) {
  const auto one = fingerprint_of({{"a", "x"}, {"b", "y"}});
  EXPECT_EQ(one, fingerprint_of({{"b", "y"}, {"a", "x"}}));
  EXPECT_NE(one, fingerprint_of({{"a", "x"}}));
  EXPECT_NE(one, fingerprint_of({{"a", "y"}, {"b", "x"}}));
  EXPECT_NE(fingerprint_of({{"ab", "c"}}), fingerprint_of({{"a", "bc"}}));
  EXPECT_NE(fingerprint_of({}), fingerprint_of({{"a", ""}}));
}

const auto known = task("task_table_test.known", [](int /*number*/, const std::vector<std::string>& /*names*/) {
  return std::optional<double>();
});

TEST(TaskTable, tasks_of_this_program_are_in_its_table) {
  EXPECT_EQ(TaskTable::instance().find("task_table_test.known").signature,
            "(int32,list<string>) -> optional<float64>");
}

TEST(TaskTable, arguments_are_converted_to_the_types_of_the_task) {
  const Encoder to = decltype(known)::encode(std::int16_t{2}, std::vector<std::string>{"a"});
  EXPECT_EQ(describe_values(std::as_bytes(std::span(to.bytes())), {}), "2, [\"a\"]");
}

TEST(TaskTable, a_body_reads_all_its_arguments_and_writes_the_result) {
  Encoder arguments = decltype(known)::encode(1, std::vector<std::string>{});
  Encoder result;
  Decoder from(std::as_bytes(std::span(arguments.bytes())));
  known.registered().body(from, result);
  EXPECT_EQ(describe_values(std::as_bytes(std::span(result.bytes())), {}), "nothing");
  arguments.write(true);
  expect_error(Errc::corrupt, [&] {
    Decoder more(std::as_bytes(std::span(arguments.bytes())));
    known.registered().body(more, result);
  });
}

}  // namespace
}  // namespace drover::pool
