// Features of the emulated devices alone: settings, capacity, census. Each test creates its own backends.
#include "device/host/backend.hpp"

#include <thread>

#include <gtest/gtest.h>

#include "device/host/census.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/mapping.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/scoped_environment.hpp"

namespace drover::device::host {

using test::expect_error;
using test::FaultSeam;
using test::ScopedEnvironment;

TEST(HostBackend, settings_determine_number_and_memory_of_devices) {
  const ScopedEnvironment devices("DROVER_HOST_DEVICES", "3");
  const ScopedEnvironment memory("DROVER_HOST_MEMORY", "1.5GiB");
  const HostBackend backend;
  ASSERT_EQ(backend.devices().size(), 3U);
  EXPECT_EQ(backend.devices()[2].memory_total, 3 * kGiB / 2);
  EXPECT_EQ(device_id(backend.devices()[2]), "host:2");
}

TEST(HostBackend, without_settings_there_are_at_least_two_devices_with_memory) {
  const ScopedEnvironment devices("DROVER_HOST_DEVICES", std::nullopt);
  const ScopedEnvironment memory("DROVER_HOST_MEMORY", std::nullopt);
  const HostBackend backend;
  EXPECT_GE(backend.devices().size(), 2U);
  EXPECT_GE(backend.devices().size(), std::thread::hardware_concurrency() / 2);
  EXPECT_GT(backend.devices().front().memory_total, 0U);
}

TEST(HostBackend, invalid_settings_are_errors_that_name_them) {
  for (const char* const text : {"0", "-1", "many", "65", "2x", "1e3"}) {
    const ScopedEnvironment devices("DROVER_HOST_DEVICES", text);
    expect_error(Errc::invalid_argument, [] { const HostBackend backend; }, {"DROVER_HOST_DEVICES", text});
  }
  for (const char* const text : {"0", "lots", "-4GiB", "4XB"}) {
    const ScopedEnvironment memory("DROVER_HOST_MEMORY", text);
    expect_error(Errc::invalid_argument, [] { const HostBackend backend; }, {"DROVER_HOST_MEMORY", text, "GiB"});
  }
}

TEST(HostBackend, group_names_the_devices) {
  const HostBackend here;
  const HostBackend again;
  EXPECT_EQ(here.devices()[0].uuid, again.devices()[0].uuid) << "processes must agree on names";
  const ScopedEnvironment group("DROVER_HOST_GROUP", "another");
  const HostBackend there;
  EXPECT_NE(here.devices()[0].uuid, there.devices()[0].uuid);
}

TEST(HostBackend, capacity_counts_allocations_and_slabs_together) {
  const ScopedEnvironment group("DROVER_HOST_GROUP", "capacity" + std::to_string(::getpid()));
  const ScopedEnvironment memory("DROVER_HOST_MEMORY", "64MiB");
  HostBackend backend;
  auto allocation = backend.open(0).allocate(32 * kMiB);
  const auto slab = backend.create_slab(0, 16 * kMiB);
  EXPECT_EQ(backend.memory_info(0).free, 16 * kMiB);
  expect_error(Errc::device_memory, [&] { static_cast<void>(backend.open(0).allocate(17 * kMiB)); },
               {"host:0", "17.0 MiB", "48.0 MiB of 64.0 MiB", "DROVER_HOST_MEMORY"});
  expect_error(Errc::device_memory, [&] { static_cast<void>(backend.create_slab(0, 17 * kMiB)); });
  EXPECT_EQ(backend.memory_info(1).free, 64 * kMiB) << "other devices must not be affected";
  const auto imported = backend.import_slab(0, slab->export_fd(), slab->size());
  EXPECT_EQ(backend.memory_info(0).free, 16 * kMiB) << "a slab counts once, however often it is imported";
  allocation.reset();
  EXPECT_EQ(backend.memory_info(0).free, 48 * kMiB);
}

TEST(HostBackend, mapped_slab_counts_until_it_is_unmapped) {
  const ScopedEnvironment group("DROVER_HOST_GROUP", "mapped" + std::to_string(::getpid()));
  HostBackend backend;
  const Uuid uuid = backend.devices()[0].uuid;
  auto memory = backend.open(0).map(*backend.create_slab(0, 4 * kMiB));
  EXPECT_EQ(slab_bytes_in_use(uuid), 4 * kMiB);
  memory.reset();
  EXPECT_EQ(slab_bytes_in_use(uuid), 0U);
}

TEST(HostBackend, failed_system_calls_leave_no_capacity_reserved) {
  const ScopedEnvironment group("DROVER_HOST_GROUP", "faults" + std::to_string(::getpid()));
  HostBackend backend;
  Device& device = backend.open(0);
  const auto free = backend.memory_info(0).free;
  {
    const FaultSeam fail("mmap", ENOMEM);
    expect_error(Errc::out_of_memory, [&] { static_cast<void>(device.allocate(kMiB)); }, {"mmap", "1.0 MiB"});
  }
  for (const char* const call : {"memfd_create", "ftruncate", "fcntl"}) {
    const FaultSeam fail(call, EMFILE);
    expect_error(Errc::limit_reached, [&] { static_cast<void>(backend.create_slab(0, kMiB)); }, {call, "ulimit -n"});
  }
  EXPECT_EQ(backend.memory_info(0).free, free);
  EXPECT_EQ(backend.live(), LiveResources{});
}

TEST(HostBackend, latency_delays_work) {
  const ScopedEnvironment latency("DROVER_HOST_LATENCY", "50000");
  HostBackend backend;
  const auto stream = backend.open(0).create_stream();
  const auto memory = backend.open(0).allocate(16);
  const auto begin = Clock::now();
  stream->fill(memory->ptr(), 1, 16);
  EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(50));
}

TEST(HostBackend, memory_file_of_another_kind_is_not_a_slab) {
  HostBackend backend;
  const Fd plain = make_memory_file("drover-something", 2 * kMiB);
  EXPECT_FALSE(is_slab_of(plain, backend.devices()[0].uuid));
  expect_error(Errc::corrupt, [&] { static_cast<void>(backend.import_slab(0, plain, 2 * kMiB)); },
               {"not a slab of host:0"});
}

TEST(HostBackend, objects_of_one_backend_are_rejected_by_another_kind) {
  struct ForeignEvent final : StreamEvent {
    [[nodiscard]] bool has_happened() const override { return true; }
    WaitResult synchronize(Deadline) const override { return WaitResult::done; }
    [[nodiscard]] double milliseconds_since(const StreamEvent&) const override { return 0; }
  };
  HostBackend backend;
  const auto stream = backend.open(0).create_stream();
  ForeignEvent foreign;
  expect_error(Errc::invalid_argument, [&] { stream->record(foreign); }, {"another backend"});
  expect_error(Errc::invalid_argument, [&] { stream->wait(foreign); });
}

}  // namespace drover::device::host
