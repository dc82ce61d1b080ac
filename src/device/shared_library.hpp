// device/shared_library.hpp: the owner of a library loaded at run time.
#pragma once

#include <string>

namespace drover::device {

/// Owns a library opened by dlopen. Move-only; may be empty. Libraries that start threads (drivers) must be kept
/// until the process ends.
class SharedLibrary {
 public:
  SharedLibrary() noexcept = default;
  /// Loads a library; on failure the result is empty and `error` holds the loader's message.
  static SharedLibrary open(const std::string& path, std::string& error);
  SharedLibrary(SharedLibrary&& other) noexcept;
  SharedLibrary& operator=(SharedLibrary&& other) noexcept;
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  ~SharedLibrary();

  [[nodiscard]] bool is_open() const noexcept { return handle_ != nullptr; }
  /// Whether the loader already has an object with exactly this path.
  [[nodiscard]] static bool is_known(const std::string& path) noexcept;
  /// Address of a symbol of the library or of its dependencies; nullptr if there is none.
  [[nodiscard]] void* symbol(const char* name) const noexcept;
  /// Address of a symbol of the library itself; nullptr if there is none.
  [[nodiscard]] void* own_symbol(const char* name) const noexcept;

 private:
  explicit SharedLibrary(void* handle) noexcept : handle_(handle) {}
  void* handle_ = nullptr;
};

}  // namespace drover::device
