#include "conformance/test_kernels.hpp"

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace drover::test {
namespace {

constexpr const char* kPtx = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .entry scale(.param .u64 p_data, .param .f32 p_factor, .param .u32 p_count) {
  .reg .pred %p<2>;
  .reg .f32 %f<4>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [p_data];
  ld.param.f32 %f1, [p_factor];
  ld.param.u32 %r1, [p_count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4];
  mul.f32 %f3, %f2, %f1;
  st.global.f32 [%rd4], %f3;
done:
  ret;
}

.visible .entry fault() {
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  mov.u64 %rd1, 8;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

}  // namespace

std::vector<std::byte> read_image(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(std::string("cannot read ") + path);
  return bytes_of({std::istreambuf_iterator<char>(file), {}});
}

std::vector<std::byte> test_kernel_image(BackendKind kind) {
  return kind == BackendKind::cuda ? bytes_of(kPtx) : read_image(DROVER_HOST_KERNELS);
}

}  // namespace drover::test
