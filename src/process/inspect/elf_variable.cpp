#include "process/inspect/elf_variable.hpp"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/sys.hpp"
#include "drover/base/fd.hpp"
#include "process/inspect/proc_files.hpp"

namespace drover::process {
namespace {

constexpr std::uint64_t kMostElfTable = std::uint64_t{1} << 26U;
constexpr std::size_t kMostElfSections = 4096;

// Whole records; fewer if the file ends.
template <class Record>
std::vector<Record> read_table(const Fd& file, std::uint64_t offset, std::size_t count) {
  std::vector<Record> records(count);
  std::size_t done = 0;
  const auto bytes = std::as_writable_bytes(std::span(records));
  while (done < bytes.size()) {
    const auto length = sys::retry("pread", ::pread, file.get(), static_cast<void*>(&bytes[done]),
                                   bytes.size() - done, static_cast<off_t>(offset + done));
    if (length <= 0) break;
    done += static_cast<std::size_t>(length);
  }
  records.resize(done / sizeof(Record));
  return records;
}

std::optional<std::uint64_t> find_in(const Fd& file, const Elf64_Shdr& symbols, const Elf64_Shdr& names,
                                     std::string_view name) {
  if (symbols.sh_size > kMostElfTable || names.sh_size > kMostElfTable) return std::nullopt;
  const auto text = read_table<char>(file, names.sh_offset, names.sh_size);
  for (const auto& symbol : read_table<Elf64_Sym>(file, symbols.sh_offset, symbols.sh_size / sizeof(Elf64_Sym))) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_value == 0) continue;
    if (symbol.st_name >= text.size() || text.size() - symbol.st_name <= name.size()) continue;
    const char* const found = &text[symbol.st_name];
    if (std::string_view(found, name.size()) == name && found[name.size()] == '\0') return symbol.st_value;
  }
  return std::nullopt;
}

// The address for which the start of the file is meant.
std::uint64_t first_address(const Fd& file, const Elf64_Ehdr& head) {
  for (const auto& part : read_table<Elf64_Phdr>(file, head.e_phoff, head.e_phnum)) {
    if (part.p_type == PT_LOAD && part.p_offset == 0) return part.p_vaddr;
  }
  return 0;
}

}  // namespace

std::optional<std::uint64_t> find_elf_variable(const std::filesystem::path& path, std::string_view name) {
  const Fd file = open_to_read(path);
  if (!file.is_open()) return std::nullopt;
  const auto heads = read_table<Elf64_Ehdr>(file, 0, 1);
  if (heads.empty() || std::memcmp(heads[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      heads[0].e_ident[EI_CLASS] != ELFCLASS64 || heads[0].e_ident[EI_DATA] != ELFDATA2LSB ||
      heads[0].e_shentsize != sizeof(Elf64_Shdr) || heads[0].e_phentsize != sizeof(Elf64_Phdr)) {
    return std::nullopt;
  }
  const auto sections =
      read_table<Elf64_Shdr>(file, heads[0].e_shoff, std::min<std::size_t>(heads[0].e_shnum, kMostElfSections));
  for (const auto& section : sections) {
    const bool has_symbols = section.sh_type == SHT_DYNSYM || section.sh_type == SHT_SYMTAB;
    if (!has_symbols || section.sh_link >= sections.size()) continue;
    const auto found = find_in(file, section, sections[section.sh_link], name);
    if (found) return *found - first_address(file, heads[0]);
  }
  return std::nullopt;
}

}  // namespace drover::process
