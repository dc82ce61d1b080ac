#include "drover/base/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/leftovers.hpp"
#include "support/peer_group.hpp"

namespace drover {
namespace {

using test::FaultSeam;
using test::PeerGroup;
using test::PeerMode;

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte value) { return value == std::byte{0}; });
}

// mincore fails with ENOMEM for a page that is not mapped.
bool is_mapped(const void* address) {
  unsigned char resident = 0;
  const auto page = reinterpret_cast<std::uintptr_t>(address) & ~std::uintptr_t{4095};
  return ::mincore(reinterpret_cast<void*>(page), 1, &resident) == 0;  // NOLINT(performance-no-int-to-ptr)
}

TEST(Mapping, empty_mapping_has_no_bytes) {
  const Mapping mapping;
  EXPECT_EQ(mapping.data(), nullptr);
  EXPECT_EQ(mapping.size(), 0U);
  EXPECT_TRUE(mapping.bytes().empty());
}

TEST(Mapping, anonymous_memory_is_zero_writable_and_page_aligned) {
  const auto mapping = Mapping::anonymous(10'000);
  EXPECT_EQ(mapping.size(), 10'000U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping.data()) % 4096, 0U);
  EXPECT_TRUE(is_zero(mapping.bytes()));
  std::ranges::fill(mapping.bytes(), std::byte{7});
  EXPECT_EQ(mapping.bytes().back(), std::byte{7});
}

// Whether a page of a memory file is allocated; for private memory, whether this process has touched the page.
bool is_present(const std::byte* page) {
  unsigned char resident = 0;
  return ::mincore(const_cast<std::byte*>(page), 1, &resident) == 0 && (resident & 1U) != 0;
}

TEST(Mapping, only_the_requested_pages_are_made_present) {
  constexpr int kPopulateWrite = 23;  // called directly, because make_present must not decide whether it is tested
  const auto probe = Mapping::anonymous(4096);
  if (::madvise(probe.data(), 4096, kPopulateWrite) != 0 && errno == EINVAL) {
    GTEST_SKIP() << "this kernel does not know MADV_POPULATE_WRITE (Linux 5.14)";
  }
  const auto mapping = Mapping::shared(make_memory_file("present", 4 * 4096), 4 * 4096);
  make_present({});
  make_present(mapping.bytes().subspan(4096 + 100, 4096));
  EXPECT_TRUE(is_present(mapping.data() + 4096));
  EXPECT_FALSE(is_present(mapping.data()));
  EXPECT_TRUE(is_present(mapping.data() + 2 * 4096)) << "the range ends within this page";
  EXPECT_FALSE(is_present(mapping.data() + 3 * 4096));
  EXPECT_TRUE(is_zero(mapping.bytes()));
}

TEST(Mapping, kernel_that_refuses_to_make_pages_present_is_not_an_error) {
  const auto mapping = Mapping::anonymous(4096);
  const FaultSeam seam("madvise", EINVAL);
  make_present(mapping.bytes());
  EXPECT_TRUE(is_zero(mapping.bytes()));
}

TEST(Mapping, destruction_unmaps) {
  const void* address = nullptr;
  {
    const auto mapping = Mapping::anonymous(4096);
    address = mapping.data();
    EXPECT_TRUE(is_mapped(address));
  }
  EXPECT_FALSE(is_mapped(address));
}

TEST(Mapping, move_leaves_the_source_empty) {
  auto first = Mapping::anonymous(4096);
  auto* const address = first.data();
  auto second = std::move(first);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): under test
  EXPECT_EQ(first.size(), 0U);
  EXPECT_EQ(second.data(), address);
  auto third = Mapping::anonymous(4096);
  const void* const lost = third.data();
  third = std::move(second);
  EXPECT_EQ(third.data(), address);
  EXPECT_FALSE(is_mapped(lost));
}

TEST(Mapping, move_to_itself_changes_nothing) {
  auto mapping = Mapping::anonymous(4096);
  auto& alias = mapping;
  mapping = std::move(alias);
  EXPECT_TRUE(is_mapped(mapping.data()));
}

TEST(Mapping, size_of_zero_is_refused) {
  const auto file = make_memory_file("empty", 1);
  test::expect_error(Errc::invalid_argument, [] { static_cast<void>(Mapping::anonymous(0)); });
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(Mapping::shared(file, 0)); });
  test::expect_error(Errc::invalid_argument, [] { static_cast<void>(make_memory_file("empty", 0)); });
}

TEST(Mapping, more_than_the_address_space_is_out_of_memory) {
  for (const std::size_t bytes : {std::size_t{1} << 60U, std::numeric_limits<std::size_t>::max()}) {
    test::expect_error(Errc::out_of_memory, [&] { static_cast<void>(Mapping::anonymous(bytes)); },
                       {"private memory", "TiB"});
  }
}

TEST(Mapping, failed_mmap_names_the_size) {
  const FaultSeam fail("mmap", ENOMEM);
  test::expect_error(Errc::out_of_memory, [] { static_cast<void>(Mapping::anonymous(64 << 20)); },
                     {"mmap failed for private memory of 64.0 MiB"});
  EXPECT_EQ(fail.strikes(), 1);
}

