// Errors that only emulated devices report, and settings that are read once per process.
#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/base/mapping.hpp"
#include "drover/device/backend.hpp"
#include "support/backends.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/peer_group.hpp"
#include "support/scoped_environment.hpp"

namespace drover::test {
namespace {

class HostForeign : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(reason_to_skip(BackendKind::host), ""); }
  [[nodiscard]] static Device& device(int index = 0) { return backend_of(BackendKind::host).open(index); }
};

}  // namespace

TEST_F(HostForeign, unknown_stream_is_an_error) {
  const auto stream = device().create_stream();
  const auto borrow = [](int index, std::uintptr_t native) {
    static_cast<void>(device(index).borrow_stream(native));
  };
  for (const std::uintptr_t native : {std::uintptr_t{0}, std::uintptr_t{2}, stream->native() + 1}) {
    expect_error(Errc::invalid_argument, [&] { borrow(0, native); }, {"no stream", "native"});
  }
  expect_error(Errc::invalid_argument, [&] { borrow(1, stream->native()); }, {"host:1"});
}

TEST_F(HostForeign, use_of_a_borrowed_stream_after_its_destruction_is_an_error) {
  auto stream = device().create_stream();
  const auto borrowed = device().borrow_stream(stream->native());
  const auto memory = device().allocate(kMiB);
  stream.reset();
  expect_error(Errc::invalid_argument, [&] { borrowed->fill(memory->ptr(), 1, kMiB); }, {"borrowed"});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(device().borrow_stream(borrowed->native())); });
}

TEST_F(HostForeign, handle_that_cannot_be_made_is_an_error) {
  const auto memory = device().allocate(kMiB);
  const FaultSeam fail("fstat", EIO);
  expect_error(Errc::system, [&] { static_cast<void>(device().ipc_handle(memory->ptr())); }, {"fstat"});
}

DROVER_PEER_BODY(without_timelines) {
  Device& device = backend_of(BackendKind::host).open(0);
  EXPECT_FALSE(device.has_timelines());
  const Mapping memory = Mapping::anonymous(4096);
  const auto registration = device.register_host(memory.bytes());
  auto& word = *reinterpret_cast<TimelineWord*>(memory.data());
  const auto stream = device.create_stream();
  expect_error(Errc::unsupported, [&] { stream->signal(word, 1); }, {"timeline_store", "DROVER_TIMELINES"});
  expect_error(Errc::unsupported, [&] { stream->wait(word, 1); });
}

TEST_F(HostForeign, timelines_can_be_disabled) {
  EXPECT_TRUE(device().has_timelines());
  const ScopedEnvironment off("DROVER_TIMELINES", "0");
  PeerGroup peer("without_timelines", {.mode = PeerMode::processes, .size = 1});
  peer.start();
  peer.expect_success();
}

}  // namespace drover::test
