// The CUDA backend with the stand-in driver: foreign memory, captures, and behaviour that needs several GPUs.
#include <dlfcn.h>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/device/backend.hpp"
#include "drover/device/stream.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/fake_driver/fake_memory.hpp"
#include "support/fault_seam.hpp"
#include "support/peer_group.hpp"
#include "support/run_program.hpp"
#include "support/scoped_environment.hpp"

namespace drover::test {
namespace {

constexpr std::size_t kFakeBytes = 2 * kMiB;

// Runs a body in a process with the stand-in driver.
class FakeDriver : public testing::Test {
 protected:
  static void run(const char* body) {
    PeerGroup peer(body, {.mode = PeerMode::processes, .size = 1});
    peer.start();
    peer.expect_success();
  }

 private:
  ScopedEnvironment cuda_{"DROVER_LIBCUDA", DROVER_FAKE_LIBCUDA};
  ScopedEnvironment nvml_{"DROVER_LIBNVML", DROVER_FAKE_LIBNVML};
  ScopedEnvironment memory_{"FAKE_MEMORY", "1"};
  ScopedEnvironment count_{"FAKE_GPU_COUNT", "2"};
  ScopedEnvironment visible_{"CUDA_VISIBLE_DEVICES", std::nullopt};
};

Device& gpu(int index) { return backend_of(BackendKind::cuda).open(index); }

template <class Function>
Function function_of_driver(const char* name) {
  static void* const library = ::dlopen(DROVER_FAKE_LIBCUDA, RTLD_NOW);
  return reinterpret_cast<Function>(::dlsym(library, name));
}

void exchange_capture_mode(int& mode) {
  const auto exchange = function_of_driver<int (*)(int*)>("cuThreadExchangeStreamCaptureMode");
  ASSERT_TRUE(exchange != nullptr && exchange(&mode) == 0);
}

DevicePtr foreign(fake::MemoryKind kind) {
  const auto allocate = function_of_driver<fake::Allocate>("fake_allocate");
  return {allocate == nullptr ? 0 : allocate(static_cast<int>(kind), kFakeBytes)};
}

}  // namespace

DROVER_PEER_BODY(foreign_kinds) {
  const DevicePtr pool = foreign(fake::MemoryKind::pool);
  const DevicePtr managed = foreign(fake::MemoryKind::managed);
  const DevicePtr unshared = foreign(fake::MemoryKind::virtual_not_shared);
  EXPECT_TRUE(gpu(0).describe(pool).is_pool);
  EXPECT_TRUE(gpu(0).describe(managed).is_managed);
  EXPECT_TRUE(gpu(0).describe(unshared).is_vmm);
  const auto handle = [](DevicePtr ptr) { static_cast<void>(gpu(0).ipc_handle(ptr)); };
  const auto retain = [](DevicePtr ptr) { static_cast<void>(gpu(0).retain_slab(ptr)); };
  expect_error(Errc::unsupported, [&] { handle(pool); }, {"stream-ordered pool", "copy it into a slab"});
  expect_error(Errc::unsupported, [&] { handle(managed); }, {"managed memory", "copy it into a slab"});
  expect_error(Errc::unsupported, [&] { retain(managed); }, {"managed memory", "copy it into a slab"});
  expect_error(Errc::unsupported, [&] { retain(unshared); }, {"without a shareable handle type"});
  EXPECT_EQ(gpu(0).describe(foreign(fake::MemoryKind::plain)).size, kFakeBytes);
}

TEST_F(FakeDriver, memory_that_cannot_be_shared_is_named_by_kind_with_a_remedy) { run("foreign_kinds"); }

DROVER_PEER_BODY(second_piece) {
  const DevicePtr second = foreign(fake::MemoryKind::virtual_memory);
  const PointerInfo info = gpu(0).describe(second + 100);
  EXPECT_TRUE(info.is_vmm && info.can_retain);
  EXPECT_EQ(info.base, second) << "the reservation begins earlier, with another piece";
  EXPECT_EQ(info.size, kFakeBytes);
  const std::uint64_t mark = 77;
  gpu(0).upload(second, &mark, sizeof(mark));
  const auto slab = gpu(0).retain_slab(second + 100);
  std::uint64_t seen = 0;
  gpu(0).download(&seen, gpu(0).map(*slab)->ptr(), sizeof(seen));
  EXPECT_EQ(seen, mark);
}

TEST_F(FakeDriver, piece_of_an_expandable_segment_is_retained_alone) { run("second_piece"); }

DROVER_PEER_BODY(stream_of_another_device) {
  const auto stream = gpu(1).create_stream();
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(gpu(0).borrow_stream(stream->native())); },
               {"another device or context"});
  for (const std::uintptr_t standard : {0U, 1U, 2U}) EXPECT_EQ(gpu(0).borrow_stream(standard)->native(), standard);
  EXPECT_EQ(backend_of(BackendKind::cuda).live().streams, 1U);
}

