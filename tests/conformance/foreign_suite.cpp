// Memory and streams of other libraries in this process; for other processes see tests/device/ipc_process_test.cpp.
#include "conformance/backend_suite.hpp"
#include "drover/base/bytes.hpp"
#include "support/expect_error.hpp"

namespace drover::test {

constexpr std::size_t kCount = 1024;
constexpr std::size_t kBytes = kCount * sizeof(std::uint32_t);
constexpr std::size_t kAllocation = 4 * kMiB;  // large enough for a separate block on a GPU

static DevicePtr address_of(const void* pointer) { return {reinterpret_cast<std::uintptr_t>(pointer)}; }

TEST_P(BackendSuite, foreign_host_memory_is_not_device_memory) {
  const std::vector<std::byte> host(kMiB);
  EXPECT_FALSE(device().describe(address_of(host.data())).is_device);
  EXPECT_FALSE(device().describe({}).is_device);
}

TEST_P(BackendSuite, foreign_registered_host_memory_is_not_device_memory) {
  if (!device().has_timelines()) GTEST_SKIP() << "this device does not register memory";
  const auto host = registered(kMiB);
  EXPECT_FALSE(device().describe(address_of(host.memory.data())).is_device);
}

TEST_P(BackendSuite, foreign_allocation_is_described_from_any_address_in_it) {
  const auto memory = device().allocate(kAllocation);
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{kAllocation - 1}}) {
    const PointerInfo info = device().describe(memory->ptr() + offset);
    EXPECT_TRUE(info.is_device);
    EXPECT_EQ(info.device, 0);
    EXPECT_EQ(info.base, memory->ptr());
    EXPECT_EQ(info.size, kAllocation);
    EXPECT_EQ(info.offset_of(memory->ptr() + offset), offset);
    EXPECT_TRUE(info.can_legacy_ipc);
    EXPECT_FALSE(info.is_vmm || info.can_retain || info.is_pool || info.is_managed);
  }
}

TEST_P(BackendSuite, foreign_memory_of_another_device_names_it) {
  const int last = static_cast<int>(backend().devices().size()) - 1;
  const auto memory = backend().open(last).allocate(kAllocation);
  EXPECT_EQ(device().describe(memory->ptr()).device, last);
}

TEST_P(BackendSuite, foreign_memory_that_was_freed_is_gone_and_its_number_is_not_reused) {
  auto memory = device().allocate(kAllocation);
  const DevicePtr ptr = memory->ptr();
  const auto number = device().describe(ptr).buffer_id;
  EXPECT_NE(number, 0U);
  memory.reset();
  EXPECT_FALSE(device().describe(ptr).is_device);
  memory = device().allocate(kAllocation);
  EXPECT_NE(device().describe(memory->ptr()).buffer_id, number);
}

TEST_P(BackendSuite, foreign_mapped_slab_is_virtual_memory_that_can_be_retained) {
  const auto slab = backend().create_slab(0, kAllocation);
  const auto memory = device().map(*slab);
  const PointerInfo info = device().describe(memory->ptr() + kMiB);
  EXPECT_TRUE(info.is_device && info.is_vmm && info.can_retain);
  EXPECT_FALSE(info.can_legacy_ipc || info.is_pool || info.is_managed);
  EXPECT_EQ(info.device, 0);
  EXPECT_EQ(info.base, memory->ptr());
  EXPECT_EQ(info.size, slab->size());
}

TEST_P(BackendSuite, foreign_virtual_memory_becomes_a_slab_that_outlives_its_mapping) {
  const auto values = numbers(kCount, 55);
  std::unique_ptr<Slab> retained;
  {
    const auto memory = device().map(*backend().create_slab(0, kAllocation));
    device().upload(memory->ptr(), values.data(), kBytes);
    retained = device().retain_slab(memory->ptr() + 77);
    EXPECT_EQ(retained->size(), memory->size());
    EXPECT_EQ(retained->device(), 0);
  }
  const auto imported = backend().import_slab(0, retained->export_fd(), retained->size());
  EXPECT_EQ(read(*device().map(*imported), kCount), values);
}

