// Modules, kernels and launches.
#include <array>

#include "conformance/backend_suite.hpp"
#include "conformance/test_kernels.hpp"
#include "support/expect_error.hpp"

namespace drover::test {

constexpr std::uint32_t kKernelCount = 1000;
constexpr std::size_t kKernelBytes = kKernelCount * sizeof(float);
constexpr LaunchShape kShape{.grid = {8, 1, 1}, .block = {128, 1, 1}};

TEST_P(BackendSuite, kernel_runs_over_all_its_threads) {
  const auto module = device().load_module(test_kernel_image(GetParam()));
  const auto scale = module->kernel("scale");
  const auto memory = device().allocate(kKernelBytes);
  const auto stream = device().create_stream();
  std::vector<float> values(kKernelCount);
  std::iota(values.begin(), values.end(), 0.0F);
  device().upload(memory->ptr(), values.data(), kKernelBytes);
  const std::uint64_t address = memory->ptr().address;
  const float factor = 2.5F;
  stream->launch(
      *scale, kShape,
      std::array{KernelArgument::of(address), KernelArgument::of(factor), KernelArgument::of(kKernelCount)});
  ASSERT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
  std::vector<float> results(kKernelCount);
  device().download(results.data(), memory->ptr(), kKernelBytes);
  for (std::size_t i = 0; i < kKernelCount; ++i) ASSERT_EQ(results[i], 2.5F * static_cast<float>(i));
}

TEST_P(BackendSuite, arguments_are_copied_when_the_launch_is_submitted) {
  const auto module = device().load_module(test_kernel_image(GetParam()));
  const auto scale = module->kernel("scale");
  const auto memory = device().allocate(kKernelBytes);
  const auto stream = device().create_stream();
  const std::vector<float> ones(kKernelCount, 1.0F);
  device().upload(memory->ptr(), ones.data(), kKernelBytes);
  const std::uint64_t address = memory->ptr().address;
  float factor = 3.0F;
  const Gate gate;
  gate.hold(*stream);
  stream->launch(
      *scale, kShape,
      std::array{KernelArgument::of(address), KernelArgument::of(factor), KernelArgument::of(kKernelCount)});
  factor = 99.0F;
  gate.open();
  ASSERT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
  float seen = 0;
  device().download(&seen, memory->ptr(), sizeof(seen));
  EXPECT_EQ(seen, 3.0F);
}

TEST_P(BackendSuite, missing_kernel_is_an_error_that_names_it) {
  const auto module = device().load_module(test_kernel_image(GetParam()));
  expect_error(Errc::not_found, [&] { static_cast<void>(module->kernel("no_such_kernel")); }, {"no_such_kernel"});
}

TEST_P(BackendSuite, image_that_is_not_code_is_an_error_with_the_loaders_message) {
  const std::array<std::byte, 5> garbage{std::byte{'h'}, std::byte{'e'}, std::byte{'l'}, std::byte{'l'},
                                         std::byte{'o'}};
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(device().load_module(garbage)); }, {"remedy:"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(device().load_module({})); });
}

TEST_P(BackendSuite, impossible_launch_is_an_error) {
  const auto module = device().load_module(test_kernel_image(GetParam()));
  const auto scale = module->kernel("scale");
  const auto stream = device().create_stream();
  const std::uint64_t address = 0;
  const float factor = 1.0F;
  const std::array arguments{KernelArgument::of(address), KernelArgument::of(factor),
                             KernelArgument::of(kKernelCount)};
  expect_error(Errc::invalid_argument, [&] { stream->launch(*scale, {.block = {2048, 1, 1}}, arguments); });
  expect_error(Errc::invalid_argument, [&] { stream->launch(*scale, {.grid = {0, 1, 1}}, arguments); });
}

}  // namespace drover::test
