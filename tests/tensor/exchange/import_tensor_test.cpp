// Memory of other libraries as tensors, between participants in one process.
#include "drover/tensor/dlpack.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "drover/base/trace.hpp"
#include "drover/tensor/send.hpp"
#include "ipc/ledger/open_ledger.hpp"
#include "session/client/session_helpers.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"
#include "tensor/exchange/foreign_support.hpp"
#include "tensor/memory/foreign_memory.hpp"
#include "tensor/memory/gate.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::test {
namespace {

constexpr std::int64_t kForeignCount = 100'000;
constexpr std::array kKinds = {"allocated", "mapped"};

std::vector<std::string>& traced() {
  static std::vector<std::string> names;
  return names;
}

class Foreign : public PlaceTest {
 protected:
  [[nodiscard]] Tensor received() {
    Tensor tensor;
    EXPECT_EQ(get(there_queue_, there_, tensor, Deadline::after(std::chrono::seconds(10))), GetResult::got);
    return tensor;
  }
  [[nodiscard]] Tensor sent(const Tensor& tensor) {
    EXPECT_EQ(put(*queue_, tensor), PutResult::put);
    return received();
  }
  // Collects unused imports, and returns how many slabs are left on the device.
  [[nodiscard]] std::size_t slabs_here() const {
    const auto slabs = here_->usage();
    return static_cast<std::size_t>(std::ranges::count(slabs, place(), &SlabUsage::place));
  }
  [[nodiscard]] bool are_released(const ForeignNumbers& numbers) const {
    return eventually([&] { return slabs_here() == 0 && numbers.kept() == 0; });
  }

  TestSession session_;
  std::shared_ptr<Membership> sender_ = session_.join();
  std::shared_ptr<Membership> receiver_ = session_.join();
  std::optional<Memory> here_{sender_};
  Memory there_{receiver_};
  std::optional<Queue> queue_{sender_};
  Queue there_queue_{receiver_, queue_->handle()};
};

TEST_P(Foreign, allocations_are_shared_by_handle_and_mappings_are_retained) {
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kForeignCount);
    const Imported imported = import_tensor(*here_, numbers.array(), kByReference);
    EXPECT_EQ(imported.way, way_of(kind));
    EXPECT_EQ(imported.tensor.place(), place());
    EXPECT_EQ(sum(imported.tensor), numbers.sum());
    numbers.set(7, 1007);
    EXPECT_EQ(imported.tensor.select(0, 7).item<std::int32_t>(), 1007);
  }
}

TEST_P(Foreign, elements_are_received_without_a_copy) {
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kForeignCount);
    const Tensor got = sent(import_tensor(*here_, numbers.array(), kByReference).tensor);
    EXPECT_EQ(sum(got), numbers.sum());
    numbers.set(7, 1007);
    EXPECT_EQ(sum(got), numbers.sum() + 1000);
  }
}

TEST_P(Foreign, an_array_inside_an_allocation_keeps_its_offset_and_strides) {
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kForeignCount);
    const auto layout = TensorLayout::strided(DType::int32, {3, 4}, {100, 2}, 5);
    const Imported imported = import_tensor(*here_, numbers.array(layout, 4000), kByReference);
    EXPECT_EQ(imported.way, way_of(kind));
    const Tensor got = sent(imported.tensor);
    EXPECT_EQ(got.select(0, 0).select(0, 0).item<std::int32_t>(), 1005);
    EXPECT_EQ(got.select(0, 2).select(0, 3).item<std::int32_t>(), 1211);
  }
}

TEST_P(Foreign, memory_shared_by_handle_cannot_be_kept) {
  ForeignNumbers numbers(place(), "allocated", kForeignCount);
  const Imported imported = import_tensor(*here_, numbers.array(), kByReference);
  ASSERT_EQ(imported.way, ImportWay::ipc_handle);
  expect_error(Errc::unsupported, [&] { keep("numbers", imported.tensor); }, {"'numbers' cannot be kept", "copy()"});
}

TEST_P(Foreign, a_returned_tensor_is_the_same_memory) {
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kForeignCount);
    const Tensor imported = import_tensor(*here_, numbers.array(), kByReference).tensor;
    ASSERT_EQ(put(*queue_, imported), PutResult::put);
    Tensor back;
    ASSERT_EQ(get(*queue_, *here_, back), GetResult::got);
    EXPECT_EQ(back.device_ptr(), imported.device_ptr());
  }
}

