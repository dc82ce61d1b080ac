// Tensors through queues and pipes, between participants in one process, with both orderings.
#include "drover/tensor/send.hpp"

#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/tensor/tensor.hpp"
#include "session/client/session_helpers.hpp"
#include "support/backends.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"
#include "tensor/memory/gate.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::tensor {
namespace {

using test::eventually;
using test::expect_error;
using test::Gate;
using test::TestSession;

// A place and an ordering: "cuda:0", "cuda:0/host".
class Sending : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!place().is_device) return;
    if (const auto reason = test::reason_to_skip(place().backend); !reason.empty()) GTEST_SKIP() << reason;
  }
  static Place place() { return Place::parse(GetParam().substr(0, GetParam().find('/'))); }
  static bool has_timelines() { return GetParam().find('/') == std::string::npos; }
  static MemoryOptions options() {
    return {.budgets = {}, .ordering = has_timelines() ? Ordering::timelines : Ordering::host};
  }
  // One participant, with its memory and the queue.
  struct Side {
    std::shared_ptr<Membership> member;
    Memory memory;
    Queue queue;

    [[nodiscard]] Tensor receive() {
      Tensor tensor;
      EXPECT_EQ(get(queue, memory, tensor, Deadline::after(std::chrono::seconds(10))), GetResult::got);
      return tensor;
    }
  };
  Side join(const MemoryOptions& options = {}) {
    const auto member = session_.join();
    return {.member = member, .memory = Memory(member, options), .queue = Queue(member, queue_.handle())};
  }
  Tensor received() { return receiver_.receive(); }

  TestSession session_;
  std::shared_ptr<Membership> sender_ = session_.join();
  Memory here_{sender_, options()};
  Queue queue_{sender_};
  Side receiver_ = join(options());
};

std::string case_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& each : name) each = each == '/' ? '_' : each;
  std::erase(name, ':');
  return name;
}

TEST_P(Sending, elements_and_layout_are_received) {
  const Tensor sent = random(here_, DType::float32, {30, 40}, 1, place());
  ASSERT_EQ(put(queue_, sent), PutResult::put);
  const Tensor got = received();
  EXPECT_EQ(got.place(), place());
  EXPECT_EQ(got.layout(), sent.layout());
  EXPECT_TRUE(equal(got, sent));
}

TEST_P(Sending, views_are_received_as_views) {
  const Tensor sent = random(here_, DType::int16, {30, 40}, 1, place());
  ASSERT_EQ(put(queue_, sent.transpose(0, 1).slice(0, 3, 20, 2)), PutResult::put);
  const Tensor got = received();
  EXPECT_FALSE(got.layout().is_contiguous());
  EXPECT_TRUE(equal(got, sent.transpose(0, 1).slice(0, 3, 20, 2)));
}

TEST_P(Sending, both_sides_share_the_memory) {
  const Tensor sent = zeros(here_, DType::uint8, {100}, place());
  ASSERT_EQ(put(queue_, sent), PutResult::put);
  const Tensor got = received();
  got.fill(5);
  got.synchronize();
  EXPECT_EQ(sum(sent), 500.0);
}

TEST_P(Sending, a_tensor_sent_away_has_no_memory) {
  Tensor sent = full(here_, DType::uint8, {100}, 2, place());
  const Tensor view = sent.slice(0, 10);
  ASSERT_EQ(put(queue_, std::move(sent)), PutResult::put);
  EXPECT_FALSE(sent.is_open());  // NOLINT(bugprone-use-after-move): that is what it promises
  EXPECT_EQ(sum(view), 180.0) << "other views stay valid";
  EXPECT_EQ(sum(received()), 200.0);
}

TEST_P(Sending, a_tensor_that_was_not_put_keeps_its_memory) {
  Queue full_queue(sender_, {.capacity = 1});
  Tensor sent = full(here_, DType::uint8, {100}, 2, place());
  ASSERT_EQ(put(full_queue, sent), PutResult::put);
  EXPECT_EQ(put(full_queue, std::move(sent), Deadline::after({})), PutResult::timed_out);
  EXPECT_EQ(sum(sent), 200.0);  // NOLINT(bugprone-use-after-move): it was not moved
}

TEST_P(Sending, a_sent_copy_is_independent) {
  const Tensor sent = full(here_, DType::uint8, {100}, 2, place());
  ASSERT_EQ(put(queue_, sent.copy()), PutResult::put);
  sent.fill(9);
  sent.synchronize();
  EXPECT_EQ(sum(received()), 200.0);
}

