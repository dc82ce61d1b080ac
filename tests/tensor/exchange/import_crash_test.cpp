// Memory of other libraries between processes that are killed.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/session/session.hpp"
#include "drover/tensor/dlpack.hpp"
#include "drover/tensor/send.hpp"
#include "session/client/session_helpers.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"
#include "support/scoped_environment.hpp"
#include "tensor/exchange/foreign_support.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::test {
namespace {

constexpr std::int64_t kCount = 300'000;
constexpr std::uint64_t kArrays = 60;  // more than the slot of a queue has room for
constexpr std::int64_t kHundred = 100;

}  // namespace

// Sends memory of another library twice, then waits to be killed or released.
DROVER_PEER_BODY(foreign_producer) {
  std::string handle;
  const Session session = accept_session(peer, &handle);
  const Memory memory(session);
  Queue queue(session, ObjectHandle::parse(handle));
  ForeignNumbers numbers(Place::parse(peer.parameter("place")), peer.parameter("kind"), kCount);
  const Imported imported = import_tensor(memory, numbers.array(), kByReference);
  ASSERT_EQ(imported.way, way_of(peer.parameter("kind")));
  for (int i = 0; i < 2; ++i) ASSERT_EQ(put(queue, imported.tensor), PutResult::put);
  peer.reach("sent");
}

// Receives a tensor, writes to it, and releases it.
DROVER_PEER_BODY(foreign_consumer) {
  std::string handle;
  const Session session = accept_session(peer, &handle);
  const Memory memory(session);
  Queue queue(session, ObjectHandle::parse(handle));
  Tensor tensor = receive_tensor(memory, queue);
  ASSERT_EQ(sum(tensor), static_cast<double>(kCount * (kCount - 1) / 2));
  tensor.fill(2);
  tensor.synchronize();
  peer.reach("got");
  tensor = Tensor();
  peer.reach("released");
}

// Sends copies of 60 arrays in one message, writes to their memory and frees it, then exits or is killed; or is
// killed before it has sent them.
DROVER_PEER_BODY(array_producer) {
  std::string handle;
  const Session session = accept_session(peer, &handle);
  const Memory memory(session);
  Queue queue(session, ObjectHandle::parse(handle));
  const Place place = Place::parse(peer.parameter("place"));
  std::vector<std::int32_t> host(kHundred, 3);
  {
    ForeignNumbers numbers(place, peer.parameter("kind"), kArrays * kHundred);
    std::vector<Tensor> tensors;
    for (std::uint64_t i = 0; i < kArrays; ++i) {  // one by one, so that each has a block of its own
      const auto hundred = TensorLayout::contiguous(DType::int32, {kHundred});
      DlpackArray array = numbers.array(hundred, 4 * kHundred * i);
      if (i % 3 == 2) {
        array = {.layout = hundred, .place = Place::cpu(), .base = {reinterpret_cast<std::uint64_t>(host.data())}};
      }
      tensors.push_back(import_tensor(memory, array).tensor);
    }
    peer.reach("copied");
    PackedTensors packed = pack_all(tensors);
    peer.reach("packed");
    ASSERT_EQ(packed.leases.size(), std::size_t{kArrays});
    ASSERT_EQ(queue.put(packed.record, packed.leases), PutResult::put);
    for (const Tensor& tensor : tensors) tensor.synchronize();  // work in flight would be lost with this process
    for (std::uint64_t i = 0; i < kArrays * kHundred; i += 50) numbers.set(i, -1);
    std::ranges::fill(host, -1);
  }
  peer.reach("sent");
}

