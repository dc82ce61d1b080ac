// Tensors that another library releases: on streams that capture graphs, which only GPUs can do, and many at once.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/tensor/dlpack.hpp"
#include "drover/tensor/tensor.hpp"
#include "session/client/session_helpers.hpp"
#include "support/build.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/gpu_capture.hpp"
#include "support/peer_group.hpp"
#include "support/scoped_environment.hpp"
#include "support/test_session.hpp"
#include "tensor/memory/device_work.hpp"
#include "tensor/memory/gate.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::tensor {
namespace {

class CapturedTensor : public test::PlaceTest {
 protected:
  static Device& device() { return backend_of(BackendKind::cuda).open(0); }

  test::TestSession session_;
  Memory memory_{session_.join()};
};

TEST_P(CapturedTensor, begin_use_during_a_capture_waits_for_the_elements) {
  const auto captured = device().create_stream();
  test::Gate gate(place());
  const Tensor tensor = zeros(memory_, DType::uint8, {1000}, place());
  gate.fill(tensor, 3);
  const test::GpuCapture capture(*captured);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    gate.open();
  });
  tensor.begin_use(*captured);
  EXPECT_TRUE(tensor.is_ready()) << "a graph cannot wait for it";
  opener.join();
  EXPECT_TRUE(capture.end());
  EXPECT_EQ(sum(tensor), 3000.0);
}

TEST_P(CapturedTensor, end_use_during_a_capture_throws) {
  const auto captured = device().create_stream();
  const Tensor tensor = full(memory_, DType::uint8, {1000}, 2, place());
  const test::GpuCapture capture(*captured);
  test::expect_error(Errc::invalid_argument, [&] { tensor.end_use(*captured); },
                     {"captures a graph", "before or after the capture"});
  EXPECT_EQ(sum(tensor), 2000.0) << "drover's own streams are not in the capture";
  EXPECT_TRUE(capture.end());
  tensor.end_use(*captured);
  EXPECT_EQ(sum(tensor), 2000.0);
}

TEST_P(CapturedTensor, release_during_a_capture_takes_effect_after_it) {
  const auto theirs = device().create_stream();
  const auto native = static_cast<DlpackStream>(theirs->native());
  Tensor tensor = zeros(memory_, DType::uint8, {1000}, place());
  tensor.synchronize();
  test::Gate gate(place());
  DlpackArray array = to_dlpack(tensor, native);
  tensor = Tensor();
  const auto before = device().create_event();
  gate.stream().record(*before);
  theirs->wait(*before);  // work from before the capture, still in flight
  theirs->fill(array.base, 1, 1000);
  const test::GpuCapture capture(*theirs);
  array = {};
  EXPECT_EQ(memory_.claimed(place()), 1024U) << "the work from before the capture still uses it";
  EXPECT_TRUE(capture.end());
  EXPECT_EQ(memory_.claimed(place()), 1024U) << "likewise";
  gate.open();
  EXPECT_TRUE(test::eventually([&] { return memory_.claimed(place()) == 0; }));
}

constexpr int kMany = 60;

// A structure of tensors as another library has it, which uses them on the default stream.
std::vector<DlpackArray> exported(const Memory& memory, const Place& place) {
  std::vector<DlpackArray> arrays;
  for (int i = 0; i < kMany; ++i) {
    Tensor tensor = zeros(memory, DType::uint8, {1000}, place);
    tensor.synchronize();
    arrays.push_back(to_dlpack(tensor, static_cast<DlpackStream>(kDefaultStream)));
  }
  return arrays;
}