TEST_P(Sending, memory_is_released_with_the_last_holder) {
  ASSERT_EQ(put(queue_, full(here_, DType::uint8, {100}, 2, place())), PutResult::put);
  EXPECT_TRUE(eventually([&] { return here_.claimed(place()) == 0; }));
  Tensor got = received();
  EXPECT_EQ(sum(got), 200.0);
  EXPECT_EQ(receiver_.memory.claimed(place()), 512U);
  got = Tensor();
  EXPECT_TRUE(eventually([&] { return receiver_.memory.claimed(place()) == 0 && here_.usage().at(0).blocks == 0; }));
}

TEST_P(Sending, pipes_carry_tensors_both_ways) {
  auto [one, mine] = Pipe::make(sender_);
  Pipe other(receiver_.member, mine.handle());
  ASSERT_EQ(send(one, full(here_, DType::uint8, {7}, 1, place())), PutResult::put);
  Tensor got;
  ASSERT_EQ(receive(other, receiver_.memory, got), GetResult::got);
  ASSERT_EQ(send(other, std::move(got)), PutResult::put);
  ASSERT_EQ(receive(one, here_, got), GetResult::got);
  EXPECT_EQ(sum(got), 7.0);
}

TEST_P(Sending, many_tensors_are_received_in_order) {
  std::jthread sender([&] {
    for (int nth = 0; nth < 200; ++nth) {
      ASSERT_EQ(put(queue_, full(here_, DType::int32, {1000 + nth}, nth, place())), PutResult::put);
    }
  });
  for (int nth = 0; nth < 200; ++nth) EXPECT_EQ(sum(received()), (1000.0 + nth) * nth);
}

INSTANTIATE_TEST_SUITE_P(Host, Sending, ::testing::Values("cpu", "host:0", "host:0/host"), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Sending, ::testing::Values("cuda:0", "cuda:0/host"), case_name);

class SendingUnfinished : public Sending {};

TEST_P(SendingUnfinished, the_receiver_waits_for_work_in_flight) {
  Gate gate(place());
  const Tensor sent = zeros(here_, DType::uint8, {1000}, place());
  gate.fill(sent, 3);
  ASSERT_EQ(put(queue_, sent), PutResult::put);  // does not wait
  const Tensor got = received();
  EXPECT_FALSE(got.is_ready());
  const Tensor copied = got.to(Place::cpu());  // does not wait either
  EXPECT_FALSE(copied.is_ready());
  gate.open();
  EXPECT_EQ(sum(copied), 3000.0);
  EXPECT_EQ(sum(got), 3000.0);
}

TEST_P(SendingUnfinished, a_pending_tensor_can_be_forwarded) {
  Gate gate(place());
  const Tensor sent = zeros(here_, DType::uint8, {1000}, place());
  gate.fill(sent, 3);
  ASSERT_EQ(put(queue_, sent), PutResult::put);
  ASSERT_EQ(put(receiver_.queue, received()), PutResult::put);
  Side third = join();
  const Tensor got = third.receive();
  EXPECT_FALSE(got.is_ready());
  gate.open();
  EXPECT_EQ(sum(got), 3000.0);
}

TEST_P(SendingUnfinished, a_result_derived_from_it_waits_too) {
  Gate gate(place());
  const Tensor sent = zeros(here_, DType::uint8, {1000}, place());
  gate.fill(sent, 3);
  ASSERT_EQ(put(queue_, sent), PutResult::put);
  ASSERT_EQ(put(receiver_.queue, received().copy()), PutResult::put);
  Side third = join();
  const Tensor got = third.receive();
  EXPECT_FALSE(got.is_ready());
  gate.open();
  EXPECT_EQ(sum(got), 3000.0);
}

TEST_P(SendingUnfinished, the_sender_waits_if_there_are_too_many_points) {
  const Tensor sent = zeros(receiver_.memory, DType::uint8, {1000}, Place::cpu());
  // From five participants, each with its own timeline.
  std::vector<Side> sides;
  std::vector<std::unique_ptr<Gate>> gates;
  for (int nth = 0; nth < 5; ++nth) {
    sides.push_back(join());
    gates.push_back(std::make_unique<Gate>(place()));
    const Tensor part = zeros(sides.back().memory, DType::uint8, {200}, place());
    gates.back()->fill(part, static_cast<std::uint8_t>(nth + 1));
    ASSERT_EQ(put(sides.back().queue, part), PutResult::put);
    sent.slice(0, nth * 200, (nth + 1) * 200).copy_from(received());
  }
  std::jthread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (const auto& gate : gates) gate->open();
  });
  ASSERT_EQ(put(receiver_.queue, sent), PutResult::put);
  const Tensor got = join().receive();
  EXPECT_TRUE(got.is_ready());
  EXPECT_EQ(sum(got), 200.0 * (1 + 2 + 3 + 4 + 5));
}