TEST_P(Foreign, an_array_in_exported_memory_is_found_by_address) {
  const Tensor tensor = arange(*here_, DType::int32, 0, kForeignCount, place());
  const DlpackArray lent = to_dlpack(tensor, 1);
  const auto layout = TensorLayout::strided(DType::int32, {3, 4}, {100, 2}, 5);
  const auto found =
      find_tensor(*here_, {.layout = layout, .place = place(), .base = lent.base + 4000, .keep_alive = nullptr}, {});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->shape()[1], 4);
  EXPECT_EQ(sent(*found).select(0, 2).select(0, 3).item<std::int32_t>(), 1211);
}

TEST_P(Foreign, arrays_outside_exported_memory_are_not_found) {
  ForeignNumbers numbers(place(), "allocated", kForeignCount);
  EXPECT_FALSE(find_tensor(*here_, numbers.array(), {}));
  std::optional<Tensor> tensor = zeros(*here_, DType::int32, {kForeignCount}, place());
  std::optional<DlpackArray> lent = to_dlpack(*tensor, 1);
  DlpackArray too_long = *lent;
  too_long.layout = TensorLayout::contiguous(DType::int32, {std::int64_t{1} << 40});
  EXPECT_FALSE(find_tensor(*here_, too_long, {}));
  DlpackArray odd = *lent;
  odd.layout = TensorLayout::contiguous(DType::int32, {1});
  odd.base = odd.base + 2;
  EXPECT_FALSE(find_tensor(*here_, odd, {}));
  EXPECT_FALSE(find_tensor(there_, *lent, {}));  // belongs to another participant
  DlpackArray without = *lent;
  without.layout = TensorLayout::contiguous(DType::int32, {0});
  EXPECT_FALSE(find_tensor(*here_, without, {}));
  const DlpackArray address{.layout = lent->layout, .place = place(), .base = lent->base, .keep_alive = nullptr};
  EXPECT_TRUE(find_tensor(*here_, address, {}));
  too_long.keep_alive = odd.keep_alive = without.keep_alive = nullptr;
  lent.reset();
  EXPECT_FALSE(find_tensor(*here_, address, {}));
}

TEST_P(Foreign, a_found_tensor_is_ordered_after_the_library_stream) {
  const Tensor tensor = zeros(*here_, DType::int32, {kForeignCount}, place());
  tensor.synchronize();
  const DlpackArray lent = to_dlpack(tensor, 1);
  Gate gate(place());
  gate.stream().fill(lent.base, 1, kForeignCount * sizeof(std::int32_t));
  const auto found = find_tensor(*here_, lent, gate.stream().native());
  ASSERT_TRUE(found);
  const Tensor got = sent(*found);
  EXPECT_FALSE(got.is_ready());
  gate.open();
  EXPECT_EQ(sum(got), double{0x01010101} * kForeignCount);
}

TEST_P(Foreign, arrays_are_copied_and_released) {
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kForeignCount);
    const Imported imported = import_tensor(*here_, numbers.array());
    EXPECT_EQ(imported.way, ImportWay::copied);
    EXPECT_TRUE(eventually([&] { return numbers.kept() == 0; })) << "without calls";
    EXPECT_EQ(slabs_here(), 1U);
    numbers.set(7, 1007);
    EXPECT_EQ(sum(sent(imported.tensor)), numbers.sum());
  }
}

TEST_P(Foreign, misaligned_elements_are_copied_correctly) {
  ForeignNumbers numbers(place(), "allocated", kForeignCount);
  const auto layout = TensorLayout::strided(DType::int32, {2, 3}, {8, 2});
  const Imported imported = import_tensor(*here_, numbers.array(layout, 2), kByReference);
  EXPECT_EQ(imported.way, ImportWay::copied);
  EXPECT_TRUE(imported.tensor.layout().is_contiguous());
  EXPECT_EQ(imported.tensor.select(0, 1).select(0, 2).item<std::int32_t>(), 13 << 16);
}

TEST_P(Foreign, host_memory_is_copied) {
  std::vector<std::int32_t> numbers = {0, 1, 2, 3, 4, 5};
  int kept = 1;
  DlpackArray array{.layout = TensorLayout::strided(DType::int32, {2}, {3}, 1),
                    .place = Place::cpu(),
                    .base = {reinterpret_cast<std::uint64_t>(numbers.data())},
                    .keep_alive = std::shared_ptr<void>(nullptr, [&](void*) { --kept; })};
  const Imported imported = import_tensor(*here_, array);
  array.keep_alive.reset();
  EXPECT_EQ(kept, 0);
  EXPECT_EQ(imported.way, ImportWay::copied);
  EXPECT_EQ(imported.tensor.place(), Place::cpu());
  EXPECT_EQ(sum(imported.tensor), 5.0);
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(import_tensor(*here_, array, {.stream = 1})); },
               {"synchronize the stream"});
}

