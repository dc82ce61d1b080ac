#include "device/cuda/copy_kernel.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "device/cuda/device.hpp"
#include "drover/base/log.hpp"

namespace drover::device::cuda {
namespace {

constexpr std::size_t kMostCopies = 160;  // parameters of a kernel may have 4 KiB
constexpr std::uint64_t kBytesPerBlock = std::uint64_t{64} << 10U;
constexpr std::uint64_t kMostBlocks = 64;  // for one copy: more make large copies no faster
constexpr unsigned kThreads = 512;

// Copy y of the grid is shared by all blocks x. Aligned ranges go in steps of 16 bytes, the rest byte by byte.
constexpr const char* kCode = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .entry drover_copy_all(.param .align 8 .b8 copies[3840])
{
  .reg .pred %is_over, %is_odd;
  .reg .b16 %byte;
  .reg .b32 %x, %y, %threads, %blocks, %thread, %a, %b, %c, %d;
  .reg .b64 %copy, %to, %from, %bytes, %wide, %at, %step, %own, %bits, %source, %target;

  mov.u32 %y, %ctaid.y;
  mul.wide.u32 %own, %y, 24;
  mov.b64 %copy, copies;
  add.s64 %copy, %copy, %own;
  ld.param.u64 %to, [%copy];
  ld.param.u64 %from, [%copy+8];
  ld.param.u64 %bytes, [%copy+16];
  cvta.to.global.u64 %to, %to;
  cvta.to.global.u64 %from, %from;

  mov.u32 %x, %ctaid.x;
  mov.u32 %blocks, %nctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mul.wide.u32 %step, %blocks, %threads;
  mul.wide.u32 %at, %x, %threads;
  cvt.u64.u32 %own, %thread;
  add.s64 %at, %at, %own;

  or.b64 %bits, %to, %from;
  and.b64 %bits, %bits, 15;
  setp.ne.s64 %is_odd, %bits, 0;
  @%is_odd bra bytewise;

  shr.u64 %wide, %bytes, 4;
wide_next:
  setp.ge.u64 %is_over, %at, %wide;
  @%is_over bra wide_end;
  shl.b64 %bits, %at, 4;
  add.s64 %source, %from, %bits;
  add.s64 %target, %to, %bits;
  ld.global.v4.u32 {%a, %b, %c, %d}, [%source];
  st.global.v4.u32 [%target], {%a, %b, %c, %d};
  add.s64 %at, %at, %step;
  bra wide_next;
wide_end:
  sub.s64 %at, %at, %wide;
  and.b64 %bits, %bytes, -16;
  add.s64 %at, %at, %bits;

bytewise:
  setp.ge.u64 %is_over, %at, %bytes;
  @%is_over bra end;
  add.s64 %source, %from, %at;
  add.s64 %target, %to, %at;
  ld.global.u8 %byte, [%source];
  st.global.u8 [%target], %byte;
  add.s64 %at, %at, %step;
  bra bytewise;
end:
  ret;
}
)";

static_assert(sizeof(DeviceCopy) == 24 && kMostCopies * sizeof(DeviceCopy) == 3840);

}  // namespace

CUfunction CopyKernel::function() {
  const MutexLock lock(mutex_);
  if (std::exchange(is_loaded_, true)) return function_;
  CUmodule code = nullptr;
  CUresult result = driver().cuModuleLoadDataEx(&code, kCode, 0, nullptr, nullptr);
  if (result == kSuccess) result = driver().cuModuleGetFunction(&function_, code, "drover_copy_all");
  if (result != kSuccess) {
    log(LogLevel::info, fmt::format("cuda:{} copies ranges one by one: its driver cannot load the kernel that copies "
                                    "many at once: {}",
                                    device_.info().index, describe(result)));
  }
  return function_;
}

bool CopyKernel::submit(CUstream stream, std::span<const DeviceCopy> copies) {
  auto* const loaded = function();
  if (loaded == nullptr) return false;
  while (!copies.empty()) {
    const auto some = copies.first(std::min(copies.size(), kMostCopies));
    copies = copies.subspan(some.size());
    std::array<DeviceCopy, kMostCopies> parameter{};
    std::ranges::copy(some, parameter.begin());
    std::array<void*, 1> parameters = {parameter.data()};
    const std::uint64_t most = std::ranges::max(some, {}, &DeviceCopy::bytes).bytes;
    const auto blocks = std::clamp<std::uint64_t>((most + kBytesPerBlock - 1) / kBytesPerBlock, 1, kMostBlocks);
    check(driver().cuLaunchKernel(loaded, static_cast<unsigned>(blocks), static_cast<unsigned>(some.size()), 1,
                                  kThreads, 1, 1, 0, stream, parameters.data(), nullptr),
          "cuLaunchKernel", device_.facts("many copies"));
  }
  return true;
}

}  // namespace drover::device::cuda
