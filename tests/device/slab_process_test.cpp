// Slabs between real processes that are killed at various points; the slab must survive or be freed.
#include <csignal>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "conformance/backend_suite.hpp"
#include "drover/base/bytes.hpp"
#include "support/backends.hpp"
#include "support/peer_group.hpp"

namespace drover::test {
namespace {

constexpr std::size_t kSlabBytes = 256 * kMiB;
constexpr std::uint64_t kSlack = 16 * kMiB;            // for rounding and caching by the driver
constexpr std::uint64_t kLessThanContext = 64 * kMiB;  // a context takes about 500 MiB, a process without one about 4
constexpr std::uint64_t kSlabMark = 0x5eed'0000'0000'0001;

// Marks both ends, to check that the whole slab is mapped.
void write_marks(Device& device, const DeviceMemory& memory) {
  device.upload(memory.ptr(), &kSlabMark, sizeof(kSlabMark));
  device.upload(memory.ptr() + (memory.size() - sizeof(kSlabMark)), &kSlabMark, sizeof(kSlabMark));
}

void expect_marks(Device& device, const DeviceMemory& memory) {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  device.download(&first, memory.ptr(), sizeof(first));
  device.download(&last, memory.ptr() + (memory.size() - sizeof(last)), sizeof(last));
  EXPECT_EQ(first, kSlabMark);
  EXPECT_EQ(last, kSlabMark);
}

void send_slab(Channel& channel, const Slab& slab) {
  const Fd exported = slab.export_fd();
  const int number = exported.get();
  channel.send(std::to_string(slab.size()), std::span(&number, 1));
}

ChannelMessage receive_message(Channel& channel) {
  ChannelMessage message;
  if (channel.receive(message, Deadline::never()) != ReceiveResult::message) throw std::runtime_error("peer is gone");
  return message;
}

std::unique_ptr<Slab> receive_slab(Channel& channel, Backend& backend) {
  const ChannelMessage message = receive_message(channel);
  return backend.import_slab(0, message.fds.at(0), std::stoull(message.bytes));
}

}  // namespace

// Creates a slab, writes, sends it, and waits until released.
DROVER_PEER_BODY(slab_exporter) {
  Backend& backend = backend_of(kind_of(peer));
  const auto slab = backend.create_slab(0, kSlabBytes);
  peer.reach("created");
  const auto memory = backend.open(0).map(*slab);
  write_marks(backend.open(0), *memory);
  send_slab(peer.channel(), *slab);
  peer.reach("exported");
  static_cast<void>(peer.receive_text());
}

// Like the keeper: creates and sends slabs without ever having a context.
DROVER_PEER_BODY(slab_maker_without_context) {
  Backend& backend = backend_of(kind_of(peer));
  const auto slab = backend.create_slab(0, kSlabBytes);
  for (;;) {
    send_slab(peer.channel(), *slab);
    if (peer.receive_text() == "end") return;
  }
}

// Holds descriptors and nothing else: it never touches a device.
DROVER_PEER_BODY(descriptor_holder) {
  const ChannelMessage held = receive_message(peer.channel());
  const int number = held.fds.at(0).get();
  peer.channel().send("holding");
  static_cast<void>(peer.receive_text());
  peer.channel().send(held.bytes, std::span(&number, 1));
  static_cast<void>(peer.receive_text());
}

// Receives a slab, and writes or reads it.
DROVER_PEER_BODY(slab_importer) {
  Backend& backend = backend_of(kind_of(peer));
  Device& device = backend.open(0);
  const auto memory = device.map(*receive_slab(peer.channel(), backend));
  peer.reach("mapped");
  if (peer.parameter("does") == "write") write_marks(device, *memory);
  if (peer.parameter("does") == "read") expect_marks(device, *memory);
  peer.channel().send("done");
  peer.reach("used");
  if (peer.receive_text() == "again") expect_marks(device, *memory);
}

class SlabProcesses : public testing::TestWithParam<BackendKind> {
 protected:
  void SetUp() override {
    if (const auto reason = reason_to_skip(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
    used_before = used();
  }
  // Even after a failure: the next test must not start while memory is still being freed.
  void TearDown() override {
    if (!IsSkipped()) expect_memory_returned();
  }

  [[nodiscard]] static PeerGroup peer(const char* body, const char* does = "") {
    return PeerGroup(body, {.mode = PeerMode::processes, .size = 1},
                     {{"backend", std::string(to_string(GetParam()))}, {"does", does}});
  }
  /// Forwards a slab from one peer to another; this process closes its descriptor.
  static void forward(PeerGroup& from, PeerGroup& to) { give(receive_message(from.channel(0)), to); }
  static void give(const ChannelMessage& message, PeerGroup& to) {
    const int number = message.fds.at(0).get();
    to.channel(0).send(message.bytes, std::span(&number, 1));
  }

  [[nodiscard]] static std::uint64_t used() { return backend_of(GetParam()).memory_info(0).used(); }
  /// Memory is freed when the kernel has finished with the dead process, which no call reports; hence the polling.
  void expect_memory_returned() const {
    for (int look = 0; look < 2000 && used() > used_before + kSlack; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_LE(used(), used_before + kSlack) << "device memory was left behind";
  }

  std::uint64_t used_before = 0;
};

TEST_P(SlabProcesses, importer_reads_what_the_exporter_wrote) {
  auto exporter = peer("slab_exporter");
  auto importer = peer("slab_importer", "read");
  exporter.start();
  importer.start();
  forward(exporter, importer);
  EXPECT_EQ(importer.receive_text(0), "done");
  exporter.channel(0).send("end");
  importer.channel(0).send("end");
  exporter.expect_success();
  importer.expect_success();
}

TEST_P(SlabProcesses, importer_still_reads_after_the_exporter_was_killed) {
  auto exporter = peer("slab_exporter");
  auto importer = peer("slab_importer", "read");
  exporter.start();
  importer.start();
  forward(exporter, importer);
  EXPECT_EQ(importer.receive_text(0), "done");
  exporter.kill(0);
  EXPECT_EQ(exporter.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
  EXPECT_GE(used(), used_before + kSlabBytes) << "the slab died with its exporter";
  importer.channel(0).send("again");
  importer.expect_success();
}

TEST_P(SlabProcesses, exporter_killed_before_it_exports_leaves_nothing) {
  auto exporter = peer("slab_exporter");
  exporter.kill_at(0, "created");
  exporter.start();
  EXPECT_EQ(exporter.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
}

TEST_P(SlabProcesses, slab_in_flight_survives_its_exporter) {
  auto exporter = peer("slab_exporter");
  auto importer = peer("slab_importer", "read");
  exporter.kill_at(0, "exported");
  exporter.start();
  EXPECT_EQ(exporter.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
  importer.start();
  forward(exporter, importer);
  EXPECT_EQ(importer.receive_text(0), "done");
  importer.channel(0).send("again");
  importer.expect_success();
}

TEST_P(SlabProcesses, bare_descriptor_in_a_process_without_devices_keeps_the_slab) {
  auto exporter = peer("slab_exporter");
  auto holder = peer("descriptor_holder");
  auto importer = peer("slab_importer", "read");
  exporter.start();
  holder.start();
  forward(exporter, holder);
  EXPECT_EQ(holder.receive_text(0), "holding");
  exporter.kill(0);
  EXPECT_EQ(exporter.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
  EXPECT_GE(used(), used_before + kSlabBytes);
  importer.start();
  holder.channel(0).send("hand over");
  forward(holder, importer);
  EXPECT_EQ(importer.receive_text(0), "done");
  importer.channel(0).send("again");
  importer.expect_success();
  holder.channel(0).send("end");
  holder.expect_success();
}

TEST_P(SlabProcesses, importer_killed_while_using_the_slab_harms_no_other_process) {
  auto exporter = peer("slab_exporter");
  auto victim = peer("slab_importer", "read");
  auto importer = peer("slab_importer", "read");
  victim.kill_at(0, "mapped");
  exporter.start();
  victim.start();
  importer.start();
  const ChannelMessage slab = receive_message(exporter.channel(0));
  give(slab, victim);
  EXPECT_EQ(victim.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
  give(slab, importer);
  EXPECT_EQ(importer.receive_text(0), "done");
  importer.channel(0).send("end");
  exporter.channel(0).send("end");
  importer.expect_success();
  exporter.expect_success();
}

TEST_P(SlabProcesses, slab_created_without_a_context_passes_from_a_killed_writer_to_a_reader) {
  auto maker = peer("slab_maker_without_context");
  auto writer = peer("slab_importer", "write");
  auto reader = peer("slab_importer", "read");
  maker.start();
  const ChannelMessage slab = receive_message(maker.channel(0));
  EXPECT_GE(used(), used_before + kSlabBytes);
  EXPECT_LE(used(), used_before + kSlabBytes + kLessThanContext) << "the maker has a context";
  writer.kill_at(0, "used");
  writer.start();
  give(slab, writer);
  EXPECT_EQ(writer.receive_text(0), "done");
  EXPECT_EQ(writer.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
  reader.start();
  give(slab, reader);
  EXPECT_EQ(reader.receive_text(0), "done");
  reader.channel(0).send("end");
  reader.expect_success();
  maker.channel(0).send("end");
  maker.expect_success();
}

TEST_P(SlabProcesses, memory_is_freed_after_the_last_close_and_not_before) {
  auto maker = peer("slab_maker_without_context");
  maker.start();
  {
    const ChannelMessage slab = receive_message(maker.channel(0));
    maker.kill(0);
    EXPECT_EQ(maker.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
    EXPECT_GE(used(), used_before + kSlabBytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Host, SlabProcesses, testing::Values(BackendKind::host), backend_name);
INSTANTIATE_TEST_SUITE_P(Cuda, SlabProcesses, testing::Values(BackendKind::cuda), backend_name);

}  // namespace drover::test