TEST_P(Foreign, an_empty_array_needs_no_memory) {
  const DlpackArray array{.layout = TensorLayout::contiguous(DType::float64, {3, 0}),
                          .place = place(),
                          .base = {},
                          .keep_alive = nullptr};
  const Imported imported = import_tensor(*here_, array);
  EXPECT_EQ(imported.way, ImportWay::copied);
  EXPECT_EQ(imported.tensor.layout(), array.layout);
  EXPECT_EQ(imported.tensor.place(), place());
}

TEST_P(Foreign, unknown_memory_throws) {
  int number = 0;
  const DlpackArray array{.layout = TensorLayout::contiguous(DType::int32, {1}),
                          .place = place(),
                          .base = {reinterpret_cast<std::uint64_t>(&number)},
                          .keep_alive = nullptr};
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(import_tensor(*here_, array)); },
               {"no device memory lies at"});
}

TEST_P(Foreign, work_is_ordered_after_the_library_stream) {
  for (const std::string kind : kKinds) {
    for (const bool by_reference : {true, false}) {
      SCOPED_TRACE(kind + (by_reference ? " shared" : " copied"));
      ForeignNumbers numbers(place(), kind, kForeignCount);
      {
        Gate gate(place());
        gate.stream().fill(numbers.ptr(), 1, kForeignCount * sizeof(std::int32_t));
        const auto imported =
            import_tensor(*here_, numbers.array(), {.stream = gate.stream().native(), .by_reference = by_reference});
        EXPECT_FALSE(imported.tensor.is_ready());
        EXPECT_EQ(slabs_here(), 1U);
        EXPECT_EQ(numbers.kept(), 1) << "the library's memory is still in use";
        const Tensor got = sent(imported.tensor);
        EXPECT_FALSE(got.is_ready());
        gate.open();
        EXPECT_EQ(sum(got), double{0x01010101} * kForeignCount);
      }
      EXPECT_TRUE(eventually([&] {
        here_->trim();
        there_.trim();  // to unmap it later would wait for the next gate
        return slabs_here() == 0 && there_.usage().empty() && numbers.kept() == 0;
      }));
    }
  }
}

TEST_P(Foreign, an_unknown_stream_throws_and_keeps_nothing_alive) {
  if (place().backend == BackendKind::cuda) GTEST_SKIP() << "CUDA does not validate stream handles";
  ForeignNumbers numbers(place(), "allocated", kForeignCount);
  expect_error(Errc::invalid_argument,
               [&] { static_cast<void>(import_tensor(*here_, numbers.array(), {.stream = 12345})); });
  EXPECT_EQ(numbers.kept(), 0);
  EXPECT_EQ(here_->claimed(place()), 0U);
}

TEST_P(Foreign, keep_alive_is_held_until_the_last_lease_ends) {
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kForeignCount);
    Tensor got = sent(import_tensor(*here_, numbers.array(), kByReference).tensor);
    EXPECT_EQ(slabs_here(), 1U);
    here_->trim();
    EXPECT_EQ(numbers.kept(), 1) << "the receiver holds it";
    EXPECT_EQ(sum(got), numbers.sum());
    got = Tensor();
    EXPECT_TRUE(are_released(numbers));
  }
}

TEST_P(Foreign, memory_opened_by_a_handle_is_held_until_it_is_closed) {
  ForeignNumbers numbers(place(), "allocated", kForeignCount);
  Tensor got = sent(import_tensor(*here_, numbers.array(), kByReference).tensor);
  auto book = ipc::OpenLedger::open(receiver_, here_->usage().at(0).handle);
  got = Tensor();
  EXPECT_EQ(slabs_here(), 1U);
  EXPECT_EQ(numbers.kept(), 1) << "no leases are left, but the handle is still open";
  book.reset();
  EXPECT_TRUE(are_released(numbers));
}

TEST_P(Foreign, an_invalid_handle_file_is_corrupt) {
  ForeignNumbers numbers(place(), "allocated", kForeignCount);
  const Fd zeros = make_memory_file("no handle", 104);
  expect_error(Errc::corrupt, [&] { static_cast<void>(tensor::open_handle_file(place(), zeros, kMiB)); });
  const Fd longer = make_memory_file("no handle", 4096);
  expect_error(Errc::corrupt, [&] { static_cast<void>(tensor::open_handle_file(place(), longer, kMiB)); });
  const tensor::ForeignMemory memory{
      .place = place(), .base = numbers.ptr(), .size = kMiB, .form = tensor::SlabForm::handle};
  const Fd file = tensor::make_handle_file(backend_of(place().backend).open(place().index), memory);
  expect_error(Errc::corrupt, [&] { static_cast<void>(tensor::open_handle_file(place(), file, kMiB / 2)); });
  expect_error(Errc::peer_lost, [&] { static_cast<void>(tensor::open_handle_file(place(), file, kMiB)); },
               {"it was freed"});
}

