// tests/support/fake_driver/fake_settings.hpp: environment variables for the stand-ins of NVIDIA's libraries.
// clang-format off
//
//   FAKE_CUINIT_RESULT=803              result of cuInit (default 0)
//   FAKE_CUINIT_HANG=1, _CRASH=1        cuInit never returns, or raises SIGSEGV
//   FAKE_CUDA_VERSION=13000             result of cuDriverGetVersion
//   FAKE_CUDA_MISSING=cuMemMap,…        entry points that the driver lacks
//   FAKE_CHATTER=1                      cuInit writes to standard output
//   FAKE_MEMORY=1                       memory, slabs and streams work, see fake_memory.hpp
//   FAKE_CAPTURE=1                      another thread captures: calls that invalidate it fail; 2: all streams do
//   FAKE_PEERS=1                        GPUs reach each other's memory
//   FAKE_NVML_RESULT=18                 result of nvmlInit; FAKE_NVML_HANG=1: it never returns
//   FAKE_DRIVER_VERSION=580.1           driver version
//   FAKE_GPU_COUNT=2                    number of GPUs (default 1), named by FAKE_GPU_NAMES=NVIDIA A,NVIDIA B
//   FAKE_COMPUTE_MODE=3                 compute mode of every GPU: 0 shared, 2 prohibited, 3 exclusive
//   FAKE_MIG=1                          MIG is enabled, with FAKE_MIG_INSTANCES=2 instances per GPU
//   FAKE_MEMORY_RESULT=15               result of nvmlDeviceGetMemoryInfo
//
// clang-format on
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace drover::test::fake {

inline constexpr std::size_t kGpuMemory = std::size_t{16} << 30;
inline constexpr std::size_t kGpuMemoryFree = std::size_t{12} << 30;

inline int number(const char* name, int fallback) {
  const char* const text = std::getenv(name);
  return text == nullptr ? fallback : static_cast<int>(std::strtol(text, nullptr, 10));
}

inline bool is_set(const char* name) { return number(name, 0) != 0; }

inline int gpu_count() { return number("FAKE_GPU_COUNT", 1); }

/// The piece of a comma-separated variable at `place`; empty if there is none.
inline std::string piece(const char* name, int place) {
  const char* const text = std::getenv(name);
  std::string_view rest = text == nullptr ? "" : text;
  for (; place > 0 && !rest.empty(); --place) {
    const auto comma = rest.find(',');
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return std::string(rest.substr(0, rest.find(',')));
}

inline std::string gpu_name(int gpu) {
  const auto name = piece("FAKE_GPU_NAMES", gpu);
  return name.empty() ? "Fake GPU" : name;
}

/// Last byte of a GPU's UUID; the others are kUuidByte.
inline constexpr unsigned char kUuidByte = 0xfa;
inline unsigned char uuid_end(int gpu) { return static_cast<unsigned char>(gpu + 1); }

[[noreturn]] inline void hang() {
  for (;;) ::pause();
}

}  // namespace drover::test::fake
