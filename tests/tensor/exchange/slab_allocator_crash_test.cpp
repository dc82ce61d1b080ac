// Memory that a library allocated in slabs, between processes that are killed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/device/backend.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/session/session.hpp"
#include "drover/tensor/dlpack.hpp"
#include "drover/tensor/send.hpp"
#include "drover/tensor/slab_allocator.hpp"
#include "session/client/session_helpers.hpp"
#include "support/peer_group.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::test {
namespace {

constexpr std::int64_t kCount = 100'000;
constexpr std::uint64_t kBytes = kCount * sizeof(std::int32_t);
constexpr double kSum = static_cast<double>(kCount) * (kCount - 1) / 2;

// An array of a library in such memory, imported as a tensor.
Tensor numbers_at(const Memory& memory, const Place& place, DevicePtr ptr) {
  std::vector<std::int32_t> numbers(kCount);
  std::iota(numbers.begin(), numbers.end(), 0);
  backend_of(place.backend).open(place.index).upload(ptr, numbers.data(), kBytes);
  const DlpackArray array{
      .layout = TensorLayout::contiguous(DType::int32, {kCount}), .place = place, .base = ptr, .keep_alive = {}};
  const Imported imported = import_tensor(memory, array);
  EXPECT_EQ(imported.way, ImportWay::own);
  return imported.tensor;
}

}  // namespace

DROVER_PEER_BODY(slab_producer) {
  std::string handle;
  const Session session = accept_session(peer, &handle);
  const Memory memory(session);
  Queue queue(session, ObjectHandle::parse(handle));
  const Place place = Place::parse(peer.parameter("place"));
  const auto stream = backend_of(place.backend).open(place.index).create_stream();
  SlabAllocator allocator(memory, {.backend = place.backend, .cached_bytes = {}});
  const DevicePtr ptr = allocator.allocate(place.index, kBytes, stream->native());
  ASSERT_EQ(put(queue, numbers_at(memory, place, ptr)), PutResult::put);
  if (peer.parameter("frees") == "yes") allocator.free(ptr);
  peer.reach("sent");
}

DROVER_PEER_BODY(slab_consumer) {
  std::string handle;
  const Session session = accept_session(peer, &handle);
  const Memory memory(session);
  Queue queue(session, ObjectHandle::parse(handle));
  const Tensor tensor = receive_tensor(memory, queue);
  ASSERT_EQ(sum(tensor), kSum);
  peer.reach("got");
  ASSERT_EQ(sum(tensor), kSum) << "the memory was reused";
}

