// Translation of the driver's errors; needs no driver.
#include "device/cuda/error.hpp"

#include <gtest/gtest.h>

#include "support/captured_log.hpp"
#include "support/expect_error.hpp"

namespace drover::device::cuda {

TEST(CudaError, code_and_remedy_follow_the_result) {
  const std::vector<std::pair<CUresult, Errc>> table = {
      {1, Errc::invalid_argument},
      {2, Errc::device_memory},
      {34, Errc::driver_missing},
      {46, Errc::busy},
      {100, Errc::not_found},
      {101, Errc::not_found},
      {209, Errc::unsupported},
      {500, Errc::not_found},
      {700, Errc::device_fault},
      {719, Errc::device_fault},
      {801, Errc::unsupported},
      {802, Errc::device_lost},
      {803, Errc::driver_mismatch},
      {804, Errc::driver_mismatch},
      {805, Errc::busy},
      {808, Errc::limit_reached},
      {999, Errc::system},
      {12345, Errc::system},
  };
  for (const auto& [result, code] : table) {
    const Error error = cuda_error(result, "cuCall", {});
    EXPECT_EQ(error.code(), code) << result;
    EXPECT_FALSE(error.remedy().empty()) << result;
    EXPECT_NE(error.message().find(std::to_string(result)), std::string::npos);
  }
}

TEST(CudaError, text_holds_call_subject_size_device_and_pid) {
  const Error error = cuda_error(2, "cuMemCreate", {.device = 3, .what = "a slab", .bytes = 64 << 20});
  for (const auto& part : {std::string("cuMemCreate"), std::string("a slab of 64.0 MiB"), std::string("cuda:3"),
                           std::to_string(::getpid())}) {
    EXPECT_NE(error.message().find(part), std::string::npos) << part << " is not in: " << error.message();
  }
}

TEST(CudaError, not_initialised_can_only_mean_a_fork) {
  test::expect_error(Errc::forked, [] { check(kNotInitialized, "cuMemAlloc", {}); }, {"forked", "spawn"});
}

TEST(CudaError, success_is_silent) {
  EXPECT_NO_THROW(check(kSuccess, "cuCall", {}));
  const test::CapturedLog log;
  check_quietly(kSuccess, "cuCall");
  check_quietly(kDeinitialized, "cuCall");
  EXPECT_TRUE(log.lines().empty());
  check_quietly(700, "cuMemFree failed with code");
  EXPECT_TRUE(log.contains("cuMemFree failed with code: 700"));
}

}  // namespace drover::device::cuda
