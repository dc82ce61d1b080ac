#include "device/shared_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <utility>

#include "base/sys.hpp"

namespace drover::device {

SharedLibrary SharedLibrary::open(const std::string& path, std::string& error) {
  error.clear();
  if (sys::injected("dlopen") != 0) {
    error = path + ": failed on purpose by a test";
    return {};
  }
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const words = ::dlerror();
    error = words == nullptr ? path + ": unknown loader error" : words;
  }
  return SharedLibrary(handle);
}

SharedLibrary::SharedLibrary(SharedLibrary&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

SharedLibrary& SharedLibrary::operator=(SharedLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

SharedLibrary::~SharedLibrary() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

bool SharedLibrary::is_known(const std::string& path) noexcept {
  void* const handle = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

void* SharedLibrary::symbol(const char* name) const noexcept { return ::dlsym(handle_, name); }

void* SharedLibrary::own_symbol(const char* name) const noexcept {
  void* const address = symbol(name);
  link_map* map = nullptr;
  Dl_info found{};
  if (address == nullptr || ::dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 ||
      ::dladdr(address, &found) == 0) {
    return nullptr;
  }
  return reinterpret_cast<std::uintptr_t>(found.dli_fbase) == map->l_addr ? address : nullptr;
}

}  // namespace drover::device
