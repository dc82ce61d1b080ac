// IPC handles of allocations, between real processes.
#include <cstring>

#include <gtest/gtest.h>

#include "conformance/backend_suite.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "support/backends.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"

namespace drover::test {
namespace {

constexpr std::size_t kBytes = 4 * kMiB;
constexpr std::size_t kOffset = 3 * kMiB + 8;
constexpr std::uint64_t kMark = 0x5eed'0000'0000'0002;

std::string as_text(const IpcHandle& handle) { return {reinterpret_cast<const char*>(handle.data()), handle.size()}; }

IpcHandle as_handle(const std::string& text) {
  IpcHandle handle{};
  if (text.size() == handle.size()) std::memcpy(handle.data(), text.data(), text.size());
  return handle;
}

std::uint64_t mark_in(Device& device, const DeviceMemory& memory) {
  std::uint64_t seen = 0;
  device.download(&seen, memory.ptr() + kOffset, sizeof(seen));
  return seen;
}

}  // namespace

// Allocates, sends the handle, and frees the allocation on request.
DROVER_PEER_BODY(ipc_exporter) {
  Device& device = backend_of(kind_of(peer)).open(0);
  auto memory = device.allocate(kBytes);
  device.upload(memory->ptr() + kOffset, &kMark, sizeof(kMark));
  const PointerInfo info = device.describe(memory->ptr() + kOffset);
  EXPECT_EQ(info.offset_of(memory->ptr() + kOffset), kOffset);
  peer.channel().send(as_text(device.ipc_handle(info.base)));
  EXPECT_EQ(peer.receive_text(), "free");
  peer.channel().send(std::to_string(mark_in(device, *memory)));
  EXPECT_EQ(peer.receive_text(), "now");
  memory.reset();
  memory = device.allocate(kBytes);  // likely at the same address
  peer.channel().send("freed");
  EXPECT_EQ(peer.receive_text(), "end");
}

class IpcProcesses : public testing::TestWithParam<BackendKind> {
 protected:
  void SetUp() override {
    if (const auto reason = reason_to_skip(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
    exporter.start();
    handle = as_handle(exporter.receive_text(0));
  }
  void TearDown() override {
    if (handle == IpcHandle{}) return;  // without a device nothing was started
    exporter.kill(0);
    static_cast<void>(exporter.wait(Deadline::never()));
  }
  /// Makes the exporter check that its allocation holds `mark`, and free it.
  void free_it(std::uint64_t mark) {
    exporter.channel(0).send("free");
    EXPECT_EQ(exporter.receive_text(0), std::to_string(mark));
    exporter.channel(0).send("now");
    EXPECT_EQ(exporter.receive_text(0), "freed");
  }
  [[nodiscard]] static Device& device() { return backend_of(GetParam()).open(0); }

  PeerGroup exporter{
      "ipc_exporter", {.mode = PeerMode::processes, .size = 1}, {{"backend", std::string(to_string(GetParam()))}}};
  IpcHandle handle{};
};

TEST_P(IpcProcesses, both_processes_see_the_same_memory) {
  {
    const auto memory = device().open_ipc(handle, kBytes);
    EXPECT_EQ(memory->size(), kBytes);
    EXPECT_EQ(mark_in(device(), *memory), kMark);
    const std::uint64_t changed = kMark + 1;
    device().upload(memory->ptr() + kOffset, &changed, sizeof(changed));
  }
  free_it(kMark + 1);
  exporter.channel(0).send("end");
  exporter.expect_success();
}

TEST_P(IpcProcesses, allocation_opened_twice_and_closed_once_stays_open) {
  auto first = device().open_ipc(handle, kBytes);
  const auto second = device().open_ipc(handle, kBytes / 2 + kOffset / 2);
  first.reset();
  EXPECT_EQ(mark_in(device(), *second), kMark);
}

TEST_P(IpcProcesses, opened_memory_is_described_as_memory_of_its_device) {
  const auto memory = device().open_ipc(handle, kBytes);
  const PointerInfo info = device().describe(memory->ptr() + kOffset);
  EXPECT_TRUE(info.is_device);
  EXPECT_EQ(info.device, 0);
  EXPECT_EQ(info.offset_of(memory->ptr() + kOffset), kOffset);
  EXPECT_GE(info.size, kBytes);
  EXPECT_FALSE(info.can_retain);
}

TEST_P(IpcProcesses, size_above_that_of_the_allocation_is_an_error) {
  for (const std::size_t wrong : {std::size_t{0}, kBytes + 4 * kMiB, SIZE_MAX}) {
    expect_error(Errc::corrupt, [&] { static_cast<void>(device().open_ipc(handle, wrong)); }, {"bytes and has"});
  }
  EXPECT_EQ(backend_of(GetParam()).live(), LiveResources{});
}

TEST_P(IpcProcesses, handle_of_a_dead_process_is_an_error) {
  exporter.kill(0);
  EXPECT_EQ(exporter.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
  // The driver does not document the code of its refusal.
  if (GetParam() == BackendKind::cuda) {
    EXPECT_THROW(static_cast<void>(device().open_ipc(handle, kBytes)), Error);
  } else {
    expect_error(Errc::corrupt, [&] { static_cast<void>(device().open_ipc(handle, kBytes)); }, {"slabs"});
  }
}

TEST_P(IpcProcesses, handle_of_freed_memory_is_an_error_even_if_the_address_is_reused) {
  if (GetParam() == BackendKind::cuda) GTEST_SKIP() << "the driver does not specify this";
  free_it(kMark);
  expect_error(Errc::corrupt, [&] { static_cast<void>(device().open_ipc(handle, kBytes)); }, {"no such allocation"});
}

INSTANTIATE_TEST_SUITE_P(Host, IpcProcesses, testing::Values(BackendKind::host), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, IpcProcesses, testing::Values(BackendKind::cuda), backend_name);

}  // namespace drover::test