TEST_P(CapturedTensor, tensors_released_together_wait_for_the_default_stream) {
  const auto stream = device().borrow_stream(kDefaultStream);
  test::Gate gate(place());
  auto arrays = exported(memory_, place());
  const auto before = device().create_event();
  gate.stream().record(*before);
  stream->wait(*before);
  arrays.clear();
  EXPECT_EQ(memory_.claimed(place()), kMany * 1024U) << "the default stream still uses them";
  gate.open();
  EXPECT_TRUE(test::eventually([&] { return memory_.claimed(place()) == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Cuda, CapturedTensor, ::testing::Values("cuda:0"), test::place_name);

// With a stand-in for the driver, which counts.
DROVER_PEER_BODY(tensors_released_together) {
  static_cast<void>(peer);
  test::TestSession session;
  const Memory memory(session.join());
  const Place place = Place::device(BackendKind::cuda, 0);
  auto arrays = exported(memory, place);
  const test::FaultSeam events("cuEventRecord", 1, {.times = 0});
  arrays.clear();
  const auto is_unused = [&] { return memory.claimed(place) == 0; };
  EXPECT_TRUE(test::eventually(is_unused));
  EXPECT_LT(events.calls(), kMany / 2) << "one event serves those that are released right after each other";
}

DROVER_PEER_BODY(tensors_in_use) {
  static_cast<void>(peer);
  constexpr int kNotReady = 600;
  test::TestSession session;
  Memory memory(session.join());
  const Place place = Place::device(BackendKind::cuda, 0);
  auto arrays = exported(memory, place);
  {
    const test::FaultSeam queries("cuStreamQuery", kNotReady);
    arrays.clear();
    static_cast<void>(memory.trim());  // gives them an event
    const int before = queries.calls();
    static_cast<void>(memory.trim());
    EXPECT_LT(queries.calls() - before, kMany / 2) << "one query serves all of a stream";
    EXPECT_EQ(memory.claimed(place), kMany * 1024U) << "all are still in use";
  }
  EXPECT_TRUE(test::eventually([&] { return memory.claimed(place) == 0; }));
}

// What the driver says of the default stream while a stream that waits for it is capturing.
constexpr int kCaptureImplicit = 906;

DROVER_PEER_BODY(tensors_released_during_a_capture) {
  static_cast<void>(peer);
  test::TestSession session;
  const Memory memory(session.join());
  const Place place = Place::device(BackendKind::cuda, 0);
  auto arrays = exported(memory, place);
  {
    const test::FaultSeam capture("cuStreamIsCapturing", kCaptureImplicit);
    const test::FaultSeam events("cuEventRecord", 1, {.times = 0});
    arrays.clear();
    for (int i = 0; i < 5; ++i) {  // the poller looks, too
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      static_cast<void>(zeros(memory, DType::uint8, {1000}));
    }
    EXPECT_EQ(events.calls(), 0) << "it would invalidate the capture";
    EXPECT_EQ(memory.claimed(place), kMany * 1024U) << "the default stream may still use them";
  }
  EXPECT_TRUE(test::eventually([&] { return memory.claimed(place) == 0; }));
}

void run_with_fake_driver(const char* body) {
  const test::ScopedEnvironment cuda("DROVER_LIBCUDA", DROVER_FAKE_LIBCUDA);
  const test::ScopedEnvironment nvml("DROVER_LIBNVML", DROVER_FAKE_LIBNVML);
  const test::ScopedEnvironment memory("FAKE_MEMORY", "1");
  const test::ScopedEnvironment visible("CUDA_VISIBLE_DEVICES", std::nullopt);
  test::PeerGroup peer(body, {.mode = test::PeerMode::processes, .size = 1});
  peer.start();
  peer.expect_success();
}

TEST(DeferredReleases, tensors_released_together_share_an_event) {
  if (test::kIsThreadSanitized)
    GTEST_SKIP() << "each release takes so long that the next one does not follow at once";
  run_with_fake_driver("tensors_released_together");
}

TEST(DeferredReleases, tensors_in_use_are_looked_at_together) { run_with_fake_driver("tensors_in_use"); }

TEST(DeferredReleases, tensors_released_during_a_capture_leave_it_alone) {
  run_with_fake_driver("tensors_released_during_a_capture");
}

}  // namespace
}  // namespace drover::tensor
