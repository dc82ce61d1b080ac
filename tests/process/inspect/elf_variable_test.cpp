#include "process/inspect/elf_variable.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "process/inspect/foreign_memory.hpp"
#include "process/inspect/symbols.hpp"
#include "support/temporary_folder.hpp"

extern "C" std::uint64_t drover_test_variable;
std::uint64_t drover_test_variable = 0x5EED;

namespace drover::process {
namespace {

TEST(ElfVariable, of_this_program_is_where_it_is) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto found = find_elf_variable(program, "drover_test_variable");
  ASSERT_TRUE(found);
  const auto pieces = read_mapped_pieces(::getpid());
  const auto first = std::ranges::find(pieces, program, &MappedPiece::path);
  ASSERT_NE(first, pieces.end());
  EXPECT_EQ(first->begin + *found, reinterpret_cast<std::uint64_t>(&drover_test_variable));
  EXPECT_EQ(read_foreign<std::uint64_t>(::getpid(), first->begin + *found), 0x5EEDU);
  EXPECT_FALSE(find_elf_variable(program, "drover_test_variabl"));
}

TEST(ElfVariable, other_files_have_none) {
  EXPECT_FALSE(find_elf_variable("/nonexistent", "x"));
  const test::TemporaryFolder folder;
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  for (const std::size_t bytes : {0U, 10U, 64U, 4096U}) {
    std::string start(bytes, '\0');
    std::ifstream(program).read(start.data(), static_cast<std::streamsize>(bytes));
    std::ofstream(folder.path() / "cut") << start;
    EXPECT_FALSE(find_elf_variable(folder.path() / "cut", "drover_test_variable")) << bytes;
  }
}

TEST(ForeignMemory, that_is_not_there_cannot_be_read) {
  EXPECT_FALSE(read_foreign<int>(::getpid(), 0));
  EXPECT_FALSE(read_foreign<int>(0x7FFFFFF0, 0x1000));
}

}  // namespace
}  // namespace drover::process