// Imports more than there is room for; then it is the same memory, with one warning in all.
DROVER_PEER_BODY(array_without_room) {
  const Place place = Place::parse(peer.parameter("place"));
  const bool has_budget = peer.parameter("kind") == "budget";
  const ScopedEnvironment group("DROVER_HOST_GROUP", "without room");
  const ScopedEnvironment capacity("DROVER_HOST_MEMORY", "24MiB");
  std::string handle;
  const Session session = accept_session(peer, &handle);
  MemoryOptions options;
  if (has_budget) options.budgets[place] = kMiB;
  const Memory memory(session, options);
  const CapturedLog log(LogLevel::warn);
  ForeignNumbers numbers(place, "allocated", 4 * kMiB);  // of 4 bytes
  for (int i = 0; i < 2; ++i) {
    const Imported imported = import_tensor(memory, numbers.array());
    EXPECT_EQ(imported.way, ImportWay::ipc_handle);
    EXPECT_EQ(sum(imported.tensor.slice(0, 0, 10)), 45.0);
  }
  const auto lines = log.lines();
  ASSERT_EQ(lines.size(), 1U);
  for (const char* const part :
       {"no room at", "16.0 MiB", "sent by reference", "lost if process", "free memory at"}) {
    EXPECT_NE(lines.front().find(part), std::string::npos) << part << " is not in: " << lines.front();
  }
  std::vector<std::int32_t> host(100, 3);
  const DlpackArray small{.layout = TensorLayout::contiguous(DType::int32, {100}),
                          .place = Place::cpu(),
                          .base = {reinterpret_cast<std::uint64_t>(host.data())}};
  EXPECT_EQ(import_tensor(memory, small).way, ImportWay::copied);
}

class ForeignCrash : public PlaceTest {
 protected:
  [[nodiscard]] static PeerGroup peer(const char* body, const std::string& kind) {
    return PeerGroup(body, {.mode = PeerMode::processes, .size = 1}, {{"place", GetParam()}, {"kind", kind}});
  }
  void start(PeerGroup& group, const char* point) {
    group.start();
    send_invitation(group.channel(0), session_, queue_.handle().to_string());
    group.wait_until_held(0, point);
  }
  void kill(PeerGroup& group) {
    const std::uint64_t before = session_.population().departed;
    group.kill(0);
    EXPECT_EQ(group.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
    ASSERT_TRUE(eventually([&] { return session_.population().departed == before + 1; }));
  }
  // The arrays of `array_producer`, whose process is gone.
  void expect_arrays() {
    Message message;
    ASSERT_EQ(queue_.get(message, Deadline::after(std::chrono::seconds(60))), GetResult::got);
    auto leases = message.take_leases();
    const auto got = unpack_all(memory_, message.bytes(), leases);
    ASSERT_EQ(got.size(), kArrays);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double first = static_cast<double>(i) * kHundred;
      EXPECT_EQ(sum(got[i]), i % 3 == 2 ? 300.0 : kHundred * first + 4950) << i;
    }
  }
  // Everything of a dead process is given back: nobody uses a block, and all its slabs are gone.
  [[nodiscard]] bool is_all_free() {
    const std::uint64_t before = free_before_;
    return eventually([&] {
      memory_.trim();
      return memory_.usage().empty() && queue_.size() == 0 && used() <= before;
    });
  }
  [[nodiscard]] static std::uint64_t used() {
    return place().backend == BackendKind::host ? backend_of(place().backend).memory_info(place().index).used() : 0;
  }
  [[nodiscard]] bool are_released(const ForeignNumbers& numbers) {
    return eventually([&] { return memory_.usage().empty() && numbers.kept() == 0; });
  }

  const std::uint64_t free_before_ = used();
  Session session_ = Session::start();
  Queue queue_{session_};
  Memory memory_{session_};
};

TEST_P(ForeignCrash, both_processes_have_the_same_memory) {
  for (const std::string kind : {"allocated", "mapped"}) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kCount);
    const Tensor imported = import_tensor(memory_, numbers.array(), kByReference).tensor;
    ASSERT_EQ(put(queue_, imported), PutResult::put);
    auto consumer = peer("foreign_consumer", kind);
    consumer.hold_at(0, "got");
    start(consumer, "got");
    EXPECT_EQ(sum(imported), 2.0 * kCount);
    consumer.release(0);
    consumer.expect_success();
  }
}

