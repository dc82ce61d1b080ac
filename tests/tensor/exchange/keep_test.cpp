// Tensors that a session keeps for the next application.
#include "drover/tensor/send.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/ipc/lease.hpp"
#include "drover/session/session.hpp"
#include "session/client/session_helpers.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"
#include "tensor/memory/gate.hpp"
#include "tensor/memory/memory_support.hpp"

namespace drover::test {
namespace {

constexpr std::int64_t kKeptCount = 5'000'000;

Tensor make_weights(const Memory& memory, const Place& place) {
  return random(memory, DType::float32, {kKeptCount / 100, 100}, 42, place);
}

}  // namespace

// An application that keeps a tensor in the session "training", then is killed.
DROVER_PEER_BODY(tensor_keeper) {
  const Session session = Session::open("training");
  const Memory memory(session);
  const Place place = Place::parse(peer.parameter("place"));
  const Tensor weights = make_weights(memory, place);
  keep("weights", weights.transpose(0, 1));
  weights.synchronize();
  peer.reach("kept");
}

class KeptTensor : public PlaceTest {
 protected:
  void SetUp() override {
    PlaceTest::SetUp();
    if (IsSkipped()) return;
    if (place().is_device) static_cast<void>(backend_of(place().backend).open(place().index));
  }
  void TearDown() override {
    for (const auto& info : list_sessions()) end_session(info.name, true);
  }
  static void run_application() {
    PeerGroup application("tensor_keeper", {.mode = PeerMode::processes, .size = 1}, {{"place", GetParam()}});
    application.kill_at(0, "kept");
    application.start();
    ASSERT_EQ(application.wait(Deadline::never()).at(0).kind, PeerOutcome::Kind::abandoned);
  }

  OwnRuntimeFolder folder_;
};

TEST_P(KeptTensor, kept_tensors_survive_a_killed_application) {
  run_application();
  Session session = Session::open("training");
  const Memory memory(session);
  const Tensor weights = recall(memory, "weights");
  EXPECT_EQ(weights.place(), place());
  EXPECT_FALSE(weights.layout().is_contiguous());
  EXPECT_TRUE(equal(weights.transpose(0, 1), make_weights(memory, place())));
  ASSERT_EQ(session.kept().size(), 1U);
  EXPECT_EQ(session.kept()[0].description, "float32[100, 50000] strides [1, 100] at " + GetParam());
  session.drop("weights");
  expect_error(Errc::not_found, [&] { static_cast<void>(recall(memory, "weights")); });
  EXPECT_TRUE(equal(weights.transpose(0, 1), make_weights(memory, place()))) << "recalled before the drop";
}

TEST_P(KeptTensor, kept_tensors_share_their_memory) {
  const Session session = Session::open("training");
  const Memory memory(session);
  const Tensor mine = zeros(memory, DType::int32, {1000}, place());
  keep("state", mine);
  mine.fill(3);
  mine.synchronize();
  EXPECT_EQ(sum(recall(memory, "state")), 3000.0);
  keep("state", full(memory, DType::int32, {10}, 4, place()));
  EXPECT_EQ(sum(recall(memory, "state")), 40.0) << "replaced";
}

TEST_P(KeptTensor, recalling_other_objects_throws) {
  const Session session = Session::open("training");
  const Memory memory(session);
  std::shared_ptr<Membership> member = session;
  member->keep("notes", {}, "", {});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(recall(memory, "notes")); },
               {"'notes' is not a tensor"});
  expect_error(Errc::invalid_argument, [&] { keep("nothing", Tensor()); });
  expect_error(Errc::invalid_argument, [&] { keep("", zeros(memory, DType::int8, {1}, place())); });
}

// They lie in three blocks: two are views of one.
TEST_P(KeptTensor, tensors_kept_together_come_back_together) {
  Session session = Session::open("training");
  const Memory memory(session);
  const Tensor weights = make_weights(memory, place());
  const std::vector<Tensor> mine = {weights, weights.transpose(0, 1), zeros(memory, DType::int32, {1000}, place()),
                                    full(memory, DType::uint8, {5}, 7)};
  keep_all("state", mine);
  mine.at(2).fill(3);
  mine.at(2).synchronize();
  const auto recalled = recall_all(memory, "state");
  ASSERT_EQ(recalled.size(), mine.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_EQ(recalled.at(i).layout(), mine.at(i).layout());
    EXPECT_EQ(recalled.at(i).place(), mine.at(i).place());
    EXPECT_TRUE(equal(recalled.at(i), mine.at(i))) << i;
  }
  ASSERT_EQ(session.kept().size(), 1U);
  EXPECT_EQ(session.kept()[0].leases, 4U) << "and one for the index";
  EXPECT_TRUE(session.kept()[0].description.starts_with("4 tensors, first float32[50000, 100] at "));
  session.drop("state");
  expect_error(Errc::not_found, [&] { static_cast<void>(recall_all(memory, "state")); });
}

TEST_P(KeptTensor, one_tensor_is_kept_alike_by_both) {
  const Session session = Session::open("training");
  const Memory memory(session);
  const Tensor mine = full(memory, DType::int32, {10}, 4, place());
  keep_all("one", {&mine, 1});
  EXPECT_EQ(sum(recall(memory, "one")), 40.0);
  keep("one", mine);
  const auto recalled = recall_all(memory, "one");
  ASSERT_EQ(recalled.size(), 1U);
  EXPECT_EQ(sum(recalled.front()), 40.0);
}

TEST_P(KeptTensor, what_cannot_be_kept_or_recalled_together_throws) {
  const Session session = Session::open("training");
  const Memory memory(session);
  std::shared_ptr<Membership> member = session;
  expect_error(Errc::invalid_argument, [&] { keep_all("nothing", {}); }, {"no tensor"});
  expect_error(Errc::invalid_argument, [&] { keep_all("nothing", std::vector<Tensor>(2)); }, {"no memory"});
  member->keep("notes", {}, "", {});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(recall_all(memory, "notes")); },
               {"'notes' is not made of tensors"});
  keep_all("two", std::vector<Tensor>(2, zeros(memory, DType::int8, {1}, place())));
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(recall(memory, "two")); },
               {"'two' is not a tensor", "recall_all"});
  std::vector<Tensor> many;
  for (std::size_t i = 0; i < kMostKeptLeases; ++i) many.push_back(zeros(memory, DType::int8, {1}));
  expect_error(Errc::limit_reached, [&] { keep_all("many", many); }, {"1024 blocks", "'many'", "several names"});
  many.pop_back();
  keep_all("many", many);
  EXPECT_EQ(recall_all(memory, "many").size(), kMostKeptLeases - 1);
}

DROVER_INSTANTIATE_AT_PLACES(KeptTensor);

class KeptOnDevice : public KeptTensor {};

TEST_P(KeptOnDevice, keep_waits_for_work_in_flight) {
  const Session session = Session::open("training");
  const Memory memory(session);
  Gate gate(place());
  const Tensor mine = zeros(memory, DType::uint8, {1000}, place());
  gate.fill(mine, 2);
  std::jthread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
  });
  keep("state", mine);
  EXPECT_TRUE(mine.is_ready());
  EXPECT_EQ(sum(recall(memory, "state")), 2000.0);
}

DROVER_INSTANTIATE_ON_DEVICES(KeptOnDevice);

}  // namespace drover::test
