#include "process/inspect/proc_files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "support/fault_seam.hpp"
#include "support/temporary_folder.hpp"

namespace drover::process {
namespace {

using test::TemporaryFolder;

TEST(ProcFiles, text_is_cut_where_asked) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << std::string(10000, 'x');
  EXPECT_EQ(read_proc_text(folder.path() / "file")->size(), 10000U);
  EXPECT_EQ(read_proc_text(folder.path() / "file", 5000)->size(), 5000U);
  EXPECT_EQ(read_proc_text(folder.path() / "file", 0), "");
}

TEST(ProcFiles, what_cannot_be_read_is_nothing) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_proc_text(folder.path() / "none"), std::nullopt);
  EXPECT_EQ(read_proc_text(folder.path()), std::nullopt);
  EXPECT_EQ(read_proc_link(folder.path() / "none"), "");
  EXPECT_TRUE(numbers_in(folder.path() / "none").empty());
  std::ofstream(folder.path() / "file") << "x";
  const test::FaultSeam fail("read", EIO);
  EXPECT_EQ(read_proc_text(folder.path() / "file"), std::nullopt);
}

TEST(ProcFiles, named_pipe_without_writer_does_not_wait) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_proc_text(folder.path() / "pipe"), "");
}

TEST(ProcFiles, only_whole_numbers_count) {
  const TemporaryFolder folder;
  for (const char* const name : {"12", "3", "x", "4x", "-5", "99999999999999999999"}) {
    std::filesystem::create_directory(folder.path() / name);
  }
  EXPECT_EQ(numbers_in(folder.path()), (std::vector<pid_t>{3, 12}));
}

TEST(ProcFiles, values_are_found_by_whole_names) {
  constexpr const char* kText = "SigCgtX:\t1\nSigCgt:\t 00ff \nEmpty:\nLast: 3";
  EXPECT_EQ(value_of(kText, "SigCgt"), "00ff");
  EXPECT_EQ(value_of(kText, "Empty"), "");
  EXPECT_EQ(value_of(kText, "Last"), "3");
  EXPECT_EQ(value_of(kText, "Sig"), "");
  EXPECT_EQ(value_of("", "Sig"), "");
}

TEST(ProcFiles, printable_text_has_no_control_characters) {
  EXPECT_EQ(printable("a\033[2Jb\n", 80), "a?[2Jb?");
  EXPECT_EQ(printable("0123456789", 10), "0123456789");
  EXPECT_EQ(printable("0123456789x", 10), "0123456...");
  EXPECT_EQ(printable("0123", 2), "01");
}

TEST(ProcFiles, numbers_lead) {
  EXPECT_EQ(leading_number<int>("12 kB"), 12);
  EXPECT_EQ(leading_number<std::uint64_t>("ff", 16), 255U);
  EXPECT_EQ(leading_number<int>("x"), std::nullopt);
  EXPECT_EQ(leading_number<int>(""), std::nullopt);
}

}  // namespace
}  // namespace drover::process
