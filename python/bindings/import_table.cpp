#include "import_table.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::python {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kJumpSlot = R_X86_64_JUMP_SLOT;
constexpr std::uint32_t kGlobal = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr std::uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT;
constexpr std::uint32_t kGlobal = R_AARCH64_GLOB_DAT;
#else
constexpr std::uint32_t kJumpSlot = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kGlobal = kJumpSlot;
#endif

// The loader maps what these addresses name, and keeps it as long as the library.
template <class Thing>
const Thing* at(std::uintptr_t address) {
  return reinterpret_cast<const Thing*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

// Reads the dynamic section of one library.
struct ImportTableReader {
  explicit ImportTableReader(const dl_phdr_info& info) : base(info.dlpi_addr) {
    table.path_ = info.dlpi_name;
    table.whole_.begin = std::numeric_limits<std::uintptr_t>::max();
    const ElfW(Dyn)* dynamic = nullptr;
    for (const ElfW(Phdr) & part : std::span(info.dlpi_phdr, info.dlpi_phnum)) {
      const ImportTable::Range range{.begin = base + part.p_vaddr, .end = base + part.p_vaddr + part.p_memsz};
      if (part.p_type == PT_DYNAMIC) dynamic = at<ElfW(Dyn)>(range.begin);
      if (part.p_type == PT_GNU_RELRO) table.read_only_.push_back(range);
      if (part.p_type != PT_LOAD) continue;
      table.whole_.begin = std::min(table.whole_.begin, range.begin);
      table.whole_.end = std::max(table.whole_.end, range.end);
    }
    if (dynamic != nullptr) read(dynamic);
  }

  void read(const ElfW(Dyn) * dynamic) {
    std::map<std::uint64_t, std::uint64_t> values;
    for (; dynamic->d_tag != DT_NULL; ++dynamic) {
      values.insert_or_assign(
          static_cast<std::uint64_t>(dynamic->d_tag),
          dynamic->d_un.d_val);  // NOLINT(cppcoreguidelines-pro-type-union-access): of the C library
    }
    symbols = at<ElfW(Sym)>(loaded(values[DT_SYMTAB]));
    names = at<char>(loaded(values[DT_STRTAB]));
    add(loaded(values[DT_JMPREL]), values[DT_PLTRELSZ]);
    add(loaded(values[DT_RELA]), values[DT_RELASZ]);
  }

  // Loaders replace offsets by addresses, but not everywhere.
  [[nodiscard]] std::uintptr_t loaded(std::uintptr_t value) const { return value < base ? base + value : value; }

  void add(std::uintptr_t address, std::uint64_t bytes) {
    if (bytes == 0) return;
    for (const ElfW(Rela) & each : std::span(at<ElfW(Rela)>(address), bytes / sizeof(ElfW(Rela)))) {
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(each.r_info));
      if (type != kJumpSlot && type != kGlobal) continue;
      const ElfW(Sym)& symbol = symbols[ELF64_R_SYM(each.r_info)];
      if (symbol.st_shndx == SHN_UNDEF) table.slots_[names + symbol.st_name].push_back(base + each.r_offset);
    }
  }

  std::uintptr_t base;
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  ImportTable table;
};

std::optional<ImportTable> ImportTable::find(std::string_view library) {
  struct Search {
    std::string_view library;
    std::optional<ImportTable> found;
  } search{.library = library, .found = {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t /*size*/, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        if (!std::string_view(info->dlpi_name).ends_with(wanted.library)) return 0;
        wanted.found = ImportTableReader(*info).table;
        return 1;
      },
      &search);
  return std::move(search.found);
}

// A slot that was not used yet may still lead into the library itself, to code that looks the function up.
void* ImportTable::resolve(const std::string& function) const {
  if (const auto slots = slots_.find(function); slots != slots_.end()) {
    const auto address = *at<std::uintptr_t>(slots->second.front());
    if (address != 0 && (address < whole_.begin || address >= whole_.end)) {
      return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
    }
  }
  void* const handle = ::dlopen(path_.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* const found = ::dlsym(handle, function.c_str());
  ::dlclose(handle);  // it stays loaded: others have it open
  return found;
}

void ImportTable::replace(const std::string& function, void* replacement) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (const std::uintptr_t slot : slots_.at(function)) {
    const bool is_read_only =
        std::ranges::any_of(read_only_, [&](const Range& range) { return slot >= range.begin && slot < range.end; });
    auto* const start = reinterpret_cast<void*>(slot / page * page);  // NOLINT(performance-no-int-to-ptr)
    if (is_read_only && ::mprotect(start, page, PROT_READ | PROT_WRITE) != 0) {
      throw_errno("mprotect", fmt::format("cannot replace {} in {}", function, path_));
    }
    auto& target = *reinterpret_cast<std::uintptr_t*>(slot);  // NOLINT(performance-no-int-to-ptr)
    std::atomic_ref(target).store(reinterpret_cast<std::uintptr_t>(replacement));
    if (is_read_only) static_cast<void>(::mprotect(start, page, PROT_READ));
  }
}

}  // namespace drover::python
