// device/shared_library.hpp: the owner of a library loaded at run time.
#pragma once

#include <string>

namespace drover {

/// A library opened by dlopen; closed with its owner. Move-only, may be empty. Libraries that start threads of
/// their own (drivers) must be kept for the life of the process.
class SharedLibrary {
 public:
  SharedLibrary() noexcept = default;
  /// Tries to load; on failure the result is empty and `error` holds the loader's words.
  static SharedLibrary open(const std::string& path, std::string& error);
  SharedLibrary(SharedLibrary&& other) noexcept;
  SharedLibrary& operator=(SharedLibrary&& other) noexcept;
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  ~SharedLibrary();

  [[nodiscard]] bool is_open() const noexcept { return handle_ != nullptr; }
  /// Whether the loader has an object under this very path.
  [[nodiscard]] static bool is_known(const std::string& path) noexcept;
  /// Address of a symbol, nullptr if neither the library nor one that it needs has one of that name.
  [[nodiscard]] void* symbol(const char* name) const noexcept;
  /// The same for symbols of the library itself only.
  [[nodiscard]] void* own_symbol(const char* name) const noexcept;

 private:
  explicit SharedLibrary(void* handle) noexcept : handle_(handle) {}
  void* handle_ = nullptr;
};

}  // namespace drover
