#include "process/inspect/symbols.hpp"

#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/process/child_process.hpp"
#include "support/temporary_folder.hpp"

namespace drover::process {

// In no unnamed namespace, and not inlined, since the test looks up its name.
__attribute__((noinline)) int function_to_be_found(int value) {
  asm volatile("" : "+r"(value));
  return value + 1;
}

namespace {

using test::TemporaryFolder;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A whole ELF file with one loaded segment and one function "find_me" at 0x1010, 16 bytes long.
struct SmallElf {
  SmallElf() {
    names = std::string("\0find_me\0", 9);
    std::memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_phoff = sizeof(head);
    head.e_phnum = 1;
    head.e_phentsize = sizeof(Elf64_Phdr);
    head.e_shoff = head.e_phoff + sizeof(segment);
    head.e_shnum = 2;
    head.e_shentsize = sizeof(Elf64_Shdr);
    segment.p_type = PT_LOAD;
    segment.p_vaddr = 0x1000;
    segment.p_filesz = 0x100;
    sections[0].sh_type = SHT_SYMTAB;
    sections[0].sh_link = 1;
    sections[0].sh_entsize = sizeof(Elf64_Sym);
    sections[0].sh_offset = head.e_shoff + sizeof(sections);
    sections[0].sh_size = sizeof(symbol);
    sections[1].sh_type = SHT_STRTAB;
    sections[1].sh_offset = sections[0].sh_offset + sizeof(symbol);
    sections[1].sh_size = names.size();
    symbol.st_name = 1;
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbol.st_shndx = 1;
    symbol.st_value = 0x1010;
    symbol.st_size = 16;
  }
  [[nodiscard]] std::string bytes() const {
    std::string all;
    const auto add = [&](const void* from, std::size_t size) { all.append(static_cast<const char*>(from), size); };
    add(&head, sizeof(head));
    add(&segment, sizeof(segment));
    add(&sections, sizeof(sections));
    add(&symbol, sizeof(symbol));
    return all + names;
  }

  Elf64_Ehdr head{};
  Elf64_Phdr segment{};
  Elf64_Shdr sections[2] = {};  // NOLINT(modernize-avoid-c-arrays): as it lies in the file
  Elf64_Sym symbol{};
  std::string names;
};

std::optional<SymbolTable> table_of(const TemporaryFolder& folder, const std::string& bytes) {
  const auto path = folder.path() / "file";
  std::ofstream(path, std::ios::binary) << bytes;
  return SymbolTable::read(path);
}

TEST(Symbols, function_of_this_program_is_named) {
  Symbolizer symbolizer(::getpid());
  const auto address = reinterpret_cast<std::uint64_t>(&function_to_be_found);
  const auto text = symbolizer.describe(address + 2);
  EXPECT_NE(text.find("drover::process::function_to_be_found(...) + 0x2 in "), std::string::npos) << text;
  EXPECT_NE(text.find("process_test"), std::string::npos) << text;
}

TEST(Symbols, function_of_a_stripped_library_is_named) {
  Symbolizer symbolizer(::getpid());
  const auto text = symbolizer.describe(reinterpret_cast<std::uint64_t>(&::getpid));
  EXPECT_NE(text.find("getpid"), std::string::npos) << text;
}

TEST(Symbols, return_address_after_the_last_call_belongs_to_the_caller) {
  const TemporaryFolder folder;
  const auto table = table_of(folder, SmallElf().bytes());
  ASSERT_TRUE(table);
  EXPECT_EQ(table->at_file_offset(0x10)->name, "find_me");
  EXPECT_EQ(table->at_file_offset(0x1F)->offset, 15U);
  EXPECT_FALSE(table->at_file_offset(0x20));  // where a call at its end would return to
  Symbolizer symbolizer(::getpid());
  const auto end = reinterpret_cast<std::uint64_t>(&function_to_be_found) + 1;
  const auto lines = symbolizer.describe_stack({end, end});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], lines[1]);
}

TEST(Symbols, address_outside_of_all_files_stays_a_number) {
  Symbolizer symbolizer(::getpid());
  EXPECT_EQ(symbolizer.describe(0x10), "0x10");
  int local = 0;
  const auto text = symbolizer.describe(reinterpret_cast<std::uint64_t>(&local));
  EXPECT_TRUE(text.starts_with("0x")) << text;
}

TEST(Symbols, ended_process_has_no_names) {
  Symbolizer symbolizer(0x7FFFFFF0);
  EXPECT_EQ(symbolizer.describe(0x1234), "0x1234");
  EXPECT_TRUE(read_mapped_pieces(0x7FFFFFF0).empty());
}

