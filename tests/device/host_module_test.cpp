// Kernels of the emulated devices, beyond the conformance suite.
#include "device/host/module.hpp"

#include <gtest/gtest.h>

#include "conformance/test_kernels.hpp"
#include "device/host/backend.hpp"
#include "support/expect_error.hpp"

namespace drover::device::host {
namespace {

int number_told_by(Device& device, const char* path) {
  const auto module = device.load_module(test::read_image(path));
  const auto kernel = module->kernel("tell_number");
  const auto stream = device.create_stream();
  int number = 0;
  int* const where = &number;
  stream->launch(*kernel, {}, std::array{KernelArgument::of(where)});
  EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
  return number;
}

}  // namespace

TEST(HostModule, image_is_never_mistaken_for_one_unloaded_before) {
  HostBackend backend;
  EXPECT_EQ(number_told_by(backend.open(0), DROVER_UNIQUE_KERNEL_1), 1);
  EXPECT_EQ(number_told_by(backend.open(0), DROVER_UNIQUE_KERNEL_2), 2);
  EXPECT_EQ(number_told_by(backend.open(0), DROVER_UNIQUE_KERNEL_1), 1);
}

TEST(HostModule, function_of_a_dependency_of_the_image_is_not_a_kernel) {
  HostBackend backend;
  const auto module = backend.open(0).load_module(test::test_kernel_image(BackendKind::host));
  test::expect_error(Errc::not_found, [&] { static_cast<void>(module->kernel("printf")); }, {"'printf'"});
}

TEST(HostModule, argument_without_a_value_is_an_error) {
  HostBackend backend;
  const auto module = backend.open(0).load_module(test::test_kernel_image(BackendKind::host));
  const auto kernel = module->kernel("scale");
  const auto stream = backend.open(0).create_stream();
  test::expect_error(Errc::invalid_argument, [&] { stream->launch(*kernel, {}, std::array{KernelArgument{}}); });
}

}  // namespace drover::device::host
