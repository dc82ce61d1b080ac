#include "device/cuda/driver.hpp"

#include <cstdint>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/config.hpp"
#include "drover/base/error.hpp"

namespace drover::device::cuda {
namespace {

using GetProcAddress = CUresult (*)(const char*, void**, int, std::uint64_t, int*);

void* look_up(GetProcAddress get, const char* name, int version) {
  void* address = nullptr;
  int status = 0;
  const CUresult result = get(name, &address, version, 0, &status);
  return result == kSuccess && status == 0 ? address : nullptr;
}

void load_entries(Driver& driver, GetProcAddress get) {
#define DROVER_CUDA(name, version, need, parameters) \
  driver.name.set(look_up(get, #name, version));     \
  if (!driver.name.is_present() && std::string_view(#need) == "required") driver.missing.emplace_back(#name);
#include "device/cuda/driver.def"
#undef DROVER_CUDA
}

Driver* load_driver() {
  auto* const loaded = new Driver;
  loaded->path = environment_path("DROVER_LIBCUDA").value_or("libcuda.so.1");
  // Never unloaded: the driver has threads and handlers that must not lose their code.
  static auto* const library = new SharedLibrary(SharedLibrary::open(loaded->path, loaded->error));
  if (!library->is_open()) return loaded;
  auto* const get = reinterpret_cast<GetProcAddress>(library->symbol("cuGetProcAddress_v2"));
  if (get == nullptr) {
    loaded->missing.emplace_back("cuGetProcAddress_v2");
    return loaded;
  }
  load_entries(*loaded, get);
  if (loaded->cuDriverGetVersion.is_present()) static_cast<void>(loaded->cuDriverGetVersion(&loaded->version));
  return loaded;
}

}  // namespace

const Driver& driver() {
  static const Driver* const loaded = load_driver();  // never destroyed: calls may come from other destructors
  return *loaded;
}

void require_driver() {
  const Driver& loaded = driver();
  if (!loaded.error.empty()) {
    throw Error(
        Errc::driver_missing, fmt::format("NVIDIA's driver library could not be loaded: {}", loaded.error),
        "install the NVIDIA driver, start the container with GPU access (--gpus all), or use emulated devices "
        "with DROVER_BACKEND=host");
  }
  if (!loaded.missing.empty()) {
    throw Error(Errc::driver_mismatch,
                fmt::format("NVIDIA's driver (CUDA {}.{}) is too old; it lacks {}", loaded.version / 1000,
                            loaded.version % 1000 / 10, fmt::join(loaded.missing, ", ")),
                "install a driver of branch 525 (CUDA 12.0) or newer");
  }
}

}  // namespace drover::device::cuda