TEST_F(FakeDriver, default_streams_can_be_borrowed_and_streams_of_other_devices_cannot) {
  run("stream_of_another_device");
}

// Counts the devices that get access to a mapping, while access is refused for all but the first.
DROVER_PEER_BODY(peer_access) {
  Backend& backend = backend_of(BackendKind::cuda);
  const bool reach_each_other = peer.parameter("peers") == "1";
  const auto accesses = [&] {
    const FaultSeam refuse("cuMemSetAccess", 1, {.nth = 2});
    static_cast<void>(gpu(0).map(*backend.create_slab(0, kFakeBytes)));
    return refuse.calls();
  };
  const CapturedLog log;
  EXPECT_EQ(accesses(), 1) << "the second device is not open yet";
  EXPECT_EQ(gpu(0).can_copy_directly(gpu(1)), reach_each_other);
  EXPECT_EQ(accesses(), reach_each_other ? 2 : 1);
  EXPECT_EQ(log.contains("cuMemSetAccess for another device failed"), reach_each_other);
}

TEST_F(FakeDriver, slabs_are_mapped_for_open_devices_that_can_access_them) {
  for (const char* const peers : {"0", "1"}) {
    const ScopedEnvironment setting("FAKE_PEERS", peers);
    PeerGroup peer("peer_access", {.mode = PeerMode::processes, .size = 1}, {{"peers", peers}});
    peer.start();
    peer.expect_success();
  }
}

DROVER_PEER_BODY(capture_mode) {
  static_cast<void>(gpu(0).allocate(kFakeBytes));
  static_cast<void>(gpu(0).create_stream()->is_idle());
  int mode = 1;
  exchange_capture_mode(mode);
  EXPECT_EQ(mode, 0) << "a call of drover changed the mode of this thread";
  EXPECT_EQ(gpu(0).create_stream()->synchronize(Deadline::never()), WaitResult::done);
  exchange_capture_mode(mode);
  EXPECT_EQ(mode, 1) << "a call of drover lost the mode that the program had chosen";
}

TEST_F(FakeDriver, capture_mode_of_a_thread_is_restored_after_each_call) {
  const ScopedEnvironment captured("FAKE_CAPTURE", "1");
  run("capture_mode");
}

// Waits for work before it unmaps memory: with a notice, in the way that leaves captures alone.
DROVER_PEER_BODY(unmapping_in_capture) {
  const auto synchronizations = [] {
    const FaultSeam seam("cuCtxSynchronize", 1, {.times = 0});
    static_cast<void>(gpu(0).map(*backend_of(BackendKind::cuda).create_slab(0, kFakeBytes)));
    return seam.calls();
  };
  EXPECT_EQ(synchronizations(), 1);
  {
    const CaptureNotice one;
    const CaptureNotice two;
    EXPECT_EQ(synchronizations(), 0) << "it would invalidate the capture";
  }
  EXPECT_EQ(synchronizations(), 1);
  const CaptureNotice capture;
  const FaultSeam no_memory("cuMemAlloc", 2);
  EXPECT_EQ(synchronizations(), 1) << "it must wait even if no byte is left to allocate";
}

TEST_F(FakeDriver, unmapping_leaves_announced_captures_alone) { run("unmapping_in_capture"); }

DROVER_PEER_BODY(borrowed_capturing) {
  const auto owner = gpu(0).create_stream();
  const auto borrowed = gpu(0).borrow_stream(owner->native());
  EXPECT_TRUE(borrowed->is_capturing());
  EXPECT_FALSE(borrowed->is_idle());
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(borrowed->synchronize(Deadline::never())); },
               {"that is capturing a graph", "after it has ended"});
}

TEST_F(FakeDriver, borrowed_stream_that_is_capturing_is_not_idle_and_cannot_be_waited_for) {
  const ScopedEnvironment captured("FAKE_CAPTURE", "2");
  run("borrowed_capturing");
}

// Runs this program again, with the stand-in driver instead of a GPU.
void expect_conformance() {
  const ProgramResult result =
      run_program({.executable = own_executable(),
                   .arguments = {"--gtest_filter=Cuda/BackendSuite.foreign_*:Cuda/IpcProcesses.*"}});
  EXPECT_TRUE(result.status.is_success()) << result.output;
  EXPECT_EQ(result.output.find("failed with code"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("foreign_handle_is_not_opened"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("[  PASSED  ] 1"), std::string::npos) << "most were skipped:\n" << result.output;
}

TEST_F(FakeDriver, conformance_of_foreign_memory_holds) { expect_conformance(); }

TEST_F(FakeDriver, conformance_of_foreign_memory_holds_during_a_capture) {
  const ScopedEnvironment captured("FAKE_CAPTURE", "1");
  expect_conformance();
}

}  // namespace drover::test
