// Device memory by address, for allocators of other libraries.
#include "drover/tensor/slab_allocator.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/device/backend.hpp"
#include "drover/tensor/dlpack.hpp"
#include "drover/tensor/send.hpp"
#include "session/client/session_helpers.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/test_session.hpp"
#include "tensor/memory/gate.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::test {
namespace {

constexpr std::uint64_t kPlenty = 64 * kMiB;

class SlabAllocatorOn : public PlaceTest {
 protected:
  void SetUp() override {
    PlaceTest::SetUp();
    if (IsSkipped()) return;
    device_ = &backend_of(place().backend).open(place().index);
    stream_ = device_->create_stream();
    other_stream_ = device_->create_stream();
  }
  [[nodiscard]] SlabAllocatorOptions options(std::uint64_t cached = kPlenty) const {
    return {.backend = place().backend, .cached_bytes = cached};
  }
  [[nodiscard]] std::uintptr_t stream() const { return stream_->native(); }
  // An array of a library in such memory.
  [[nodiscard]] DlpackArray array_at(DevicePtr ptr, std::int64_t count) const {
    return {
        .layout = TensorLayout::contiguous(DType::int32, {count}), .place = place(), .base = ptr, .keep_alive = {}};
  }
  // Allows time for finished blocks to be released.
  [[nodiscard]] bool are_claimed(SlabAllocator& allocator, std::uint64_t bytes) const {
    return eventually([&] {
      allocator.empty_cache();
      return here_.claimed(place()) == bytes;
    });
  }
  [[nodiscard]] Tensor received() {
    Tensor tensor;
    EXPECT_EQ(get(there_queue_, there_, tensor, Deadline::after(std::chrono::seconds(10))), GetResult::got);
    return tensor;
  }
  // As the library of an allocator that divides its memory makes one: counted as long as it is kept.
  [[nodiscard]] DlpackArray kept_array_at(DevicePtr ptr, std::int64_t count) {
    DlpackArray array = array_at(ptr, count);
    ++kept_;
    array.keep_alive = std::shared_ptr<void>(nullptr, [this](void*) { --kept_; });
    return array;
  }
  [[nodiscard]] SlabAllocatorOptions divided(std::uint64_t cached = 0) const {
    return {.backend = place().backend, .cached_bytes = cached, .is_divided = true};
  }
  // Allows time for the end of work on arrays.
  [[nodiscard]] bool are_kept(int count) {
    return eventually([&] {
      here_.trim();
      return kept_ == count;
    });
  }
  void write(DevicePtr ptr, const std::vector<std::int32_t>& numbers) const {
    device_->upload(ptr, numbers.data(), numbers.size() * sizeof(numbers[0]));
  }

