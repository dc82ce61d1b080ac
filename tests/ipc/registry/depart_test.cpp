// What the keeper recovers after a death: everything that the dead ever opened, and nothing else.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/ipc/queue.hpp"
#include "ipc/ledger/open_ledger.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "ipc/registry/departure.hpp"
#include "ipc/registry/object_table.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using test::TestSession;

constexpr QueueOptions kSmall{.capacity = 4, .bytes = 1 << 16, .in_flight = 1};

// How often the queue was recovered.
std::uint64_t recoveries_of(TestSession& session, const Queue& queue) {
  std::byte* const data = session.table().slab(queue.handle().slab).memory.data() + queue.handle().offset;
  return reinterpret_cast<RingHead*>(layout_of(data))->returned_epoch.load();
}

TEST(Depart, only_what_the_dead_opened_is_recovered) {
  TestSession session;
  const auto self = session.join();
  const auto dead = session.join();
  Queue open(self, kSmall);
  Queue closed(self, kSmall);
  Queue unknown(self, kSmall);
  // As a killed process leaves it. Static and volatile, so that the leak check finds it.
  static const Queue* volatile never_closed = new Queue(dead, open.handle());
  {
    const Queue briefly(dead, closed.handle());
  }
  session.recover(dead->self());
  EXPECT_EQ(recoveries_of(session, open), 1U);
  EXPECT_EQ(recoveries_of(session, closed), 1U) << "it may have left claims there";
  EXPECT_EQ(recoveries_of(session, unknown), 0U);
  static_cast<void>(never_closed);
}

TEST(Depart, lock_that_the_dead_held_and_had_closed_is_freed) {
  TestSession session;
  const auto self = session.join();
  const auto dead = session.join();
  Lock lock(self);
  {
    Lock theirs(dead, lock.handle());
    ASSERT_EQ(theirs.acquire(), LockResult::acquired);
  }
  ASSERT_TRUE(lock.is_held());
  session.recover(dead->self());
  EXPECT_EQ(lock.try_acquire(), LockResult::acquired_after_death);
}

TEST(Depart, object_of_a_number_s_next_owner_is_not_confused_with_that_of_the_last) {
  ObjectTable table;
  const ObjectHandle first = table.create({.kind = ObjectKind::event}, 1, 0);
  table.open(first, 2);
  table.depart(2, 100);
  const ObjectHandle second = table.create({.kind = ObjectKind::event}, 2, 0);
  table.depart(2, 101);
  test::expect_error(Errc::not_found, [&] { table.open(second, 1); });
  EXPECT_EQ(header_of(table.slab(first.slab).memory.data() + first.offset).last_lost, 100U);
  EXPECT_EQ(table.size(), 1U);
}

TEST(Departure, recovers_one_object_in_each_step_and_ends_openings_last) {
  ObjectTable table;
  std::vector<ObjectHandle> handles;
  for (int i = 0; i < 20; ++i) handles.push_back(table.create({.kind = ObjectKind::event}, 1, 0));
  for (const auto& handle : handles) table.open(handle, 2);
  const auto openers = [&](const ObjectHandle& handle) {
    return header_of(table.slab(handle.slab).memory.data() + handle.offset).openers.load();
  };
  Departure departure(table, 2, 77);
  for (std::size_t i = 0; i < handles.size(); ++i) {
    EXPECT_EQ(openers(handles.front()), 2U);
    EXPECT_TRUE(departure.work());
  }
  for (const auto& handle : handles) {
    EXPECT_EQ(openers(handle), 2U);
    EXPECT_TRUE(departure.work());
    EXPECT_EQ(openers(handle), 1U);
  }
  EXPECT_FALSE(departure.work());
}

TEST(Departure, others_may_free_and_make_objects_between_its_steps) {
  ObjectTable table;
  const ObjectSpec queue{.kind = ObjectKind::queue, .parameters = {4, 1 << 12, 1}};
  std::vector<ObjectHandle> handles;
  for (int i = 0; i < 12; ++i) handles.push_back(table.create(queue, 1, 0));
  for (const auto& handle : handles) table.open(handle, 2);
  Departure departure(table, 2, 77);
  std::size_t freed = 0;
  std::size_t made = 0;
  for (bool has_more = true; has_more; has_more = departure.work()) {
    if (freed < handles.size()) table.close(handles[freed++], 1);
    if (made++ < 5) table.create(queue, 3, 0);
  }
  EXPECT_EQ(table.size(), std::min<std::size_t>(made, 5));
  table.depart(3, 0);
  EXPECT_EQ(table.size(), 0U);
}

TEST(Departure, slab_that_only_messages_name_lives_until_the_last_of_their_queues_is_gone) {
  TestSession session;
  const auto self = session.join();
  const auto dead = session.join();
  auto* const kept = new Queue(self, kSmall);
  Queue other(self, kSmall);
  {
    Queue theirs(dead, kept->handle());
    const auto slab = OpenLedger::make(dead, 1 << 16, make_memory_file("slab of a test", 1 << 16));
    std::vector<Lease> leases;
    leases.push_back(slab->allocate(100));
    const std::string text = "lease";
    ASSERT_EQ(theirs.put(std::as_bytes(std::span(text)), leases), PutResult::put);
  }
  session.recover(dead->self());
  EXPECT_EQ(session.file_count(), 1U) << "the message names it";
  {
    const Queue late(self, kSmall);
  }
  EXPECT_EQ(session.file_count(), 1U) << "another queue has gone";
  delete kept;
  EXPECT_EQ(session.file_count(), 0U);
}

}  // namespace
}  // namespace drover::ipc
