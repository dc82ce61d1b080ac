// Slabs within one process; between processes see tests/device/slab_process_test.cpp.
#include <array>

#include <sys/eventfd.h>

#include "conformance/backend_suite.hpp"
#include "drover/base/bytes.hpp"
#include "support/expect_error.hpp"

namespace drover::test {

constexpr std::size_t kSlabCount = 1024;
constexpr std::size_t kSlabBytes = kSlabCount * sizeof(std::uint32_t);

TEST_P(BackendSuite, slab_is_rounded_up_to_the_granularity) {
  const auto granularity = backend().slab_granularity(0);
  const auto slab = backend().create_slab(0, granularity + 1);
  EXPECT_EQ(slab->size(), 2 * granularity);
  EXPECT_EQ(slab->device(), 0);
}

TEST_P(BackendSuite, mapping_outlives_its_slab) {
  auto slab = backend().create_slab(0, kSlabBytes);
  const auto mapping = device().map(*slab);
  EXPECT_EQ(mapping->size(), slab->size());
  slab.reset();
  const auto values = numbers(kSlabCount, 21);
  device().upload(mapping->ptr(), values.data(), kSlabBytes);
  EXPECT_EQ(read(*mapping, kSlabCount), values);
}

TEST_P(BackendSuite, imported_slab_is_the_same_memory) {
  const auto slab = backend().create_slab(0, kSlabBytes);
  const auto first = device().map(*slab);
  const auto imported = backend().import_slab(0, slab->export_fd(), slab->size());
  const auto second = device().map(*imported);
  EXPECT_NE(first->ptr(), second->ptr());
  const auto values = numbers(kSlabCount, 33);
  device().upload(first->ptr(), values.data(), kSlabBytes);
  EXPECT_EQ(read(*second, kSlabCount), values);
}

TEST_P(BackendSuite, exported_descriptor_alone_keeps_the_content) {
  const auto values = numbers(kSlabCount, 44);
  Fd exported;
  std::size_t bytes = 0;
  {
    const auto slab = backend().create_slab(0, kSlabBytes);
    const auto mapping = device().map(*slab);
    device().upload(mapping->ptr(), values.data(), kSlabBytes);
    exported = slab->export_fd();
    bytes = slab->size();
  }
  const auto again = device().map(*backend().import_slab(0, exported, bytes));
  EXPECT_EQ(read(*again, kSlabCount), values);
}

TEST_P(BackendSuite, streams_work_on_slabs) {
  const auto mapping = device().map(*backend().create_slab(0, kSlabBytes));
  const auto stream = device().create_stream();
  stream->fill(mapping->ptr(), 6, kSlabBytes);
  ASSERT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_EQ(read(*mapping, 1).front(), 0x0606'0606U);
}

TEST_P(BackendSuite, descriptor_that_is_not_a_slab_is_an_error_not_a_crash) {
  const Fd event(::eventfd(0, EFD_CLOEXEC));
  expect_error(Errc::corrupt, [&] { static_cast<void>(backend().import_slab(0, event, 2 * kMiB)); }, {"remedy:"});
  const Fd other = make_memory_file("not-a-slab", 2 * kMiB);
  expect_error(Errc::corrupt, [&] { static_cast<void>(backend().import_slab(0, other, 2 * kMiB)); });
  expect_error(Errc::corrupt, [&] { static_cast<void>(backend().import_slab(0, Fd{}, 2 * kMiB)); });
}

TEST_P(BackendSuite, slab_announced_with_a_wrong_size_is_an_error_not_a_crash) {
  const auto slab = backend().create_slab(0, 4 * kMiB);
  const Fd exported = slab->export_fd();
  for (const std::size_t wrong :
       {std::size_t{0}, std::size_t{1}, slab->size() * 2, slab->size() / 2, slab->size() - 1}) {
    expect_error(Errc::corrupt, [&] {
      const auto imported = backend().import_slab(0, exported, wrong);
      static_cast<void>(device().map(*imported));
    });
  }
}

TEST_P(BackendSuite, slab_of_another_device_is_rejected) {
  if (backend().devices().size() < 2) GTEST_SKIP() << "this machine has only one device of this kind";
  const auto slab = backend().create_slab(1, kSlabBytes);
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(device().map(*slab)); }, {"own device"});
  expect_error(Errc::corrupt, [&] { static_cast<void>(backend().import_slab(0, slab->export_fd(), slab->size())); });
}

}  // namespace drover::test