TEST_P(SendingUnfinished, with_host_ordering_the_sender_waits) {
  Side waiting = join({.budgets = {}, .ordering = Ordering::host});
  Gate gate(place());
  const Tensor sent = zeros(waiting.memory, DType::uint8, {1000}, place());
  gate.fill(sent, 3);
  std::jthread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
  });
  ASSERT_EQ(put(waiting.queue, sent), PutResult::put);
  const Tensor got = received();
  EXPECT_TRUE(got.is_ready());
  EXPECT_EQ(sum(got), 3000.0);
}

TEST_P(SendingUnfinished, a_receiver_with_host_ordering_waits_for_timelines) {
  Side waiting = join({.budgets = {}, .ordering = Ordering::host});
  Gate gate(place());
  const Tensor sent = zeros(here_, DType::uint8, {1000}, place());
  gate.fill(sent, 3);
  ASSERT_EQ(put(queue_, sent), PutResult::put);
  const Tensor got = waiting.receive();
  EXPECT_FALSE(got.is_ready());
  std::jthread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
  });
  EXPECT_EQ(sum(got.copy()), 3000.0);
}

TEST_P(SendingUnfinished, waiting_after_the_session_ended_throws) {
  auto gate = std::make_unique<Gate>(place());
  const Tensor sent = zeros(here_, DType::uint8, {1000}, place());
  gate->fill(sent, 3);
  ASSERT_EQ(put(queue_, sent), PutResult::put);
  const Tensor got = received();
  const Tensor copied = got.to(Place::cpu());
  session_.end();
  expect_error(Errc::peer_lost, [&] { static_cast<void>(sum(copied)); });
  expect_error(Errc::peer_lost, [&] { got.synchronize(); });
  EXPECT_FALSE(sent.is_ready()) << "its producer is not done";
  gate->open();
  EXPECT_EQ(sum(sent), 3000.0);
  EXPECT_EQ(sum(copied), 3000.0) << "the final contents are right";
}

TEST_P(SendingUnfinished, results_of_borrowed_streams_are_derived) {
  Gate gate(place());
  const Tensor sent = zeros(here_, DType::uint8, {1000}, place());
  gate.fill(sent, 3);
  ASSERT_EQ(put(queue_, sent), PutResult::put);
  const Tensor got = received();
  Device& device = backend_of(place().backend).open(place().index);
  const auto stream = device.create_stream();
  const Tensor made = zeros(receiver_.memory, DType::uint8, {1000}, place());
  got.begin_use(*stream);
  made.begin_use(*stream);
  stream->copy(made.device_ptr(), got.device_ptr(), 1000);
  made.end_use(*stream, {got});
  got.end_use(*stream);
  EXPECT_FALSE(made.is_ready());
  gate.open();
  EXPECT_EQ(sum(made), 3000.0);
}

TEST_P(SendingUnfinished, tensors_of_two_sessions_are_copied_in_order) {
  TestSession other;
  Memory elsewhere(other.join());
  Gate gate(place());
  const Tensor sent = zeros(here_, DType::uint8, {1000}, place());
  gate.fill(sent, 3);
  ASSERT_EQ(put(queue_, sent), PutResult::put);
  const Tensor got = received();
  const Tensor copied = zeros(elsewhere, DType::uint8, {1000}, place());
  std::jthread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
  });
  copied.copy_from(got);
  ASSERT_EQ(put(receiver_.queue, got), PutResult::put);  // not affected by work of the other session
  EXPECT_EQ(sum(join().receive()), 3000.0);
  EXPECT_EQ(sum(copied), 3000.0);
  PackedTensors packed = pack_all({&copied, 1});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(unpack_all(here_, packed.record, packed.leases)); },
               {"another session"});
}

TEST_P(SendingUnfinished, destroying_a_memory_waits_for_work_in_flight) {
  ASSERT_EQ(put(queue_, full(here_, DType::uint8, {1000}, 1, place())), PutResult::put);
  ASSERT_EQ(put(queue_, full(here_, DType::uint8, {1000}, 1, place())), PutResult::put);
  Gate gate(place());
  std::jthread opener;
  {
    Side third = join();
    gate.hold(third.receive());
    gate.hold(third.receive());
    opener = std::jthread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(here_.usage().at(0).blocks, 2U) << "both are still in use";
      gate.open();
    });
  }
  opener.join();
  EXPECT_EQ(here_.usage().at(0).blocks, 0U);
}

INSTANTIATE_TEST_SUITE_P(Host, SendingUnfinished, ::testing::Values("host:0"), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, SendingUnfinished, ::testing::Values("cuda:0"), case_name);