TEST(Mapping, failed_munmap_is_logged_and_does_not_throw) {
  const test::CapturedLog log;
  auto mapping = Mapping::anonymous(4096);
  auto* const address = mapping.data();
  {
    const FaultSeam fail("munmap", EINVAL);
    mapping.reset();
  }
  EXPECT_TRUE(log.contains("warn: munmap failed"));
  EXPECT_EQ(mapping.data(), nullptr);
  ::munmap(address, 4096);
}

TEST(Mapping, two_mappings_of_one_file_show_the_same_bytes) {
  auto file = make_memory_file("twice", 5000);
  const auto one = Mapping::shared(file, 5000);
  const auto other = Mapping::shared(file, 100);
  file.reset();
  EXPECT_TRUE(is_zero(one.bytes()));
  one.bytes()[99] = std::byte{42};
  EXPECT_EQ(other.bytes()[99], std::byte{42});
}

TEST(Mapping, file_shorter_than_requested_is_corrupt) {
  const auto file = make_memory_file("short", 4096);
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(Mapping::shared(file, 4097)); }, {"has only 4.0 KiB"});
}

TEST(Mapping, descriptor_that_is_not_a_file_is_an_error) {
  test::expect_error(Errc::system, [] { static_cast<void>(Mapping::shared(Fd{}, 4096)); }, {"fstat", "-1"});
}

TEST(MemoryFile, size_and_seals_are_exact) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4095}, std::size_t{4096}, std::size_t{1} << 30U}) {
    const auto file = make_memory_file("sized", bytes);
    EXPECT_EQ(check_memory_file(file), bytes);
    EXPECT_EQ(::fcntl(file.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
}

TEST(MemoryFile, label_shows_in_proc) {
  const auto file = make_memory_file("drover-label", 1);
  EXPECT_EQ(test::open_descriptors().at(file.get()), "/memfd:drover-label (deleted)");
}

TEST(MemoryFile, file_cannot_be_resized) {
  const auto file = make_memory_file("fixed", 8192);
  EXPECT_EQ(::ftruncate(file.get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(file.get(), 1 << 20), -1);
  EXPECT_EQ(::fallocate(file.get(), 0, 0, 1 << 20), -1);
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE), -1) << "further seals must be impossible";
  EXPECT_EQ(check_memory_file(file), 8192U);
}

TEST(MemoryFile, failure_of_any_step_is_an_error_and_leaves_no_descriptor) {
  for (const char* const call : {"memfd_create", "ftruncate", "fcntl"}) {
    const auto before = test::open_descriptors();
    const FaultSeam fail(call, ENOMEM);
    test::expect_error(Errc::out_of_memory, [] { static_cast<void>(make_memory_file("failing", 4096)); },
                       {call, "memory file 'failing' of 4.0 KiB"});
    EXPECT_EQ(fail.strikes(), 1);
    EXPECT_EQ(test::open_descriptors(), before);
  }
}

TEST(MemoryFile, interrupted_resize_is_retried) {
  const FaultSeam interrupt("ftruncate", EINTR, {.times = 3});
  const auto file = make_memory_file("interrupted", 4096);
  EXPECT_EQ(interrupt.strikes(), 3);
  EXPECT_EQ(check_memory_file(file), 4096U);
}

TEST(MemoryFile, files_that_could_shrink_are_refused) {
  const Fd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(check_memory_file(unsealed)); },
                     {"not a sealed memory file"});
  ASSERT_EQ(::fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL), 0);
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(check_memory_file(unsealed)); });
  const Fd other(::open("/dev/null", O_RDWR | O_CLOEXEC));
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(check_memory_file(other)); });
  test::expect_error(Errc::corrupt, [] { static_cast<void>(check_memory_file(Fd{})); });
}

// Tries to resize a shared file, as a hostile or broken peer would, then writes to it.
DROVER_PEER_BODY(try_to_shrink) {
  ChannelMessage message;
  ASSERT_EQ(peer.channel().receive(message, Deadline::never()), ReceiveResult::message);
  ASSERT_EQ(message.fds.size(), 1U);
  const Fd& file = message.fds.front();
  EXPECT_EQ(::ftruncate(file.get(), 0), -1);
  EXPECT_EQ(::ftruncate(file.get(), 4096), -1);
  const auto mapping = Mapping::shared(file, check_memory_file(file));
  mapping.bytes().back() = static_cast<std::byte>(peer.rank() + 1);
  peer.channel().send("tried");
}

TEST(MemoryFile, peer_cannot_turn_access_into_sigbus) {
  for (const auto mode : {PeerMode::threads, PeerMode::processes}) {
    const auto file = make_memory_file("attacked", 64 * kKiB);
    const auto mapping = Mapping::shared(file, 64 * kKiB);
    PeerGroup group("try_to_shrink", {.mode = mode, .size = 1});
    group.start();
    const int number = file.get();
    group.channel(0).send("shrink this", {&number, 1});
    EXPECT_EQ(group.receive_text(0), "tried");
    std::ranges::for_each(mapping.bytes().first(mapping.size() - 1),
                          [](std::byte value) { EXPECT_EQ(value, std::byte{0}); });
    EXPECT_EQ(mapping.bytes().back(), std::byte{1});
    group.expect_success();
  }
}

}  // namespace
}  // namespace drover
