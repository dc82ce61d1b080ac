// Line tables as compilers of Python write them. Whole processes: tests/cli/test_process_doctor.py.
#include "process/inspect/python_stacks.hpp"

#include <unistd.h>

#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace drover::process {
namespace {

std::vector<std::byte> table_of(const std::vector<int>& bytes) {
  std::vector<std::byte> table;
  for (const int each : bytes) table.push_back(static_cast<std::byte>(each));
  return table;
}

int line_in(int minor, const std::vector<int>& bytes, std::int64_t index) {
  const auto table = table_of(bytes);
  return line_of_instruction(minor, table, 100, index);
}

TEST(PythonStacks, program_without_an_interpreter_has_none) { EXPECT_TRUE(read_python_stacks(::getpid()).empty()); }

TEST(PythonStacks, lines_in_pairs_of_distances) {
  const std::vector<int> table = {4, 1, 2, 0x80, 6, 0xFF};  // 2 instructions; 1 without a line; 3
  EXPECT_EQ(line_in(10, table, 0), 101);
  EXPECT_EQ(line_in(10, table, 1), 101);
  EXPECT_EQ(line_in(10, table, 2), 0);
  EXPECT_EQ(line_in(10, table, 3), 100);
  EXPECT_EQ(line_in(10, table, 6), 0) << "beyond the table";
}

TEST(PythonStacks, lines_in_entries_of_every_kind) {
  const std::vector<int> table = {
      0x80 | (0 << 3) | 1,  0x12,                                 // short: two instructions on the same line
      0x80 | (11 << 3) | 0, 1,           2,                       // one line further, with columns
      0x80 | (12 << 3) | 0, 1,           2,                       // two lines further
      0x80 | (13 << 3) | 0, 0x07,                                 // three lines back, without columns
      0x80 | (15 << 3) | 0,                                       // no line
      0x80 | (14 << 3) | 0, 0x40 | 0x10, 0x02, 0, 0x41, 0x01, 0,  // long: 72 lines further
  };
  const std::vector<int> lines = {100, 100, 101, 103, 100, 0, 172, 0};
  for (std::size_t index = 0; index < lines.size(); ++index) {
    EXPECT_EQ(line_in(12, table, static_cast<std::int64_t>(index)), lines[index]) << index;
  }
}

TEST(PythonStacks, any_table_is_read_to_an_end) {
  std::minstd_rand random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> table(random() % 40);
    for (auto& each : table) each = static_cast<std::byte>(random());
    static_cast<void>(line_of_instruction(10 + round % 4, table, 1, round % 100));
  }
}

}  // namespace
}  // namespace drover::process