// Where a record of one tensor has these.
constexpr std::size_t kPointsAt = 16;
constexpr std::size_t kBlockAt = 88;
constexpr std::size_t kShapeAt = 104;

class SentRecords : public ::testing::Test {
 protected:
  [[nodiscard]] PackedTensors packed() const {
    const Tensor tensor = zeros(memory_, DType::uint8, {100});
    return pack_all({&tensor, 1});
  }
  // The record of a valid tensor with some bytes changed.
  void expect_corrupt(std::size_t offset, std::uint64_t value, std::size_t bytes, const std::string& text) {
    PackedTensors changed = packed();
    std::memcpy(changed.record.data() + offset, &value, bytes);
    expect_error(Errc::corrupt, [&] { static_cast<void>(unpack_all(memory_, changed.record, changed.leases)); },
                 {text});
    EXPECT_TRUE(changed.leases.front().is_open()) << "the caller keeps the lease";
  }

  TestSession session_;
  Memory memory_{session_.join()};
};

TEST_F(SentRecords, invalid_records_are_corrupt) {
  expect_corrupt(0, 0, 4, "wrong magic number");
  expect_corrupt(4, 99, 2, "unknown version");
  expect_corrupt(8, 2, 4, "wrong length");
  expect_corrupt(12, 0xffff'ffff, 4, "wrong length");
  expect_corrupt(kPointsAt, 5, 8, "too many points");
  expect_corrupt(kPointsAt, 1, 8, "never submitted");
  expect_corrupt(kBlockAt, 1, 8, "names a block that it has not");
  expect_corrupt(kShapeAt, 1'000'000, 8, "outside its memory");
  expect_corrupt(kShapeAt, ~std::uint64_t{0}, 8, "invalid layout");
  PackedTensors cut = packed();
  for (const std::size_t bytes : {0U, 5U, 16U, 239U}) {
    expect_error(Errc::corrupt,
                 [&] { static_cast<void>(unpack_all(memory_, std::span(cut.record).first(bytes), cut.leases)); },
                 {"length"});
  }
  expect_error(Errc::corrupt, [&] { static_cast<void>(unpack_all(memory_, cut.record, {})); },
               {"another number of blocks"});
}

// Any record is rejected or describes a tensor within its memory.
TEST_F(SentRecords, random_changes_are_safe) {
  const Tensor tensor = zeros(memory_, DType::uint8, {10, 10});
  std::minstd_rand random(4711);  // NOLINT(cert-msc32-c,cert-msc51-cpp): repeatable
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    const Tensor transposed = tensor.transpose(0, 1);
    PackedTensors packed = pack_all({&transposed, 1});
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      packed.record.at(8 + random() % (packed.record.size() - 8)) = static_cast<std::byte>(random());
    }
    try {
      const Tensor changed = unpack_all(memory_, packed.record, packed.leases).at(0);
      EXPECT_LE(changed.layout().extent_bytes().end, 512U);
      EXPECT_EQ(sum(changed.reshape({-1}).slice(0, 0, 1000)), 0.0);
      ++accepted;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Errc::corrupt || error.code() == Errc::unsupported) << error.what();
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST_F(SentRecords, receiving_another_message_as_a_tensor_throws) {
  Queue queue(session_.join());
  Memory there(session_.join());
  ASSERT_EQ(queue.put("hello"), PutResult::put);
  Tensor got;
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(get(queue, there, got)); },
               {"expected a tensor, got a message of 5 bytes with 0 leases"});
  const Tensor none;
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(pack_all({&none, 1})); });
}

TEST_F(SentRecords, a_lease_can_be_unpacked_only_once) {
  PackedTensors once = packed();
  const auto tensors = unpack_all(memory_, once.record, once.leases);
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(unpack_all(memory_, once.record, once.leases)); },
               {"unpack each lease once"});
}

TEST_F(SentRecords, tensors_of_one_storage_share_a_lease) {
  const Tensor whole = arange(memory_, DType::int32, 0, 100);
  const std::vector<Tensor> sent = {whole.slice(0, 0, 10), arange(memory_, DType::int32, 0, 5), whole};
  PackedTensors packed = pack_all(sent);
  EXPECT_EQ(packed.leases.size(), 2U);
  const auto got = unpack_all(memory_, packed.record, packed.leases);
  ASSERT_EQ(got.size(), 3U);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(sum(got[i]), sum(sent[i]));
  got[2].fill(1);
  EXPECT_EQ(sum(got[0]), 10.0) << "a view of the same elements";
}

}  // namespace
}  // namespace drover::tensor
