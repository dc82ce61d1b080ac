#include "process/spawn/line_cutter.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace drover::process {
namespace {

// What a cutter makes of pieces as they come from a pipe.
std::vector<std::string> lines_of(const std::vector<std::string>& pieces, const std::string& name = "w") {
  LineCutter cutter(name);
  std::vector<std::string> lines;
  const auto put = [&](std::string_view line) { lines.emplace_back(line); };
  for (const auto& piece : pieces) cutter.take(piece, put);
  cutter.finish(put);
  return lines;
}

using Lines = std::vector<std::string>;

TEST(LineCutter, each_line_gets_the_name) {
  EXPECT_EQ(lines_of({"one\ntwo\n"}, "worker-2"), Lines({"[worker-2] one\n", "[worker-2] two\n"}));
}

TEST(LineCutter, line_may_come_in_pieces) {
  EXPECT_EQ(lines_of({"o", "n", "e", "\nt", "wo\n"}), Lines({"[w] one\n", "[w] two\n"}));
}

TEST(LineCutter, last_line_without_newline_comes_at_the_end) {
  EXPECT_EQ(lines_of({"one\ntw", "o"}), Lines({"[w] one\n", "[w] two\n"}));
}

TEST(LineCutter, empty_lines_stay_and_nothing_is_nothing) {
  EXPECT_EQ(lines_of({"\n\n"}), Lines({"[w] \n", "[w] \n"}));
  EXPECT_EQ(lines_of({}), Lines());
  EXPECT_EQ(lines_of({""}), Lines());
  EXPECT_EQ(lines_of({"one\n", ""}), Lines({"[w] one\n"}));
}

TEST(LineCutter, any_bytes_pass) {
  const std::string bytes("\0\xff\x1b\r\x80", 5);
  EXPECT_EQ(lines_of({bytes + "\n"}), Lines({"[w] " + bytes + "\n"}));
}

// Without prefixes, dots and newlines it is what was written, whatever the length.
TEST(LineCutter, long_line_continues_on_the_next_and_nothing_is_lost) {
  const std::string prefix = "[w] ";
  for (const std::size_t length : {4085U, 4087U, 4088U, 4089U, 4090U, 4095U, 4096U, 8192U, 100000U}) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i) text.push_back(static_cast<char>('a' + i % 26));
    const auto lines = lines_of({text.substr(0, length / 3), text.substr(length / 3) + "\n"});
    std::string joined;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      std::string_view line = lines[i];
      ASSERT_LE(line.size(), LineCutter::kLongestLine);
      ASSERT_TRUE(line.starts_with(prefix) && line.ends_with('\n'));
      line.remove_prefix(prefix.size());
      line.remove_suffix(1);
      if (i > 0) {
        ASSERT_TRUE(line.starts_with(LineCutter::kMark));
        line.remove_prefix(LineCutter::kMark.size());
      }
      if (i + 1 < lines.size()) {
        ASSERT_TRUE(line.ends_with(LineCutter::kMark));
        line.remove_suffix(LineCutter::kMark.size());
      }
      joined.append(line);
    }
    EXPECT_EQ(joined, text) << length;
  }
}

TEST(LineCutter, line_after_a_long_one_starts_afresh) {
  const auto lines = lines_of({std::string(5000, 'x') + "\nshort\n"});
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines.back(), "[w] short\n");
}

}  // namespace
}  // namespace drover::process