TEST_P(BackendSuite, foreign_memory_is_shared_only_in_the_way_its_kind_allows) {
  const auto plain = device().allocate(kAllocation);
  const auto mapped = device().map(*backend().create_slab(0, kAllocation));
  const std::vector<std::byte> host(kMiB);
  const auto handle = [](DevicePtr ptr) { static_cast<void>(device().ipc_handle(ptr)); };
  const auto retain = [](DevicePtr ptr) { static_cast<void>(device().retain_slab(ptr)); };
  expect_error(Errc::unsupported, [&] { handle(mapped->ptr()); }, {"virtual memory", "retain_slab"});
  expect_error(Errc::unsupported, [&] { retain(plain->ptr()); }, {"plain allocation", "ipc_handle"});
  expect_error(Errc::invalid_argument, [&] { handle(plain->ptr() + 8); }, {"8 bytes inside", "offset"});
  expect_error(Errc::invalid_argument, [&] { handle(address_of(host.data())); }, {"no live device memory"});
  expect_error(Errc::invalid_argument, [&] { retain(address_of(host.data())); }, {"no live device memory"});
}

TEST_P(BackendSuite, foreign_handle_is_not_opened_by_its_own_process) {
  const auto memory = device().allocate(kAllocation);
  const IpcHandle handle = device().ipc_handle(memory->ptr());
  EXPECT_EQ(handle, device().ipc_handle(memory->ptr()));
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(device().open_ipc(handle, kAllocation)); },
               {"use the address itself"});
}

TEST_P(BackendSuite, foreign_bytes_that_are_not_a_handle_are_an_error_not_a_crash) {
  for (const int filler : {0, 1, 0xff}) {
    IpcHandle handle{};
    handle.fill(static_cast<std::byte>(filler));
    expect_error(Errc::corrupt, [&] { static_cast<void>(device().open_ipc(handle, kAllocation)); }, {"remedy:"});
  }
}

TEST_P(BackendSuite, foreign_stream_survives_being_borrowed) {
  const auto owner = device().create_stream();
  const auto memory = device().allocate(kBytes);
  EXPECT_NE(owner->native(), 0U);
  {
    const auto borrowed = device().borrow_stream(owner->native());
    EXPECT_EQ(borrowed->native(), owner->native());
    borrowed->fill(memory->ptr(), 3, kBytes);
  }
  owner->copy(memory->ptr(), memory->ptr() + kBytes / 2, 4);
  EXPECT_EQ(owner->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_EQ(read(*memory, 1).front(), 0x0303'0303U);
}

TEST_P(BackendSuite, foreign_stream_and_its_owner_are_one_queue) {
  if (!device().has_timelines()) GTEST_SKIP() << "streams of this device cannot be held back";
  const auto owner = device().create_stream();
  const auto borrowed = device().borrow_stream(owner->native());
  const auto memory = device().allocate(kBytes);
  const Gate gate;
  gate.hold(*owner);
  borrowed->fill(memory->ptr(), 1, kBytes);
  owner->fill(memory->ptr(), 2, kBytes);
  EXPECT_FALSE(borrowed->is_idle());
  gate.open();
  EXPECT_EQ(borrowed->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_TRUE(owner->is_idle());
  EXPECT_EQ(read(*memory, 1).front(), 0x0202'0202U);
}

TEST_P(BackendSuite, foreign_devices_report_whether_they_reach_each_other) {
  EXPECT_TRUE(device().can_copy_directly(device()));
  const BackendKind other = GetParam() == BackendKind::host ? BackendKind::cuda : BackendKind::host;
  if (!reason_to_skip(other).empty()) return;
  EXPECT_FALSE(device().can_copy_directly(backend_of(other).open(0)));
}

TEST_P(BackendSuite, foreign_slabs_are_copied_between_devices) {
  const int last = static_cast<int>(backend().devices().size()) - 1;
  Device& there = backend().open(last);
  const auto here_memory = device().map(*backend().create_slab(0, kBytes));
  const auto there_memory = there.map(*backend().create_slab(last, kBytes));
  const auto values = numbers(kCount, 9);
  device().upload(here_memory->ptr(), values.data(), kBytes);
  there.copy(there_memory->ptr(), here_memory->ptr(), kBytes);
  std::vector<std::uint32_t> seen(kCount);
  there.download(seen.data(), there_memory->ptr(), kBytes);
  EXPECT_EQ(seen, values);
}

}  // namespace drover::test
