#include "process/inspect/symbols.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "process/inspect/proc_files.hpp"

namespace drover::process {
namespace {

constexpr std::size_t kMostMapsBytes = std::size_t{16} << 20U;
constexpr std::size_t kMostSections = 4096;
constexpr std::size_t kMostSegments = 256;
constexpr std::uint64_t kMostSymbolBytes = std::uint64_t{256} << 20U;
constexpr std::size_t kMostNameBytes = 1024;  // longer names are cut before demangling
constexpr std::size_t kMostShownBytes = 160;
constexpr std::size_t kMostFunctions = 1'000'000;
constexpr int kMostSubstitutions = 8;  // each may double the output, so a short name could fill all memory

// Returns the number of bytes read.
std::size_t read_at(const Fd& file, std::uint64_t offset, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const auto at = static_cast<off_t>(offset + done);
    if (at < 0) break;
    const auto length =
        sys::retry("pread", ::pread, file.get(), static_cast<void*>(&into[done]), into.size() - done, at);
    if (length <= 0) break;
    done += static_cast<std::size_t>(length);
  }
  return done;
}

// Reads at most `count` whole items.
template <class Record>
std::vector<Record> read_records(const Fd& file, std::uint64_t offset, std::size_t count) {
  std::vector<Record> records(count);
  const auto bytes = read_at(file, offset, std::as_writable_bytes(std::span(records)));
  records.resize(bytes / sizeof(Record));
  return records;
}

std::optional<MappedPiece> parse_piece(std::string_view line) {
  const auto word = [&] {
    const auto first = std::min(line.find_first_not_of(' '), line.size());
    line.remove_prefix(first);
    const auto found = line.substr(0, line.find(' '));
    line.remove_prefix(found.size());
    return found;
  };
  const auto range = word();
  const auto rights = word();
  const auto dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto begin = leading_number<std::uint64_t>(range, 16);
  const auto end = leading_number<std::uint64_t>(range.substr(dash + 1), 16);
  const auto offset = leading_number<std::uint64_t>(word(), 16);
  if (!begin || !end || !offset || *begin >= *end) return std::nullopt;
  static_cast<void>(word());  // device
  const auto inode = leading_number<std::uint64_t>(word());
  const auto path = line.substr(std::min(line.find_first_not_of(' '), line.size()));
  return MappedPiece{.begin = *begin,
                     .end = *end,
                     .offset = *offset,
                     .inode = inode.value_or(0),
                     .is_code = rights.find('x') != std::string_view::npos,
                     .is_shared = rights.find('s') != std::string_view::npos,
                     .path = std::string(path)};
}

// Counts substitutions in a mangled name, "S_", "S1A_", "T_", "T0_", and whatever looks like one.
int count_substitutions(std::string_view mangled) {
  int count = 0;
  for (std::size_t at = 0; at < mangled.size(); ++at) {
    if (mangled[at] != 'S' && mangled[at] != 'T') continue;
    const auto end = mangled.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", at + 1);
    if (end != std::string_view::npos && mangled[end] == '_') ++count;
  }
  return count;
}

// Replaces the text between the outermost parentheses by "...".
std::string without_parameters(std::string name) {
  const auto close = name.rfind(')');
  if (close == std::string::npos) return name;
  int depth = 0;
  for (std::size_t at = close + 1; at-- > 0;) {
    if (name[at] == ')') ++depth;
    if (name[at] == '(' && --depth == 0) {
      if (close > at + 1) name.replace(at + 1, close - at - 1, "...");
      break;
    }
  }
  return name;
}

}  // namespace

std::vector<MappedPiece> read_mapped_pieces(pid_t pid, const std::filesystem::path& proc) {
  std::vector<MappedPiece> pieces;
  const auto text = read_proc_text(proc / std::to_string(pid) / "maps", kMostMapsBytes);
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  while (!rest.empty()) {
    const auto end = std::min(rest.find('\n'), rest.size());
    if (auto piece = parse_piece(rest.substr(0, end))) pieces.push_back(std::move(*piece));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::ranges::sort(pieces, {}, &MappedPiece::begin);
  return pieces;
}

std::string readable_name(std::string_view mangled) {
  const std::string name(mangled.substr(0, kMostNameBytes));
  int status = -1;
  const bool is_whole = name.size() == mangled.size();
  if (name.starts_with("_Z") && is_whole && count_substitutions(name) <= kMostSubstitutions) {
    const std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                       std::free);
    if (status == 0 && plain) return printable(without_parameters(plain.get()), kMostShownBytes);
  }
  return printable(name, kMostShownBytes);
}

