// Objects that were moved from, or never had anything: their use is an error, never a crash.
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/drover.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"

namespace drover {
namespace {

using test::expect_error;

template <class Type>
struct Uses {
  std::vector<std::function<void(Type&)>> all;

  // Each fails on an object that was moved from.
  void expect_errors(Type object) const {
    const Type taken = std::move(object);
    for (std::size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(i);
      // NOLINTNEXTLINE(bugprone-use-after-move): what is tested
      expect_error(Errc::invalid_argument, [&] { all[i](object); });
    }
  }
};

class MovedFrom : public ::testing::Test {
 protected:
  Session session_ = Session::start();
};

TEST_F(MovedFrom, lock_throws) {
  Uses<Lock>{{[](Lock& lock) { static_cast<void>(lock.acquire()); },
              [](Lock& lock) { static_cast<void>(lock.try_acquire()); }, [](Lock& lock) { lock.release(); },
              [](Lock& lock) { lock.force_release(); }, [](Lock& lock) { static_cast<void>(lock.is_held()); },
              [](Lock& lock) { static_cast<void>(lock.is_own()); },
              [](Lock& lock) { static_cast<void>(lock.handle()); }}}
      .expect_errors(Lock(session_));
  Uses<RLock>{{[](RLock& lock) { static_cast<void>(lock.acquire()); },
               [](RLock& lock) { static_cast<void>(lock.try_acquire()); }, [](RLock& lock) { lock.release(); },
               [](RLock& lock) { static_cast<void>(lock.is_held()); },
               [](RLock& lock) { static_cast<void>(lock.depth()); },
               [](RLock& lock) { static_cast<void>(lock.handle()); }}}
      .expect_errors(RLock(session_));
}

TEST_F(MovedFrom, lock_has_nothing_for_a_destructor_to_release) {
  Lock lock(session_);
  RLock rlock(session_);
  const Lock taken = std::move(lock);
  const RLock taken_too = std::move(rlock);
  EXPECT_FALSE(lock.release_if_own());   // NOLINT(bugprone-use-after-move): what is tested
  EXPECT_FALSE(rlock.release_if_own());  // NOLINT(bugprone-use-after-move): what is tested
}

TEST_F(MovedFrom, hold_of_a_lock_throws) {
  Lock lock(session_);
  Uses<HeldLock<Lock>>{{[](HeldLock<Lock>& held) { held.release(); }}}.expect_errors(HeldLock<Lock>(lock));
}

TEST_F(MovedFrom, semaphore_throws) {
  Uses<Semaphore>{{[](Semaphore& semaphore) { static_cast<void>(semaphore.acquire()); },
                   [](Semaphore& semaphore) { static_cast<void>(semaphore.try_acquire()); },
                   [](Semaphore& semaphore) { semaphore.release(); },
                   [](Semaphore& semaphore) { static_cast<void>(semaphore.value()); },
                   [](Semaphore& semaphore) { static_cast<void>(semaphore.is_bounded()); },
                   [](Semaphore& semaphore) { static_cast<void>(semaphore.handle()); }}}
      .expect_errors(Semaphore(session_, 1));
}

TEST_F(MovedFrom, condition_throws) {
  Uses<Condition>{{[](Condition& condition) { static_cast<void>(condition.acquire()); },
                   [](Condition& condition) { static_cast<void>(condition.try_acquire()); },
                   [](Condition& condition) { condition.release(); },
                   [](Condition& condition) { static_cast<void>(condition.wait()); },
                   [](Condition& condition) { static_cast<void>(condition.notify_all()); },
                   [](Condition& condition) { static_cast<void>(condition.is_own()); },
                   [](Condition& condition) { static_cast<void>(condition.waiting()); },
                   [](Condition& condition) { static_cast<void>(condition.lock_handle()); },
                   [](Condition& condition) { static_cast<void>(condition.handle()); }}}
      .expect_errors(Condition(session_));
}

TEST_F(MovedFrom, event_throws) {
  Uses<Event>{{[](Event& event) { event.set(); }, [](Event& event) { event.clear(); },
               [](Event& event) { static_cast<void>(event.is_set()); },
               [](Event& event) { static_cast<void>(event.wait()); },
               [](Event& event) { static_cast<void>(wait({event}, Deadline::after({}))); },
               [](Event& event) { static_cast<void>(event.handle()); }}}
      .expect_errors(Event(session_));
}

TEST_F(MovedFrom, barrier_throws) {
  Uses<Barrier>{{[](Barrier& barrier) { static_cast<void>(barrier.wait()); },
                 [](Barrier& barrier) { barrier.reset(); }, [](Barrier& barrier) { barrier.abort(); },
                 [](Barrier& barrier) { static_cast<void>(barrier.is_broken()); },
                 [](Barrier& barrier) { static_cast<void>(barrier.parties()); },
                 [](Barrier& barrier) { static_cast<void>(barrier.waiting()); },
                 [](Barrier& barrier) { static_cast<void>(barrier.last_lost()); },
                 [](Barrier& barrier) { static_cast<void>(barrier.handle()); }}}
      .expect_errors(Barrier(session_, 2));
}

TEST_F(MovedFrom, value_and_array_throw) {
  Uses<Value<int>>{{[](Value<int>& value) { static_cast<void>(value.load()); },
                    [](Value<int>& value) { value.store(1); },
                    [](Value<int>& value) { static_cast<void>(value.update([](int old) { return old + 1; })); },
                    [](Value<int>& value) { static_cast<void>(value.handle()); }}}
      .expect_errors(Value<int>(session_));
  Uses<SharedArray<int>>{{[](SharedArray<int>& array) { static_cast<void>(array.span()); },
                          [](SharedArray<int>& array) { array[0] = 1; },
                          [](SharedArray<int>& array) { static_cast<void>(array.size()); },
                          [](SharedArray<int>& array) { static_cast<void>(array.lock().acquire()); },
                          [](SharedArray<int>& array) { static_cast<void>(array.handle()); }}}
      .expect_errors(SharedArray<int>(session_, 4));
}

TEST_F(MovedFrom, queue_and_pipe_throw) {
  Message message;
  Delivery delivery;
  Uses<Queue>{{[](Queue& queue) { static_cast<void>(queue.put("text")); },
               [&](Queue& queue) { static_cast<void>(queue.get(message)); },
               [&](Queue& queue) { static_cast<void>(queue.receive(delivery)); },
               [](Queue& queue) { static_cast<void>(queue.loan(1)); }, [](Queue& queue) { queue.close(); },
               [](Queue& queue) { static_cast<void>(queue.fd()); },
               [](Queue& queue) { static_cast<void>(queue.size()); },
               [](Queue& queue) { static_cast<void>(wait({queue}, Deadline::after({}))); },
               [](Queue& queue) { static_cast<void>(queue.handle()); }}}
      .expect_errors(Queue(session_));
  auto [one, other] = Pipe::make(session_);
  Uses<Pipe>{{[](Pipe& pipe) { static_cast<void>(pipe.send("text")); },
              [&](Pipe& pipe) { static_cast<void>(pipe.receive(message)); },
              [](Pipe& pipe) { static_cast<void>(pipe.handle()); }}}
      .expect_errors(std::move(one));
}

TEST_F(MovedFrom, loan_and_delivery_throw) {
  Queue queue(session_);
  Uses<Loan>{{[&](Loan& loan) { static_cast<void>(queue.publish(loan)); }}}.expect_errors(queue.loan(8));
  ASSERT_EQ(queue.put("text"), PutResult::put);
  Delivery delivery;
  ASSERT_EQ(queue.receive(delivery), GetResult::got);
  Uses<Delivery>{{[](Delivery& empty) { empty.done(); }, [](Delivery& empty) { empty.give_back(); }}}.expect_errors(
      std::move(delivery));
}

TEST_F(MovedFrom, memory_throws) {
  Uses<Memory>{{[](Memory& memory) { static_cast<void>(memory.allocate(Place::cpu(), 1)); },
                [](Memory& memory) { static_cast<void>(empty(memory, DType::float32, {4})); },
                [](Memory& memory) { static_cast<void>(memory.claimed(Place::cpu())); },
                [](Memory& memory) { static_cast<void>(memory.usage()); }, [](Memory& memory) { memory.trim(); },
                [&](Memory& memory) { static_cast<void>(memory.is_of(session_)); }}}
      .expect_errors(Memory(session_));
  Memory memory(session_);
  Uses<Block>{{[](Block& block) { static_cast<void>(block.place()); },
               [](Block& block) { static_cast<void>(block.bytes()); },
               [](Block& block) { static_cast<void>(block.share()); }}}
      .expect_errors(memory.allocate(Place::cpu(), 100));
  Uses<Tensor>{{[](Tensor& tensor) { static_cast<void>(tensor.place()); },
                [](Tensor& tensor) { static_cast<void>(tensor.memory()); },
                [](Tensor& tensor) { static_cast<void>(tensor.copy()); }, [](Tensor& tensor) { tensor.fill(1); },
                [](Tensor& tensor) { tensor.synchronize(); },
                [](Tensor& tensor) { static_cast<void>(tensor.to(Place::cpu())); }}}
      .expect_errors(zeros(memory, DType::float32, {4}));
}

TEST(EmptyFuture, throws) {
  const Uses<Future<int>> uses{
      {[](Future<int>& future) { static_cast<void>(future.is_done()); },
       [](Future<int>& future) { static_cast<void>(future.wait(Deadline::after({}))); },
       [](Future<int>& future) { future.get(); }, [](Future<int>& future) { std::move(future).get(); },
       [](Future<int>& future) { static_cast<void>(future.error()); }, [](Future<int>& future) { future.cancel(); },
       [](Future<int>& future) { static_cast<void>(future.then([](int x) { return x; })); },
       [](Future<int>& future) { future.on_done([](const Future<int>&) {}); },
       [](Future<int>& future) { static_cast<void>(when_all(std::vector{future}).get()); },
       [](Future<int>& future) { static_cast<void>(as_completed(std::vector{future})); }}};
  uses.expect_errors({});
  uses.expect_errors(Future<int>(std::make_shared<detail::FutureValue<int>>()));
}

TEST(EmptyFuture, completions_throw) {
  const auto state = std::make_shared<detail::FutureValue<int>>();
  Future<int> future(state);
  Uses<Completions<int>>{{[](Completions<int>& completions) { static_cast<void>(completions.next()); },
                          [&](Completions<int>& completions) { completions.add(future); }}}
      .expect_errors(as_completed(std::vector{future}));
  EXPECT_TRUE(state->set(1));  // its callbacks refer to it until it is done
}

TEST(EmptyCall, throws) {
  expect_error(Errc::invalid_argument, [] { static_cast<void>(Call().task()); });
}

}  // namespace
}  // namespace drover