TEST_P(ForeignCrash, keep_alive_is_held_until_the_consumer_releases_it) {
  for (const std::string kind : {"allocated", "mapped"}) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kCount);
    ASSERT_EQ(put(queue_, import_tensor(memory_, numbers.array(), kByReference).tensor), PutResult::put);
    auto consumer = peer("foreign_consumer", kind);
    consumer.hold_at(0, "got");
    consumer.hold_at(0, "released");
    start(consumer, "got");
    memory_.trim();
    EXPECT_EQ(numbers.kept(), 1);
    consumer.release(0);
    consumer.wait_until_held(0, "released");
    EXPECT_TRUE(are_released(numbers)) << "although the consumer lives";
    consumer.release(0);
    consumer.expect_success();
  }
}

TEST_P(ForeignCrash, a_killed_consumer_releases_its_memory) {
  for (const std::string kind : {"allocated", "mapped"}) {
    SCOPED_TRACE(kind);
    ForeignNumbers numbers(place(), kind, kCount);
    ASSERT_EQ(put(queue_, import_tensor(memory_, numbers.array(), kByReference).tensor), PutResult::put);
    auto consumer = peer("foreign_consumer", kind);
    consumer.hold_at(0, "got");
    start(consumer, "got");
    EXPECT_EQ(numbers.kept(), 1);
    kill(consumer);
    EXPECT_TRUE(are_released(numbers));
  }
}

TEST_P(ForeignCrash, copied_arrays_outlive_a_producer_that_exits_or_is_killed) {
  for (const std::string kind : {"allocated", "mapped"}) {
    for (const bool is_killed : {false, true}) {
      SCOPED_TRACE(kind + (is_killed ? " killed" : " exits"));
      auto producer = peer("array_producer", kind);
      producer.hold_at(0, "sent");
      start(producer, "sent");
      if (is_killed) {
        kill(producer);
      } else {
        producer.release(0);
        producer.expect_success();
      }
      expect_arrays();
      EXPECT_TRUE(is_all_free());
    }
  }
}

TEST_P(ForeignCrash, a_producer_killed_before_its_arrays_are_sent_leaves_nothing) {
  for (const char* const point : {"copied", "packed"}) {
    SCOPED_TRACE(point);
    auto producer = peer("array_producer", "allocated");
    producer.hold_at(0, point);
    start(producer, point);
    kill(producer);
    EXPECT_EQ(queue_.size(), 0U);
    EXPECT_TRUE(is_all_free());
  }
}

TEST_P(ForeignCrash, without_room_for_a_copy_arrays_are_shared_with_one_warning) {
  for (const char* const shortage : {"budget", "device"}) {
    SCOPED_TRACE(shortage);
    if (shortage == std::string("device") && place().backend == BackendKind::cuda) continue;
    auto importer = peer("array_without_room", shortage);
    importer.start();
    send_invitation(importer.channel(0), session_, queue_.handle().to_string());
    importer.expect_success();
  }
}

TEST_P(ForeignCrash, retained_memory_outlives_a_killed_producer) {
  auto producer = peer("foreign_producer", "mapped");
  producer.hold_at(0, "sent");
  start(producer, "sent");
  kill(producer);
  EXPECT_EQ(sum(receive_tensor(memory_, queue_)), static_cast<double>(kCount * (kCount - 1) / 2));
}

TEST_P(ForeignCrash, opening_a_handle_of_a_killed_producer_throws) {
  auto producer = peer("foreign_producer", "allocated");
  producer.hold_at(0, "sent");
  start(producer, "sent");
  kill(producer);
  Tensor tensor;
  expect_error(Errc::peer_lost, [&] { static_cast<void>(get(queue_, memory_, tensor)); },
               {"that process is gone", "import it without by_reference"});
  EXPECT_EQ(sum(full(memory_, DType::uint8, {100}, 2, place())), 200.0) << "other memory still works";
}

DROVER_INSTANTIATE_ON_DEVICES(ForeignCrash);

}  // namespace drover::test
