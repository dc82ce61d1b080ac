// The functions of other libraries that a loaded library calls.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drover::python {

/// The import table of one loaded ELF library: the places where it keeps the addresses of functions of others.
class ImportTable {
 public:
  /// That of the first library whose path ends with `library`; nullopt if none is loaded.
  [[nodiscard]] static std::optional<ImportTable> find(std::string_view library);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Whether it imports a function.
  [[nodiscard]] bool has(const std::string& function) const { return slots_.contains(function); }
  /// The address of a function as this library calls it. Null if it was not found.
  [[nodiscard]] void* resolve(const std::string& function) const;
  /// Makes the library call `replacement` instead of an imported function, from now on and in all threads. Throws
  /// `Errc::system` if the table cannot be written. Requires: `has`.
  void replace(const std::string& function, void* replacement) const;

 private:
  struct Range {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
  };

  std::string path_;
  Range whole_;                                               // of the library
  std::vector<Range> read_only_;                              // its pages that the loader made so
  std::map<std::string, std::vector<std::uintptr_t>> slots_;  // by function

  friend struct ImportTableReader;
};

}  // namespace drover::python
