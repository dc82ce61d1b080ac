// process/inspect/symbols.hpp: from addresses in a process to the names of functions, without stopping it.
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

namespace drover {

/// A piece of a file in the memory of a process: one line of /proc/PID/maps.
struct MappedPiece {
  std::uint64_t begin = 0;   ///< first address
  std::uint64_t end = 0;     ///< address after the last
  std::uint64_t offset = 0;  ///< of `begin` in the file
  std::uint64_t inode = 0;   ///< of the file; 0 if there is none
  bool is_code = false;      ///< whether it may be executed
  std::string path;          ///< the file; empty, or "[stack]" and the like, if there is none
};

/// The pieces, by address; none if they may not be read. Can wait for a process with a thread in state D.
[[nodiscard]] std::vector<MappedPiece> read_mapped_pieces(pid_t pid, const std::filesystem::path& proc = "/proc");

/// The functions that one ELF file names, in .symtab or else in .dynsym. The file is not trusted: whatever it holds,
/// at worst names are missing or wrong.
class SymbolTable {
 public:
  /// A function, and how far into it an address is.
  struct Found {
    std::string name;          ///< demangled
    std::uint64_t offset = 0;  ///< bytes from its begin
  };

  /// Nothing if the file is no regular 64-bit ELF file of this byte order.
  [[nodiscard]] static std::optional<SymbolTable> read(const std::filesystem::path& path);

  /// The function at an offset in the file; nothing if none is known there.
  [[nodiscard]] std::optional<Found> at_file_offset(std::uint64_t offset) const;
  /// How many functions it knows.
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
    std::uint64_t name = 0;  // where its text lies in the file
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

/// A name as people write it, "drover::Queue::get(...)": without the types of parameters, which fill lines. What is
/// no mangled C++ name stays as it is, made printable and cut; so does one that refers to its own parts more than
/// eight times, since such a name can become endless.
[[nodiscard]] std::string readable_name(std::string_view mangled);

/// Names addresses of one process. Reads its maps once, at the construction, and each file when it is first needed.
class Symbolizer {
 public:
  /// Looks at the process now.
  explicit Symbolizer(pid_t pid, const std::filesystem::path& proc = "/proc");

  /// "drover::Queue::get(...) + 0x12 in libx.so"; without a name "libx.so + 0x1234"; outside of all files the
  /// address.
  [[nodiscard]] std::string describe(std::uint64_t address);
  /// The same for a stack, innermost first. All but the first are return addresses, so what is named is the call
  /// before them.
  [[nodiscard]] std::vector<std::string> describe_stack(const std::vector<std::uint64_t>& addresses);

 private:
  [[nodiscard]] const SymbolTable* table_of(const std::string& path);
  [[nodiscard]] std::string describe_at(std::uint64_t address, std::uint64_t back);

  std::filesystem::path root_;
  std::vector<MappedPiece> pieces_;
  std::map<std::string, std::unique_ptr<SymbolTable>> tables_;  // nullptr: it has none
};

}  // namespace drover
