// Enumeration, memory and blocking copies.
#include <cstring>

#include "conformance/backend_suite.hpp"
#include "drover/base/bytes.hpp"
#include "support/expect_error.hpp"

namespace drover::test {

constexpr std::size_t kMemoryCount = 10'000;
constexpr std::size_t kMemoryBytes = kMemoryCount * sizeof(std::uint32_t);

TEST_P(BackendSuite, devices_have_distinct_uuids_and_their_own_index) {
  const auto& infos = backend().devices();
  ASSERT_FALSE(infos.empty());
  for (std::size_t i = 0; i < infos.size(); ++i) {
    EXPECT_EQ(infos[i].index, static_cast<int>(i));
    EXPECT_EQ(infos[i].backend, GetParam());
    EXPECT_FALSE(infos[i].name.empty());
    EXPECT_GT(infos[i].memory_total, 0U);
    EXPECT_EQ(device_with_uuid(backend(), infos[i].uuid), static_cast<int>(i));
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(infos[i].uuid, infos[j].uuid);
  }
}

TEST_P(BackendSuite, missing_device_is_an_error_that_names_the_existing_ones) {
  const int beyond = static_cast<int>(backend().devices().size());
  expect_error(Errc::not_found, [&] { static_cast<void>(backend().open(beyond)); }, {"there is no device", ":0"});
  expect_error(Errc::not_found, [&] { static_cast<void>(backend().open(-1)); });
  expect_error(Errc::not_found, [&] { static_cast<void>(backend().memory_info(beyond)); });
  expect_error(Errc::not_found, [&] { static_cast<void>(backend().create_slab(beyond, kMiB)); });
  expect_error(Errc::not_found, [&] { static_cast<void>(device_with_uuid(backend(), Uuid{{1, 2, 3}})); },
               {"GPU-010203"});
}

TEST_P(BackendSuite, opening_twice_gives_the_same_device) { EXPECT_EQ(&device(), &device()); }

TEST_P(BackendSuite, memory_reads_back_as_written) {
  const auto memory = device().allocate(kMemoryBytes);
  EXPECT_EQ(memory->size(), kMemoryBytes);
  const auto values = numbers(kMemoryCount, 7);
  device().upload(memory->ptr(), values.data(), kMemoryBytes);
  EXPECT_EQ(read(*memory, kMemoryCount), values);
}

TEST_P(BackendSuite, copies_reach_the_middle_of_memory) {
  const auto memory = device().allocate(kMemoryBytes);
  const auto values = numbers(kMemoryCount);
  device().upload(memory->ptr(), values.data(), kMemoryBytes);
  const std::uint32_t seven = 7;
  device().upload(memory->ptr() + 400, &seven, sizeof(seven));
  std::uint32_t seen = 0;
  device().download(&seen, memory->ptr() + 404, sizeof(seen));
  EXPECT_EQ(seen, 101U);
  device().copy(memory->ptr(), memory->ptr() + 400, sizeof(seven));
  EXPECT_EQ(read(*memory, 1).front(), 7U);
}

TEST_P(BackendSuite, copies_between_devices_arrive) {
  const int last = static_cast<int>(backend().devices().size()) - 1;
  const auto here = device().allocate(kMemoryBytes);
  const auto there = backend().open(last).allocate(kMemoryBytes);
  const auto values = numbers(kMemoryCount, 3);
  device().upload(here->ptr(), values.data(), kMemoryBytes);
  backend().open(last).copy(there->ptr(), here->ptr(), kMemoryBytes);
  EXPECT_EQ(read(*there, kMemoryCount), values);
}

TEST_P(BackendSuite, copy_of_zero_bytes_does_nothing) {
  const auto memory = device().allocate(16);
  device().upload(memory->ptr(), nullptr, 0);
  device().download(nullptr, memory->ptr(), 0);
  device().copy(memory->ptr(), memory->ptr(), 0);
}

TEST_P(BackendSuite, null_host_memory_is_an_error_not_a_crash) {
  const auto memory = device().allocate(16);
  expect_error(Errc::invalid_argument, [&] { device().upload(memory->ptr(), nullptr, 16); });
  expect_error(Errc::invalid_argument, [&] { device().download(nullptr, memory->ptr(), 16); });
}

TEST_P(BackendSuite, allocation_of_zero_bytes_is_an_error) {
  expect_error(Errc::invalid_argument, [] { static_cast<void>(device().allocate(0)); });
  expect_error(Errc::invalid_argument, [] { static_cast<void>(backend().create_slab(0, 0)); });
  expect_error(Errc::invalid_argument, [] { static_cast<void>(device().register_host({})); });
}

TEST_P(BackendSuite, allocation_above_the_capacity_is_an_error_with_the_figures) {
  const auto total = backend().devices().front().memory_total;
  expect_error(Errc::device_memory, [&] { static_cast<void>(device().allocate(total + kGiB)); }, {"remedy:", ":0"});
  expect_error(Errc::device_memory, [&] { static_cast<void>(backend().create_slab(0, total + kGiB)); }, {"remedy:"});
  expect_error(Errc::device_memory, [&] { static_cast<void>(backend().create_slab(0, SIZE_MAX)); });
}

TEST_P(BackendSuite, memory_info_counts_allocations_and_frees) {
  static_cast<void>(device());  // its context takes memory too
  const auto before = backend().memory_info(0);
  EXPECT_EQ(before.total, backend().devices().front().memory_total);
  {
    const auto memory = device().allocate(256 * kMiB);
    const auto slab = backend().create_slab(0, 256 * kMiB);
    EXPECT_GE(backend().memory_info(0).used(), before.used() + 512 * kMiB);
    EXPECT_EQ(device().memory_info().free, backend().memory_info(0).free);
  }
  EXPECT_LE(backend().memory_info(0).used(), before.used() + 16 * kMiB);
}

TEST_P(BackendSuite, copy_outside_live_memory_is_an_error) {
  const auto memory = device().allocate(2 * kMiB);
  std::vector<std::byte> host(4 * kMiB);
  expect_error(Errc::invalid_argument, [&] { device().upload(memory->ptr(), host.data(), host.size()); },
               {"remedy:"});
  expect_error(Errc::invalid_argument, [&] { device().download(host.data(), memory->ptr(), host.size()); });
  expect_error(Errc::invalid_argument, [&] { device().copy(memory->ptr(), memory->ptr() + kMiB, 2 * kMiB); });
}

TEST_P(BackendSuite, host_memory_is_registered_once) {
  const auto first = registered(kMiB);
  expect_error(Errc::busy, [&] { static_cast<void>(device().register_host(first.memory.bytes())); }, {"regist"});
}

TEST_P(BackendSuite, registered_memory_can_be_copied_and_registered_again_later) {
  const auto memory = device().allocate(kMemoryBytes);
  const Mapping host = Mapping::anonymous(kMemoryBytes);
  for (int round = 0; round < 2; ++round) {
    const auto registration = device().register_host(host.bytes());
    const auto values = numbers(kMemoryCount, static_cast<std::uint32_t>(round));
    std::memcpy(host.data(), values.data(), kMemoryBytes);
    device().upload(memory->ptr(), host.data(), kMemoryBytes);
    EXPECT_EQ(read(*memory, kMemoryCount), values);
  }
}

}  // namespace drover::test
