// Devices across the lifetime of a process: forks, faults, exit.
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "conformance/backend_suite.hpp"
#include "conformance/test_kernels.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "support/backends.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"

namespace drover::test {
namespace {

// Runs `body` in a fork of this process and returns its exit status. Only plain C++ is safe there.
template <class Body>
int status_of_fork(Body body) {
  const pid_t child = ::fork();
  if (child < 0) return -1;
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool is_forked_error(const std::function<void()>& action) {
  try {
    action();
    return false;
  } catch (const Error& error) {
    return error.code() == Errc::forked && std::string(error.what()).find("spawn") != std::string::npos;
  }
}

}  // namespace

// Forks happen in a separate process, so that the test runner is never copied.
DROVER_PEER_BODY(fork_after_open) {
  Backend& backend = backend_of(kind_of(peer));
  Device& device = backend.open(0);
  const auto memory = device.allocate(kMiB);
  const auto slab = backend.create_slab(0, kMiB);
  auto stream = device.create_stream();
  const auto event = device.create_event();
  stream->fill(memory->ptr(), 1, kMiB);
  ASSERT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
  const int failures = status_of_fork([&] {
    std::uint32_t value = 0;
    int unclear = 0;
    unclear += is_forked_error([&] { static_cast<void>(backend.open(0)); }) ? 0 : 1;
    unclear += is_forked_error([&] { static_cast<void>(device.allocate(kMiB)); }) ? 0 : 1;
    unclear += is_forked_error([&] { device.download(&value, memory->ptr(), 4); }) ? 0 : 1;
    unclear += is_forked_error([&] { static_cast<void>(backend.create_slab(0, kMiB)); }) ? 0 : 1;
    unclear += is_forked_error([&] { static_cast<void>(device.describe(memory->ptr())); }) ? 0 : 1;
    unclear += is_forked_error([&] { static_cast<void>(device.ipc_handle(memory->ptr())); }) ? 0 : 1;
    unclear += is_forked_error([&] { static_cast<void>(device.open_ipc({}, kMiB)); }) ? 0 : 1;
    unclear += is_forked_error([&] { static_cast<void>(device.retain_slab(memory->ptr())); }) ? 0 : 1;
    unclear += is_forked_error([&] { static_cast<void>(device.borrow_stream(stream->native())); }) ? 0 : 1;
    unclear +=
        is_forked_error([&] { static_cast<void>(slab->export_fd()); }) || kind_of(peer) == BackendKind::host ? 0 : 1;
    unclear += is_forked_error([&] { stream->fill(memory->ptr(), 2, 1); }) ? 0 : 1;
    unclear += is_forked_error([&] { static_cast<void>(stream->is_idle()); }) ? 0 : 1;
    unclear += is_forked_error([&] { static_cast<void>(event->has_happened()); }) ? 0 : 1;
    stream.reset();  // neither hangs nor throws
    return unclear;
  });
  EXPECT_EQ(failures, 0) << "calls in the fork did not throw Errc::forked";
  EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done) << "the fork harmed its parent";
}

DROVER_PEER_BODY(fork_before_open) {
  Backend& backend = backend_of(kind_of(peer));
  EXPECT_EQ(status_of_fork([&] {
              const auto memory = backend.open(0).allocate(kMiB);
              return memory->size() == kMiB ? 0 : 1;
            }),
            0);
}

class DeviceProcess : public testing::TestWithParam<BackendKind> {
 protected:
  void SetUp() override {
    if (const auto reason = reason_to_skip(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
  }
  static void run(const char* body) {
    PeerGroup peer(body, {.mode = PeerMode::processes, .size = 1}, {{"backend", std::string(to_string(GetParam()))}});
    peer.start();
    peer.expect_success();
  }
};

TEST_P(DeviceProcess, every_call_in_a_forked_child_throws_forked) { run("fork_after_open"); }

TEST_P(DeviceProcess, devices_only_listed_before_a_fork_work_in_the_child) { run("fork_before_open"); }

INSTANTIATE_TEST_SUITE_P(Host, DeviceProcess, testing::Values(BackendKind::host), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, DeviceProcess, testing::Values(BackendKind::cuda), backend_name);

// A kernel that writes to unmapped memory destroys its context; hence a separate process.
DROVER_PEER_BODY(faulting_kernel) {
  Device& device = backend_of(BackendKind::cuda).open(0);
  const auto module = device.load_module(test_kernel_image(BackendKind::cuda));
  const auto stream = device.create_stream();
  stream->launch(*module->kernel("fault"), {}, {});
  expect_error(Errc::device_fault, [&] { static_cast<void>(stream->synchronize(Deadline::never())); },
               {"cuda:0", "CUDA_ERROR_ILLEGAL_ADDRESS", "end this process"});
  expect_error(Errc::device_fault, [&] { static_cast<void>(device.allocate(kMiB)); });
}

DROVER_PEER_BODY(wrong_kernel_arguments) {
  Device& device = backend_of(BackendKind::cuda).open(0);
  const auto module = device.load_module(test_kernel_image(BackendKind::cuda));
  const auto scale = module->kernel("scale");
  const auto stream = device.create_stream();
  const std::uint64_t address = 0;
  const std::array too_few{KernelArgument::of(address)};
  expect_error(Errc::invalid_argument, [&] { stream->launch(*scale, {}, too_few); }, {"'scale'", "[8, 4, 4]", "[8]"});
}

TEST(CudaProcess, fault_of_a_kernel_is_reported_with_its_remedy) {
  if (const auto reason = reason_to_skip(BackendKind::cuda); !reason.empty()) GTEST_SKIP() << reason;
  PeerGroup peer("faulting_kernel", {.mode = PeerMode::processes, .size = 1});
  peer.start();
  peer.expect_success();
}

TEST(CudaProcess, arguments_that_do_not_match_the_kernel_are_rejected) {
  if (const auto reason = reason_to_skip(BackendKind::cuda); !reason.empty()) GTEST_SKIP() << reason;
  PeerGroup peer("wrong_kernel_arguments", {.mode = PeerMode::processes, .size = 1});
  peer.start();
  peer.expect_success();
}

}  // namespace drover::test