TEST(Symbols, maps_are_read_whole_and_malformed_lines_skipped) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "7");
  std::ofstream(folder.path() / "7/maps") << "7f00-7fff r-xp 00001000 08:01 99    /a b/lib x.so (deleted)\n"
                                          << "nonsense\n\n"
                                          << "20-10 r--p 0 0:0 0\n"
                                          << "1000-2000 rw-p 00000000 00:00 0 \n";
  const auto pieces = read_mapped_pieces(7, folder.path());
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].begin, 0x1000U);
  EXPECT_EQ(pieces[0].path, "");
  EXPECT_FALSE(pieces[0].is_code);
  EXPECT_EQ(pieces[1].path, "/a b/lib x.so (deleted)");
  EXPECT_EQ(pieces[1].offset, 0x1000U);
  EXPECT_EQ(pieces[1].inode, 99U);
  EXPECT_TRUE(pieces[1].is_code);
}

TEST(Symbols, files_that_are_no_elf_are_refused) {
  const TemporaryFolder folder;
  EXPECT_FALSE(table_of(folder, ""));
  EXPECT_FALSE(table_of(folder,
                        "\x7F"
                        "ELF"));
  EXPECT_FALSE(table_of(folder, std::string(5000, 'x')));
  SmallElf narrow;
  narrow.head.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_FALSE(table_of(folder, narrow.bytes()));
  EXPECT_FALSE(SymbolTable::read(folder.path()));
  EXPECT_FALSE(SymbolTable::read("/dev/zero"));
}

TEST(Symbols, bad_offsets_in_a_malicious_file_are_harmless) {
  const TemporaryFolder folder;
  const std::uint64_t far = ~std::uint64_t{0} - 4;
  SmallElf many;
  many.sections[0].sh_size = far;
  EXPECT_TRUE(table_of(folder, many.bytes())->at_file_offset(0x10));
  SmallElf outside;
  outside.sections[0].sh_offset = far;
  EXPECT_EQ(table_of(folder, outside.bytes())->size(), 0U);
  SmallElf nameless;
  nameless.symbol.st_name = 0xFFFFFFFF;
  EXPECT_FALSE(table_of(folder, nameless.bytes())->at_file_offset(0x10));
  SmallElf linked;
  linked.sections[0].sh_link = 77;
  EXPECT_EQ(table_of(folder, linked.bytes())->size(), 0U);
  SmallElf endless;
  endless.segment.p_filesz = far;
  endless.segment.p_vaddr = far;
  EXPECT_FALSE(table_of(folder, endless.bytes())->at_file_offset(0));
}

TEST(Symbols, damaged_files_do_not_crash) {
  const TemporaryFolder folder;
  const auto whole = SmallElf().bytes();
  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed,cert-msc51-cpp): the same each time
  for (int round = 0; round < 400; ++round) {
    auto bytes = whole.substr(0, round % 3 == 0 ? random() % whole.size() : whole.size());
    for (int i = 0; i < 8 && !bytes.empty(); ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (bytes.size() > SELFMAG) bytes.replace(0, SELFMAG, whole.substr(0, SELFMAG));
    if (const auto table = table_of(folder, bytes)) static_cast<void>(table->at_file_offset(random() % 0x200));
  }
}

TEST(Symbols, cut_program_gives_what_is_left) {
  const TemporaryFolder folder;
  const auto bytes = bytes_of(own_executable());
  ASSERT_GT(bytes.size(), 5000U);
  const auto table = table_of(folder, bytes.substr(0, 5000));
  ASSERT_TRUE(table);
  EXPECT_EQ(table->size(), 0U);
}

TEST(Symbols, names_are_made_readable) {
  EXPECT_EQ(readable_name("_ZN6drover5Queue3getERNS_7MessageE"), "drover::Queue::get(...)");
  EXPECT_EQ(readable_name("_ZN1A1bEv"), "A::b()");
  EXPECT_EQ(readable_name("main"), "main");
  EXPECT_EQ(readable_name("_Znonsense"), "_Znonsense");
  EXPECT_EQ(readable_name("a\033b"), "a?b");
  EXPECT_LE(readable_name("_Z" + std::string(100000, 'P')).size(), 200U);
  EXPECT_LE(readable_name(std::string(5000, 'x')).size(), 200U);
}

TEST(Symbols, name_that_refers_to_itself_very_often_stays_mangled) {
  std::string name = "_Z1fN1A1BE";
  for (int i = 0; i < 8; ++i) name += "S0_";
  EXPECT_EQ(readable_name(name), "f(...)");
  name += "S0_";
  EXPECT_EQ(readable_name(name), name);
}

TEST(Symbols, only_the_first_table_of_a_file_is_read) {
  const TemporaryFolder folder;
  SmallElf twice;  // the second table starts where the names do
  auto other = twice.symbol;
  other.st_value = 0x1020;
  twice.names.insert(0, reinterpret_cast<const char*>(&other), sizeof(other));
  twice.symbol.st_name += sizeof(other);
  twice.sections[1].sh_type = SHT_SYMTAB;
  twice.sections[1].sh_link = 1;
  twice.sections[1].sh_entsize = sizeof(Elf64_Sym);
  twice.sections[1].sh_size = sizeof(other);
  const auto table = table_of(folder, twice.bytes());
  ASSERT_TRUE(table);
  EXPECT_EQ(table->size(), 1U);
  EXPECT_EQ(table->at_file_offset(0x10)->name, "find_me");
}

}  // namespace
}  // namespace drover::process
