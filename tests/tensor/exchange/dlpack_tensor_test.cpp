// Tensors exported to other libraries.
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/tensor/dlpack.hpp"
#include "drover/tensor/tensor.hpp"
#include "session/client/session_helpers.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"
#include "tensor/memory/gate.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::tensor {
namespace {

class ExportedTensors : public test::PlaceTest {
 protected:
  // Accesses the memory as another library would, without drover.
  static std::int32_t first_of(const DlpackArray& array) {
    const auto* const managed = export_dlpack(array);
    std::int32_t value = 0;
    if (managed->dl_tensor.device.device_type == dlpack::kDLCPU) {
      value = *static_cast<const std::int32_t*>(managed->dl_tensor.data);
    } else {
      const DevicePtr from{reinterpret_cast<std::uint64_t>(managed->dl_tensor.data)};
      backend_of(BackendKind::cuda).open(0).download(&value, from, sizeof(value));
    }
    managed->deleter(const_cast<dlpack::DLManagedTensorVersioned*>(managed));  // NOLINT(*-const-cast): it is ours
    return value;
  }
  static bool is_gpu() { return place().is_device && place().backend == BackendKind::cuda; }

  test::TestSession session_;
  Memory memory_{session_.join()};
};

TEST_P(ExportedTensors, consumers_see_its_elements) {
  const Tensor tensor = arange(memory_, DType::int32, 0, 100, place());
  tensor.synchronize();
  EXPECT_EQ(first_of(to_dlpack(tensor)), 0);
  const DlpackArray view = to_dlpack(tensor.slice(0, 17));
  EXPECT_EQ(view.layout, tensor.slice(0, 17).layout());
  EXPECT_EQ(first_of(view), 17);
}

TEST_P(ExportedTensors, memory_stays_until_consumers_release_it) {
  DlpackArray array = to_dlpack(full(memory_, DType::int32, {100}, 5, place()));
  EXPECT_EQ(memory_.claimed(place()), 512U);
  const dlpack::DLManagedTensorVersioned* const managed = export_dlpack(array);
  array = {};
  EXPECT_EQ(memory_.claimed(place()), 512U);
  managed->deleter(const_cast<dlpack::DLManagedTensorVersioned*>(managed));  // NOLINT(*-const-cast): it is ours
  EXPECT_TRUE(test::eventually([&] { return memory_.claimed(place()) == 0; }));
}

TEST_P(ExportedTensors, writes_of_consumers_are_visible) {
  const Tensor tensor = zeros(memory_, DType::int32, {4}, place());
  if (is_gpu()) {
    DlpackArray array = to_dlpack(tensor, -1);
    const std::int32_t number = 9;
    backend_of(BackendKind::cuda).open(0).upload(array.base, &number, sizeof(number));
  } else {
    *reinterpret_cast<std::int32_t*>(to_dlpack(tensor).host()) = 9;
  }
  EXPECT_EQ(sum(tensor), 9.0);
}

DROVER_INSTANTIATE_AT_PLACES(ExportedTensors);

class ExportedOnDevice : public ExportedTensors {};

TEST_P(ExportedOnDevice, streams_are_ordered_in_both_directions) {
  test::Gate gate(place());
  const Tensor tensor = zeros(memory_, DType::uint8, {1000}, place());
  if (!is_gpu()) {  // consumers use it without streams, so it is ready
    DlpackArray array = to_dlpack(tensor);
    EXPECT_TRUE(tensor.is_ready());
    return;
  }
  Device& device = backend_of(BackendKind::cuda).open(0);
  const auto theirs = device.create_stream();
  gate.fill(tensor, 3);
  DlpackArray array = to_dlpack(tensor, static_cast<DlpackStream>(theirs->native()));
  const Tensor copied = empty(memory_, DType::uint8, {1000}, place());
  copied.begin_use(*theirs);
  theirs->copy(copied.device_ptr(), array.base, 1000);
  theirs->fill(array.base, 4, 1000);
  copied.end_use(*theirs);
  array = {};
  EXPECT_FALSE(copied.is_ready());
  gate.open();
  EXPECT_EQ(sum(copied), 3000.0);
  EXPECT_EQ(sum(tensor), 4000.0);
}

TEST_P(ExportedOnDevice, finished_exports_are_released_at_once) {
  if (!is_gpu()) GTEST_SKIP() << "exports of emulated devices are host memory, which has no streams";
  const auto theirs = backend_of(BackendKind::cuda).open(0).create_stream();
  Tensor tensor = zeros(memory_, DType::uint8, {1000}, place());
  tensor.synchronize();
  DlpackArray array = to_dlpack(tensor, static_cast<DlpackStream>(theirs->native()));
  theirs->fill(array.base, 4, 1000);
  ASSERT_EQ(theirs->synchronize(Deadline::never()), WaitResult::done);
  tensor = Tensor();
  array = {};
  EXPECT_EQ(memory_.claimed(place()), 0U);
}

TEST_P(ExportedOnDevice, invalid_streams_are_rejected) {
  const Tensor tensor = zeros(memory_, DType::uint8, {10}, place());
  if (!is_gpu()) GTEST_SKIP() << "exports of emulated devices are host memory, which has no streams";
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(to_dlpack(tensor, 0)); }, {"stream"});
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(to_dlpack(tensor, -7)); });
}

DROVER_INSTANTIATE_ON_DEVICES(ExportedOnDevice);

}  // namespace
}  // namespace drover::tensor