TEST_P(Foreign, keep_alive_is_released_with_the_last_local_tensor) {
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kForeignCount);
    Tensor imported = import_tensor(*here_, numbers.array(), kByReference).tensor;
    Tensor view = imported.slice(0, 10, 20);
    imported = Tensor();
    EXPECT_EQ(numbers.kept(), 1);
    view = Tensor();
    EXPECT_EQ(numbers.kept(), 0);
  }
}

TEST_P(Foreign, unreceived_memory_is_released_with_its_queue) {
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kForeignCount);
    std::optional<Queue> queue(std::in_place, sender_);
    ASSERT_EQ(put(*queue, import_tensor(*here_, numbers.array(), kByReference).tensor), PutResult::put);
    EXPECT_EQ(slabs_here(), 1U);
    EXPECT_EQ(numbers.kept(), 1);
    queue.reset();
    EXPECT_TRUE(eventually([&] {
      here_->trim();  // not usage(), which would recover the ledger
      return numbers.kept() == 0;
    }));
  }
}

TEST_P(Foreign, only_imports_of_the_same_memory_share_a_slab) {
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kForeignCount);
    ForeignNumbers others(place(), kind, kForeignCount);
    Tensor one = import_tensor(*here_, numbers.array(), kByReference).tensor;
    const auto part = TensorLayout::contiguous(DType::int32, {10});
    Tensor two = import_tensor(*here_, numbers.array(part, 400), kByReference).tensor;
    EXPECT_EQ(slabs_here(), 1U);
    EXPECT_EQ(two.device_ptr(), one.device_ptr() + 400);
    const Tensor other = import_tensor(*here_, others.array(), kByReference).tensor;
    EXPECT_EQ(slabs_here(), 2U);
    one = Tensor();
    EXPECT_EQ(numbers.kept(), 2);
    EXPECT_EQ(sum(two), 1045.0);
    two = Tensor();
    EXPECT_EQ(numbers.kept(), 0);
    EXPECT_EQ(others.kept(), 1);
    EXPECT_EQ(sum(import_tensor(*here_, numbers.array(), kByReference).tensor), numbers.sum())
        << "it can be imported again";
  }
}

TEST_P(Foreign, importing_again_while_only_peers_hold_it_reuses_the_slab) {
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kForeignCount);
    Tensor got = sent(import_tensor(*here_, numbers.array(), kByReference).tensor);
    Tensor again = import_tensor(*here_, numbers.array(), kByReference).tensor;
    EXPECT_EQ(slabs_here(), 1U);
    again.fill(3);
    again.synchronize();
    EXPECT_EQ(sum(got), 3.0 * kForeignCount);
    got = again = Tensor();
    EXPECT_TRUE(are_released(numbers));
  }
}

TEST_P(Foreign, nothing_is_allocated_in_imported_memory) {
  ForeignNumbers numbers(place(), "mapped", kForeignCount);
  const Tensor imported = import_tensor(*here_, numbers.array(), kByReference).tensor;
  const Tensor own = full(*here_, DType::int32, {kForeignCount}, 5, place());
  EXPECT_EQ(sum(imported), numbers.sum());
  EXPECT_EQ(sum(own), 5.0 * kForeignCount);
  const auto slabs = here_->usage();
  const auto is_own_there = [](const SlabUsage& slab) { return slab.place == place() && slab.is_own; };
  EXPECT_EQ(std::ranges::count_if(slabs, is_own_there), 1);
}

TEST_P(Foreign, each_way_is_traced) {
  ForeignNumbers allocated(place(), "allocated", 10);
  ForeignNumbers mapped(place(), "mapped", 10);
  traced().clear();
  set_trace_sink([](const TraceRecord& record) noexcept {
    if (std::string_view(record.name).starts_with("tensor.import")) traced().emplace_back(record.name);
  });
  static_cast<void>(import_tensor(*here_, allocated.array(), kByReference));
  static_cast<void>(import_tensor(*here_, mapped.array(), kByReference));
  static_cast<void>(import_tensor(*here_, mapped.array()));
  set_trace_sink(nullptr);
  const std::vector<std::string> expected = {"tensor.import.ipc_handle", "tensor.import.retained",
                                             "tensor.import.copied"};
  EXPECT_EQ(traced(), expected);
}

DROVER_INSTANTIATE_ON_DEVICES(Foreign);

}  // namespace
}  // namespace drover::test