std::optional<SymbolTable> SymbolTable::read(const std::filesystem::path& path) {
  SymbolTable table(open_to_read(path));
  struct stat status{};
  if (!table.file_.is_open() || ::fstat(table.file_.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  if (!table.load()) return std::nullopt;
  return table;
}

bool SymbolTable::load() {
  const auto heads = read_records<Elf64_Ehdr>(file_, 0, 1);
  if (heads.empty()) return false;
  const Elf64_Ehdr& head = heads.front();
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_ident[EI_DATA] != ELFDATA2LSB) {
    return false;
  }
  if (head.e_phentsize == sizeof(Elf64_Phdr)) load_segments(head.e_phoff, head.e_phnum);
  if (head.e_shentsize == sizeof(Elf64_Shdr)) load_functions(head.e_shoff, head.e_shnum);
  return true;
}

void SymbolTable::load_segments(std::uint64_t offset, std::size_t count) {
  for (const auto& each : read_records<Elf64_Phdr>(file_, offset, std::min(count, kMostSegments))) {
    if (each.p_type != PT_LOAD) continue;
    segments_.push_back({.offset = each.p_offset, .address = each.p_vaddr, .bytes = each.p_filesz});
  }
}

// A stripped file has only .dynsym; otherwise .symtab has the same functions and more. A file has at most one of
// each; further ones are ignored, since they could only waste time.
void SymbolTable::load_functions(std::uint64_t offset, std::size_t count) {
  const auto sections = read_records<Elf64_Shdr>(file_, offset, std::min(count, kMostSections));
  for (const Elf64_Word type : {Elf64_Word{SHT_SYMTAB}, Elf64_Word{SHT_DYNSYM}}) {
    const auto section = std::ranges::find(sections, type, &Elf64_Shdr::sh_type);
    if (section == sections.end() || section->sh_link >= sections.size()) continue;
    if (section->sh_entsize != sizeof(Elf64_Sym)) continue;
    load_section(section->sh_offset, section->sh_size, sections[section->sh_link].sh_offset);
    if (!functions_.empty()) break;
  }
  std::ranges::sort(functions_, {}, &Function::address);
}

// Reads in pieces, so that a file that wrongly claims millions of symbols costs nothing.
void SymbolTable::load_section(std::uint64_t symbols_offset, std::uint64_t symbols_bytes,
                               std::uint64_t names_offset) {
  constexpr std::size_t kPiece = 4096;
  const auto count = static_cast<std::size_t>(std::min(symbols_bytes, kMostSymbolBytes) / sizeof(Elf64_Sym));
  for (std::size_t done = 0; done < count;) {
    const auto symbols =
        read_records<Elf64_Sym>(file_, symbols_offset + (done * sizeof(Elf64_Sym)), std::min(kPiece, count - done));
    if (symbols.empty()) return;
    done += symbols.size();
    for (const auto& symbol : symbols) {
      const auto kind = ELF64_ST_TYPE(symbol.st_info);
      if (kind != STT_FUNC && kind != STT_GNU_IFUNC) continue;
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0) continue;
      if (functions_.size() == kMostFunctions) return;
      functions_.push_back(
          {.address = symbol.st_value, .bytes = symbol.st_size, .name = names_offset + symbol.st_name});
    }
  }
}

std::string SymbolTable::name_at(std::uint64_t offset) const {
  std::array<char, kMostNameBytes + 1> text{};
  const auto length = read_at(file_, offset, std::as_writable_bytes(std::span(text)));
  return {text.data(), ::strnlen(text.data(), length)};
}

std::optional<SymbolTable::Found> SymbolTable::at_file_offset(std::uint64_t offset) const {
  const auto segment = std::ranges::find_if(
      segments_, [&](const Segment& each) { return offset >= each.offset && offset - each.offset < each.bytes; });
  if (segment == segments_.end()) return std::nullopt;
  const std::uint64_t address = segment->address + (offset - segment->offset);
  auto after = std::ranges::upper_bound(functions_, address, {}, &Function::address);
  if (after == functions_.begin()) return std::nullopt;
  const Function& function = *--after;
  // Functions written in assembler have no size and extend to the next one.
  if (function.bytes != 0 && address - function.address >= function.bytes) return std::nullopt;
  auto name = readable_name(name_at(function.name));
  if (name.empty()) return std::nullopt;
  return Found{.name = std::move(name), .offset = address - function.address};
}

Symbolizer::Symbolizer(pid_t pid, const std::filesystem::path& proc)
    : root_(proc / std::to_string(pid) / "root"), pieces_(read_mapped_pieces(pid, proc)) {}

// The file as the process sees it, which differs in a container; as this process sees it if that may not be read.
const SymbolTable* Symbolizer::table_of(const std::string& path) {
  const auto known = tables_.find(path);
  if (known != tables_.end()) return known->second.get();
  auto table = SymbolTable::read(root_.string() + path);
  if (!table) table = SymbolTable::read(path);
  auto kept = table ? std::make_unique<SymbolTable>(std::move(*table)) : nullptr;
  return tables_.emplace(path, std::move(kept)).first->second.get();
}

std::string Symbolizer::describe(std::uint64_t address) { return describe_at(address, 0); }

std::string Symbolizer::describe_at(std::uint64_t address, std::uint64_t back) {
  const std::uint64_t place = address - back;
  const auto piece =
      std::ranges::find_if(pieces_, [&](const MappedPiece& each) { return place >= each.begin && place < each.end; });
  if (piece == pieces_.end() || !piece->path.starts_with('/')) {
    return piece == pieces_.end() || piece->path.empty() ? fmt::format("{:#x}", address)
                                                         : fmt::format("{:#x} in {}", address, piece->path);
  }
  const std::uint64_t offset = place - piece->begin + piece->offset;
  const auto module = printable(std::filesystem::path(piece->path).filename().string(), kMostShownBytes);
  const auto* const table = table_of(piece->path);
  const auto found = table == nullptr ? std::nullopt : table->at_file_offset(offset);
  if (!found) return fmt::format("{} + {:#x}", module, offset + back);
  return fmt::format("{} + {:#x} in {}", found->name, found->offset + back, module);
}

std::vector<std::string> Symbolizer::describe_stack(const std::vector<std::uint64_t>& addresses) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < addresses.size(); ++i) lines.push_back(describe_at(addresses[i], i == 0 ? 0 : 1));
  return lines;
}

}  // namespace drover::process
