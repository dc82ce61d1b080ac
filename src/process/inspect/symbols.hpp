// process/inspect/symbols.hpp: names the functions at addresses of a process without stopping it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drover/base/fd.hpp"

namespace drover::process {

/// A mapped range of a process: one line of /proc/PID/maps.
struct MappedPiece {
  std::uint64_t begin = 0;   ///< first address
  std::uint64_t end = 0;     ///< one past the last address
  std::uint64_t offset = 0;  ///< of `begin`, in the file
  std::uint64_t inode = 0;   ///< of the file; 0 if there is none
  bool is_code = false;      ///< executable
  bool is_shared = false;    ///< writes reach the file
  std::string path;          ///< of the file; if there is none, empty or a name such as "[stack]"
};

/// The mapped ranges by address; empty if they may not be read. May block on a process with a thread in state D.
[[nodiscard]] std::vector<MappedPiece> read_mapped_pieces(pid_t pid, const std::filesystem::path& proc = "/proc");

/// The functions of one ELF file, from .symtab or, if it is stripped, from .dynsym. The file is not trusted: whatever
/// it holds, at worst names are missing or wrong.
class SymbolTable {
 public:
  /// A function and the offset of an address in it.
  struct Found {
    std::string name;          ///< demangled
    std::uint64_t offset = 0;  ///< bytes from its start
  };

  /// nullopt unless the file is a regular 64-bit ELF file of this byte order.
  [[nodiscard]] static std::optional<SymbolTable> read(const std::filesystem::path& path);

  /// The function at a file offset; nullopt if none is known there.
  [[nodiscard]] std::optional<Found> at_file_offset(std::uint64_t offset) const;
  /// The number of functions.
  [[nodiscard]] std::size_t size() const noexcept { return functions_.size(); }

 private:
  struct Segment {
    std::uint64_t offset = 0;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
  };
  struct Function {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t name = 0;  // offset of its text in the file
  };

  explicit SymbolTable(Fd file) noexcept : file_(std::move(file)) {}
  [[nodiscard]] bool load();
  void load_segments(std::uint64_t offset, std::size_t count);
  void load_functions(std::uint64_t offset, std::size_t count);
  void load_section(std::uint64_t symbols_offset, std::uint64_t symbols_bytes, std::uint64_t names_offset);
  [[nodiscard]] std::string name_at(std::uint64_t offset) const;

  Fd file_;
  std::vector<Segment> segments_;
  std::vector<Function> functions_;  // by address
};

/// Demangles a C++ name and drops parameter types: "drover::Queue::get(...)". Any other text is returned as it is,
/// made printable and cut, as is a name with more than eight substitutions, which can expand without bound.
[[nodiscard]] std::string readable_name(std::string_view mangled);

/// Names addresses of one process. Reads its maps on construction, and each file when it is first needed.
class Symbolizer {
 public:
  /// Reads the maps of the process.
  explicit Symbolizer(pid_t pid, const std::filesystem::path& proc = "/proc");

  /// "drover::Queue::get(...) + 0x12 in libx.so"; "libx.so + 0x1234" if the function is unknown; the address if it is
  /// in no file.
  [[nodiscard]] std::string describe(std::uint64_t address);
  /// Names the frames of a stack, innermost first. All but the first are return addresses, so the preceding call is
  /// named.
  [[nodiscard]] std::vector<std::string> describe_stack(const std::vector<std::uint64_t>& addresses);

 private:
  [[nodiscard]] const SymbolTable* table_of(const std::string& path);
  [[nodiscard]] std::string describe_at(std::uint64_t address, std::uint64_t back);

  std::filesystem::path root_;
  std::vector<MappedPiece> pieces_;
  std::map<std::string, std::unique_ptr<SymbolTable>> tables_;  // nullptr: has no symbols
};

}  // namespace drover::process