class SlabAllocatorCrash : public PlaceTest {
 protected:
  [[nodiscard]] static PeerGroup peer(const char* body, const std::string& frees = "no") {
    return PeerGroup(body, {.mode = PeerMode::processes, .size = 1}, {{"place", GetParam()}, {"frees", frees}});
  }
  void start(PeerGroup& group, const char* point) {
    group.hold_at(0, point);
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

  Session session_ = Session::start();
  Queue queue_{session_};
  Memory memory_{session_};
};

TEST_P(SlabAllocatorCrash, sent_memory_outlives_its_library_and_process) {
  for (const std::string frees : {"no", "yes"}) {
    auto producer = peer("slab_producer", frees);
    start(producer, "sent");
    kill(producer);
    EXPECT_EQ(sum(receive_tensor(memory_, queue_)), kSum);
  }
}

TEST_P(SlabAllocatorCrash, memory_is_reused_after_its_consumer_is_killed_but_not_before) {
  const auto stream = backend_of(place().backend).open(place().index).create_stream();
  SlabAllocator allocator(memory_, {.backend = place().backend, .cached_bytes = {}});
  const auto send = [&] {
    const DevicePtr ptr = allocator.allocate(place().index, kBytes, stream->native());
    EXPECT_EQ(put(queue_, numbers_at(memory_, place(), ptr)), PutResult::put);
    return ptr;
  };
  auto reader = peer("slab_consumer");
  const DevicePtr read = send();
  start(reader, "got");
  allocator.free(read);
  const DevicePtr next = allocator.allocate(place().index, kBytes, stream->native());
  EXPECT_NE(next, read);
  backend_of(place().backend).open(place().index).upload(next, std::string(kBytes, 'x').data(), kBytes);
  reader.release(0);
  reader.expect_success();
  allocator.free(next);

  auto victim = peer("slab_consumer");
  const DevicePtr held = send();
  start(victim, "got");
  kill(victim);
  allocator.free(held);
  EXPECT_EQ(allocator.allocate(place().index, kBytes, stream->native()), held);
}

// Arrays of a library that divides its memory, which frees each as soon as nobody uses it.
class DividedSlabs : public SlabAllocatorCrash {
 protected:
  void SetUp() override {
    SlabAllocatorCrash::SetUp();
    if (IsSkipped()) return;
    allocator_.emplace(memory_,
                       SlabAllocatorOptions{.backend = place().backend, .cached_bytes = {}, .is_divided = true});
    segment_ = allocator_->allocate(place().index, 2 * kBytes, 0);
  }
  [[nodiscard]] Tensor array(std::uint64_t number) {
    std::vector<std::int32_t> numbers(kCount);
    std::iota(numbers.begin(), numbers.end(), 0);
    const DevicePtr ptr = segment_ + number * kBytes;
    backend_of(place().backend).open(place().index).upload(ptr, numbers.data(), kBytes);
    return array_at(ptr, kCount);
  }
  [[nodiscard]] Tensor array_at(DevicePtr ptr, std::int64_t count) {
    ++kept_;
    const DlpackArray array{.layout = TensorLayout::contiguous(DType::int32, {count}),
                            .place = place(),
                            .base = ptr,
                            .keep_alive = std::shared_ptr<void>(nullptr, [this](void*) { --kept_; })};
    return import_tensor(memory_, array).tensor;
  }
  [[nodiscard]] bool are_kept(int count) {
    return eventually([&] {
      memory_.trim();
      return kept_ == count;
    });
  }

  std::atomic<int> kept_ = 0;  // parts are released on another thread
  DevicePtr segment_;
  std::optional<SlabAllocator> allocator_;
};

TEST_P(DividedSlabs, an_array_is_released_after_its_consumer_is_killed_but_not_before) {
  Queue other(session_);
  ASSERT_EQ(put(queue_, array(0)), PutResult::put);
  ASSERT_EQ(put(other, array(1)), PutResult::put);
  auto victim = peer("slab_consumer");
  start(victim, "got");
  memory_.trim();
  EXPECT_EQ(kept_.load(), 2);
  kill(victim);
  EXPECT_TRUE(are_kept(1)) << "only a message has the other one";
  EXPECT_EQ(sum(receive_tensor(memory_, other)), kSum);
  EXPECT_TRUE(are_kept(0));
}

// The library could not reuse the memory of all arrays that it makes in a period of the poller.
TEST_P(DividedSlabs, arrays_in_a_loop_are_released_while_the_next_ones_are_sent) {
  const Memory receiver(session_);
  int most = 0;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(put(queue_, array_at(segment_, 2 * kCount)), PutResult::put);
    most = std::max(most, kept_.load());
    static_cast<void>(receive_tensor(receiver, queue_));
  }
  EXPECT_LE(most, 32) << "800 KB each";
}

TEST_P(DividedSlabs, an_array_that_the_session_keeps_is_held_until_it_is_dropped) {
  keep("numbers", array(0));
  memory_.trim();
  EXPECT_EQ(kept_.load(), 1);
  EXPECT_EQ(sum(recall(memory_, "numbers")), kSum);
  memory_.trim();
  EXPECT_EQ(kept_.load(), 1);
  const std::shared_ptr<Membership> membership = session_;
  membership->drop("numbers");
  EXPECT_TRUE(are_kept(0));
}

DROVER_INSTANTIATE_ON_DEVICES(SlabAllocatorCrash);
DROVER_INSTANTIATE_ON_DEVICES(DividedSlabs);

}  // namespace drover::test
