#include "device/cuda/error.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "device/fork_guard.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/log.hpp"

namespace drover::device::cuda {
namespace {

struct Translation {
  CUresult result;
  Errc code;
  const char* remedy;
};

constexpr const char* kNewProcess =
    "the context cannot be used again: end this process and start a new one; compute-sanitizer finds the faulty "
    "access";
constexpr const char* kMismatch =
    "the user-space driver and the kernel module differ: reboot, reload the nvidia modules, or use a container image "
    "made for this driver";
constexpr const char* kReset = "look at `dmesg` for the Xid, then reset the GPU (nvidia-smi -r) or reboot";
constexpr const char* kMps =
    "restart the MPS daemon (echo quit | nvidia-cuda-mps-control) or unset CUDA_MPS_PIPE_DIRECTORY";

constexpr auto kTranslations = std::to_array<Translation>({
    {1, Errc::invalid_argument, "check addresses and sizes: a range may reach outside its memory or have been freed"},
    {2, Errc::device_memory, "free memory, ask for less, or see who uses the GPU with nvidia-smi"},
    {4, Errc::device_lost, "the process is exiting; release device objects before main returns"},
    {34, Errc::driver_missing, "a stub libcuda is loaded; remove the toolkit's stubs directory from LD_LIBRARY_PATH"},
    {36, Errc::driver_mismatch, "install a newer NVIDIA driver"},
    {46, Errc::busy, "another process holds the GPU in exclusive mode (nvidia-smi -q -d COMPUTE); end it or use MPS"},
    {100, Errc::not_found, "run `drover doctor`; CUDA_VISIBLE_DEVICES may hide every GPU"},
    {101, Errc::not_found, "use an index that `drover devices` shows"},
    {200, Errc::invalid_argument, "pass PTX, a cubin or a fatbin"},
    {201, Errc::internal, "please report this"},
    {209, Errc::unsupported, "the image has no code for this GPU; build it for the GPU's architecture or ship PTX"},
    {214, Errc::device_lost, kReset},
    {218, Errc::invalid_argument, "the PTX does not compile; the loader's message says where"},
    {222, Errc::driver_mismatch, "the PTX is newer than the driver; use an older toolkit or a newer driver"},
    {304, Errc::system, "look at `dmesg`; in a container, check that it may use the GPU and has enough open files"},
    {400, Errc::invalid_argument, "the object was destroyed already"},
    {500, Errc::not_found, "check the name; kernels must be declared extern \"C\""},
    {700, Errc::device_fault, kNewProcess},
    {701, Errc::invalid_argument, "the launch needs more registers or shared memory than a block can have"},
    {702, Errc::device_fault, kNewProcess},
    {709, Errc::device_fault, kNewProcess},
    {710, Errc::device_fault, kNewProcess},
    {712, Errc::busy, "register each piece of memory once and keep its registration"},
    {713, Errc::invalid_argument, "call Device::register_host on the memory first"},
    {714, Errc::device_fault, kNewProcess},
    {715, Errc::device_fault, kNewProcess},
    {716, Errc::device_fault, kNewProcess},
    {717, Errc::device_fault, kNewProcess},
    {718, Errc::device_fault, kNewProcess},
    {719, Errc::device_fault, kNewProcess},
    {800, Errc::permission_denied, "the driver does not permit this here; a container or MIG may forbid it"},
    {801, Errc::unsupported, "this GPU or driver cannot do it"},
    {802, Errc::device_lost,
     "start the fabric manager (systemctl start nvidia-fabricmanager), or wait until it is up"},
    {803, Errc::driver_mismatch, kMismatch},
    {804, Errc::driver_mismatch, kMismatch},
    {805, Errc::busy, kMps},
    {806, Errc::busy, kMps},
    {807, Errc::busy, kMps},
    {808, Errc::limit_reached, "MPS serves no more clients; start fewer workers per GPU"},
    {809, Errc::limit_reached, "MPS serves no more clients; start fewer workers per GPU"},
    {810, Errc::device_fault, kNewProcess},
});

Translation translate(CUresult result) {
  const auto* const found = std::ranges::find(kTranslations, result, &Translation::result);
  if (found != kTranslations.end()) return *found;
  return {result, Errc::system, "run `drover doctor` and look at `dmesg`"};
}

std::string subject(const CallFacts& facts) {
  std::string text;
  if (*facts.what != '\0') text += fmt::format(" for {}", facts.what);
  if (facts.bytes != 0) text += fmt::format(" of {}", format_bytes(facts.bytes));
  if (facts.device >= 0) text += fmt::format(" on cuda:{}", facts.device);
  return text;
}

}  // namespace

std::string describe(CUresult result) {
  const Driver& loaded = driver();
  const char* name = nullptr;
  const char* text = nullptr;
  if (loaded.cuGetErrorName.is_present()) static_cast<void>(loaded.cuGetErrorName(result, &name));
  if (loaded.cuGetErrorString.is_present()) static_cast<void>(loaded.cuGetErrorString(result, &text));
  if (name == nullptr) return fmt::format("CUDA error {}", result);
  return fmt::format("{} ({}): {}", name, result, text == nullptr ? "no text" : text);
}

Error cuda_error(CUresult result, const char* call, const CallFacts& facts, std::source_location where) {
  if (result == kNotInitialized) fork_guard::fail(where);
  const Translation translation = translate(result);
  return Error(translation.code,
               fmt::format("{} failed{} in process {}: {}", call, subject(facts), ::getpid(), describe(result)),
               translation.remedy, where);
}

void check_quietly(CUresult result, const char* call) noexcept {
  if (result == kSuccess || result == kDeinitialized || fork_guard::is_forked_child()) return;
  log(LogLevel::warn, call, result);
}

}  // namespace drover::device::cuda