  std::atomic<int> kept_{0};
  Device* device_ = nullptr;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Stream> other_stream_;
  TestSession session_;
  std::shared_ptr<Membership> sender_ = session_.join();
  std::shared_ptr<Membership> receiver_ = session_.join();
  Memory here_{sender_};
  Memory there_{receiver_};
  Queue queue_{sender_};
  Queue there_queue_{receiver_, queue_.handle()};
};

TEST_P(SlabAllocatorOn, allocations_do_not_overlap) {
  SlabAllocator allocator(here_, options());
  std::set<std::uint64_t> addresses;
  for (const std::uint64_t bytes : {1UL, 512UL, 513UL, 100'000UL, 3 * kMiB}) {
    const DevicePtr ptr = allocator.allocate(0, bytes, stream());
    EXPECT_EQ(ptr.address % 512, 0U);
    EXPECT_TRUE(addresses.insert(ptr.address).second);
    write(ptr, {1});
  }
  EXPECT_EQ(allocator.usage().blocks, 5U);
  EXPECT_GE(allocator.usage().bytes, 3 * kMiB + 100'000 + 513 + 512 + 1);
  EXPECT_GE(here_.claimed(place()), allocator.usage().bytes);
  for (const std::uint64_t address : addresses) allocator.free({address});
  EXPECT_EQ(allocator.usage().blocks, 0U);
  EXPECT_EQ(allocator.allocate(0, 0, stream()).address, 0U);
  allocator.free({});
}

TEST_P(SlabAllocatorOn, freed_memory_is_reused_only_in_its_stream) {
  SlabAllocator allocator(here_, options());
  const DevicePtr first = allocator.allocate(0, 100'000, stream());
  allocator.free(first);
  EXPECT_EQ(allocator.usage().cached_blocks, 1U);
  EXPECT_NE(allocator.allocate(0, 100'000, other_stream_->native()), first);
  EXPECT_NE(allocator.allocate(0, 200'000, stream()), first);
  EXPECT_EQ(allocator.allocate(0, 99'000, stream()), first) << "similar sizes share blocks";
  EXPECT_EQ(allocator.usage().hits, 1U);
  EXPECT_EQ(allocator.usage().misses, 3U);
}

TEST_P(SlabAllocatorOn, the_newest_is_reused_first_and_the_oldest_released_first) {
  SlabAllocator allocator(here_, options(3 * 128 * kKiB));
  std::vector<DevicePtr> all;
  for (int number = 0; number < 5; ++number) all.push_back(allocator.allocate(0, 128 * kKiB, stream()));
  for (const DevicePtr ptr : all) allocator.free(ptr);
  EXPECT_EQ(allocator.usage().cached_blocks, 3U);
  EXPECT_EQ(allocator.allocate(0, 128 * kKiB, stream()), all[4]);
  EXPECT_EQ(allocator.allocate(0, 128 * kKiB, stream()), all[3]);
  EXPECT_EQ(allocator.allocate(0, 128 * kKiB, stream()), all[2]);
}

TEST_P(SlabAllocatorOn, blocks_larger_than_the_cache_are_released) {
  SlabAllocator allocator(here_, options(kMiB));
  allocator.free(allocator.allocate(0, 2 * kMiB, stream()));
  EXPECT_EQ(allocator.usage().cached_blocks, 0U);
  EXPECT_TRUE(are_claimed(allocator, 0));
}

TEST_P(SlabAllocatorOn, empty_cache_and_destruction_release_everything) {
  {
    SlabAllocator allocator(here_, options());
    allocator.free(allocator.allocate(0, 2 * kMiB, stream()));
    EXPECT_GT(here_.claimed(place()), 0U);
    EXPECT_TRUE(are_claimed(allocator, 0));
    allocator.free(allocator.allocate(0, 2 * kMiB, stream()));
    static_cast<void>(allocator.allocate(0, kMiB, stream()));
  }
  EXPECT_EQ(here_.claimed(place()), 0U);
  here_.trim();
  EXPECT_EQ(session_.file_count(), 0U);
}

TEST_P(SlabAllocatorOn, memory_is_released_only_after_its_streams_are_done) {
  SlabAllocator allocator(here_, options(0));
  Gate gate(place());
  const DevicePtr ptr = allocator.allocate(0, 2 * kMiB, stream());
  const DevicePtr both = allocator.allocate(0, 2 * kMiB, stream());
  allocator.also_used_in(both, gate.stream().native());
  allocator.free(ptr);
  allocator.free(both);
  EXPECT_TRUE(are_claimed(allocator, 2 * kMiB));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(are_claimed(allocator, 2 * kMiB)) << "the stream before the gate may still use it";
  gate.open();
  EXPECT_TRUE(are_claimed(allocator, 0));
}

TEST_P(SlabAllocatorOn, finished_blocks_are_released_at_the_next_free_or_hit) {
  SlabAllocator allocator(here_, options());
  const DevicePtr kept = allocator.allocate(0, 100'000, stream());
  const std::uint64_t rest = here_.claimed(place());
  for (const bool is_by_free : {true, false}) {
    if (!is_by_free) allocator.free(kept);
    Gate gate(place());
    const DevicePtr ptr = allocator.allocate(0, 2 * kMiB, stream());
    allocator.also_used_in(ptr, gate.stream().native());
    allocator.free(ptr);
    EXPECT_EQ(here_.claimed(place()), rest + 2 * kMiB);
    gate.open();
    EXPECT_EQ(gate.stream().synchronize(Deadline::never()), WaitResult::done);
    EXPECT_EQ(stream_->synchronize(Deadline::never()), WaitResult::done);
    if (is_by_free) allocator.free(kept);
    DevicePtr again = is_by_free ? DevicePtr() : allocator.allocate(0, 100'000, stream());
    EXPECT_EQ(here_.claimed(place()), rest);
    if (is_by_free) again = allocator.allocate(0, 100'000, stream());
    EXPECT_EQ(again, kept);
  }
}

TEST_P(SlabAllocatorOn, threads_that_need_memory_all_wait_for_freed_blocks) {
  Memory limited(sender_, {.slab_bytes = 2 * kMiB, .budgets = {{place(), 4 * kMiB}}});
  SlabAllocator allocator(limited, options());
  Gate gate(place());
  for (int number = 0; number < 2; ++number) {
    const DevicePtr ptr = allocator.allocate(0, 2 * kMiB, stream());
    allocator.also_used_in(ptr, gate.stream().native());
    allocator.free(ptr);
  }
  std::vector<std::thread> threads;
  for (int number = 0; number < 2; ++number) {
    threads.emplace_back([&] { EXPECT_NO_THROW(static_cast<void>(allocator.allocate(0, 2 * kMiB, stream()))); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  gate.open();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(allocator.usage().blocks, 2U);
}

TEST_P(SlabAllocatorOn, blocks_with_unknown_ends_are_not_released) {
  if (place().backend != BackendKind::cuda) GTEST_SKIP() << "only CUDA queries can fail";
  SlabAllocator allocator(here_, options(0));
  Gate gate(place());
  const DevicePtr ptr = allocator.allocate(0, 2 * kMiB, gate.stream().native());
  {
    const FaultSeam seam("cuEventQuery", 2);  // out of memory
    allocator.free(ptr);
    EXPECT_GT(seam.strikes(), 0);
    EXPECT_EQ(here_.claimed(place()), 2 * kMiB) << "its stream may still use it";
  }
  gate.open();
  EXPECT_TRUE(are_claimed(allocator, 0));
}

TEST_P(SlabAllocatorOn, blocks_used_in_another_stream_are_not_cached) {
  SlabAllocator allocator(here_, options());
  const DevicePtr ptr = allocator.allocate(0, 2 * kMiB, stream());
  allocator.also_used_in(ptr, stream());
  allocator.free(ptr);
  EXPECT_EQ(allocator.usage().cached_blocks, 1U) << "its own stream does not count";
  EXPECT_EQ(allocator.allocate(0, 2 * kMiB, stream()), ptr);
  allocator.also_used_in(ptr, other_stream_->native());
  allocator.also_used_in({ptr.address + 1}, other_stream_->native());
  allocator.free(ptr);
  EXPECT_EQ(allocator.usage().cached_blocks, 0U);
}

TEST_P(SlabAllocatorOn, arrays_in_its_memory_are_sent_without_a_copy) {
  SlabAllocator allocator(here_, options());
  const DevicePtr ptr = allocator.allocate(0, 4000, stream());
  write(ptr, std::vector<std::int32_t>(1000, 5));
  const Imported whole = import_tensor(here_, array_at(ptr, 1000), {.stream = stream()});
  EXPECT_EQ(whole.way, ImportWay::own);
  const Imported part = import_tensor(here_, array_at(ptr + 400, 10));
  EXPECT_EQ(part.way, ImportWay::own);
  EXPECT_EQ(part.tensor.device_ptr(), ptr + 400);
  ASSERT_EQ(put(queue_, whole.tensor), PutResult::put);
  const Tensor there = received();
  EXPECT_EQ(sum(there), 5000);
  write(ptr, {1005});
  EXPECT_EQ(sum(there), 6000);
}

TEST_P(SlabAllocatorOn, a_block_that_peers_hold_is_never_reused) {
  SlabAllocator allocator(here_, options());
  const DevicePtr ptr = allocator.allocate(0, 4000, stream());
  write(ptr, std::vector<std::int32_t>(1000, 5));
  ASSERT_EQ(put(queue_, import_tensor(here_, array_at(ptr, 1000)).tensor), PutResult::put);
  allocator.free(ptr);
  EXPECT_EQ(allocator.usage().cached_blocks, 0U) << "a message holds it";
  const DevicePtr next = allocator.allocate(0, 4000, stream());
  EXPECT_NE(next, ptr);
  write(next, std::vector<std::int32_t>(1000, 1));
  const Tensor there = received();
  EXPECT_EQ(sum(there), 5000);
}

TEST_P(SlabAllocatorOn, a_block_that_peers_released_is_cached) {
  SlabAllocator allocator(here_, options());
  const DevicePtr ptr = allocator.allocate(0, 4000, stream());
  ASSERT_EQ(put(queue_, import_tensor(here_, array_at(ptr, 1000)).tensor), PutResult::put);
  received() = Tensor();
  allocator.free(ptr);
  EXPECT_EQ(allocator.usage().cached_blocks, 1U);
  EXPECT_EQ(allocator.allocate(0, 4000, stream()), ptr);
}

TEST_P(SlabAllocatorOn, an_exhausted_budget_empties_the_cache) {
  Memory limited(sender_, {.slab_bytes = 2 * kMiB, .budgets = {{place(), 5 * kMiB}}});
  SlabAllocator allocator(limited, options());
  allocator.free(allocator.allocate(0, 4 * kMiB, stream()));
  EXPECT_EQ(allocator.usage().cached_blocks, 1U);
  EXPECT_NE(allocator.allocate(0, 3 * kMiB, stream()).address, 0U);
  EXPECT_EQ(allocator.usage().cached_blocks, 0U);
  expect_error(Errc::limit_reached, [&] { static_cast<void>(allocator.allocate(0, 4 * kMiB, stream())); },
               {"exceed the budget"});
}

TEST_P(SlabAllocatorOn, unknown_addresses_are_logged_and_not_freed) {
  const CapturedLog log;
  SlabAllocator allocator(here_, options());
  const DevicePtr ptr = allocator.allocate(0, 1000, stream());
  allocator.free({ptr.address + 8});
  EXPECT_TRUE(log.contains("is not allocated"));
  EXPECT_EQ(allocator.usage(0).blocks, 1U);
  EXPECT_EQ(allocator.usage(5).blocks, 0U);
}

TEST_P(SlabAllocatorOn, memory_of_an_unknown_stream_stays_until_destruction) {
  if (place().backend == BackendKind::cuda) GTEST_SKIP() << "CUDA does not validate streams";
  const CapturedLog log;
  SlabAllocator allocator(here_, options(0));
  allocator.free(allocator.allocate(0, 2 * kMiB, 0xdead'beef));
  EXPECT_TRUE(log.contains("cannot be released before"));
  EXPECT_GE(here_.claimed(place()), 2 * kMiB);
}

TEST_P(SlabAllocatorOn, threads_can_share_an_allocator) {
  std::vector<std::unique_ptr<Stream>> streams;  // must outlive their allocations
  for (int number = 0; number < 4; ++number) streams.push_back(device_->create_stream());
  SlabAllocator allocator(here_, options(4 * kMiB));
  std::vector<std::thread> threads;
  for (std::int32_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      Stream& own = *streams[static_cast<std::size_t>(number)];
      for (std::int32_t round = 0; round < 100; ++round) {
        const DevicePtr ptr =
            allocator.allocate(0, 500 + 40'000 * static_cast<std::uint64_t>(round % 7), own.native());
        const std::int32_t written = number * 1000 + round;
        std::int32_t read = 0;
        device_->upload(ptr, &written, sizeof(written));
        device_->download(&read, ptr, sizeof(read));
        EXPECT_EQ(read, written);
        allocator.free(ptr);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(allocator.usage().blocks, 0U);
}

TEST_P(SlabAllocatorOn, arrays_in_divided_memory_are_kept_one_by_one) {
  SlabAllocator allocator(here_, divided());
  const DevicePtr segment = allocator.allocate(0, 2 * kMiB, stream());
  write(segment, std::vector<std::int32_t>(1000, 5));
  write(segment + kMiB, std::vector<std::int32_t>(1000, 6));
  for (const DevicePtr ptr : {segment, segment + kMiB}) {
    const Imported imported = import_tensor(here_, kept_array_at(ptr, 1000), {.stream = stream()});
    EXPECT_EQ(imported.way, ImportWay::own);
    EXPECT_EQ(imported.tensor.device_ptr(), ptr);
    ASSERT_EQ(put(queue_, imported.tensor), PutResult::put);
  }
  here_.trim();
  EXPECT_EQ(kept_, 2) << "messages hold them";
  Tensor first = received();
  Tensor second = received();
  here_.trim();
  EXPECT_EQ(kept_, 2);
  EXPECT_EQ(sum(first), 5000);
  first = Tensor();
  EXPECT_TRUE(are_kept(1));
  EXPECT_EQ(sum(second), 6000);
  const Tensor slice = second.select(0, 3);
  second = Tensor();
  here_.trim();
  EXPECT_EQ(kept_, 1) << "a view is enough";
  EXPECT_EQ(sum(slice), 6);
}

TEST_P(SlabAllocatorOn, an_array_that_is_sent_on_stays_kept) {
  SlabAllocator allocator(here_, divided());
  const DevicePtr segment = allocator.allocate(0, 2 * kMiB, stream());
  write(segment, std::vector<std::int32_t>(1000, 5));
  ASSERT_EQ(put(queue_, import_tensor(here_, kept_array_at(segment, 1000)).tensor), PutResult::put);
  ASSERT_EQ(put(there_queue_, received()), PutResult::put);
  here_.trim();
  EXPECT_EQ(kept_, 1);
  EXPECT_EQ(sum(received()), 5000);
  EXPECT_TRUE(are_kept(0));
}

TEST_P(SlabAllocatorOn, an_array_that_nobody_was_sent_is_not_kept) {
  SlabAllocator allocator(here_, divided());
  const DevicePtr segment = allocator.allocate(0, 2 * kMiB, stream());
  static_cast<void>(import_tensor(here_, kept_array_at(segment, 1000)));
  EXPECT_TRUE(are_kept(0));
  EXPECT_TRUE(find_tensor(here_, array_at(segment, 1000), std::nullopt).has_value());
  EXPECT_EQ(kept_, 0);
}

TEST_P(SlabAllocatorOn, divided_memory_that_is_freed_too_early_is_not_reused) {
  SlabAllocator allocator(here_, divided(kPlenty));
  const DevicePtr segment = allocator.allocate(0, 2 * kMiB, stream());
  write(segment, std::vector<std::int32_t>(1000, 5));
  ASSERT_EQ(put(queue_, import_tensor(here_, kept_array_at(segment, 1000)).tensor), PutResult::put);
  EXPECT_EQ(allocator.device_of(segment), 0);
  allocator.free_unused(segment);
  EXPECT_EQ(allocator.device_of(segment), std::nullopt);
  const DevicePtr next = allocator.allocate(0, 2 * kMiB, stream());
  EXPECT_NE(next, segment);
  EXPECT_EQ(sum(received()), 5000);
  EXPECT_TRUE(are_kept(0));
  allocator.free_unused(next);
  EXPECT_EQ(allocator.usage().cached_blocks, 1U);
  EXPECT_EQ(allocator.allocate(0, 2 * kMiB, stream()), next);
}

// A library may hold a lock that its deleters need while it allocates and frees.
TEST_P(SlabAllocatorOn, arrays_are_not_released_inside_of_calls_of_their_library) {
  Memory limited(sender_, {.slab_bytes = 2 * kMiB, .budgets = {{place(), 4 * kMiB}}});
  SlabAllocator allocator(limited, divided());
  const DevicePtr segment = allocator.allocate(0, kMiB, stream());
  ASSERT_EQ(put(queue_, import_tensor(limited, kept_array_at(segment, 1000)).tensor), PutResult::put);
  received() = Tensor();
  const DevicePtr other = allocator.allocate(0, kMiB, stream());
  allocator.free_unused(other);
  expect_error(Errc::limit_reached, [&] { static_cast<void>(allocator.allocate(0, 8 * kMiB, stream())); });
  allocator.empty_cache();
  EXPECT_EQ(kept_, 1);
  EXPECT_TRUE(eventually([&] {
    limited.trim();
    return kept_ == 0;
  }));
}

TEST_P(SlabAllocatorOn, threads_can_share_divided_memory) {
  SlabAllocator allocator(here_, divided());
  const DevicePtr segment = allocator.allocate(0, 2 * kMiB, stream());
  std::vector<std::thread> threads;
  for (std::uint64_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      for (int round = 0; round < 100; ++round) {
        const auto imported = import_tensor(here_, kept_array_at(segment + number * 4096, 1000));
        EXPECT_EQ(imported.way, ImportWay::own);
        EXPECT_EQ(pack_all(std::span(&imported.tensor, 1)).leases.size(), 1U);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(are_kept(0));
}

DROVER_INSTANTIATE_ON_DEVICES(SlabAllocatorOn);

}  // namespace
}  // namespace drover::test
