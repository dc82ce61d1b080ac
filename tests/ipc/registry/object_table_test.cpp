// The keeper's side of shared objects, and the numbers of participants.
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/ipc/event.hpp"
#include "drover/ipc/queue.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/registry/object_table.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using test::TestSession;

constexpr ObjectSpec kEventObject{.kind = ObjectKind::event, .parameters = {}};
constexpr ObjectSpec kLargeQueue{.kind = ObjectKind::queue, .parameters = {16, 1 << 20, 0}};

TEST(ObjectTable, small_objects_share_a_memory_file_and_large_ones_have_their_own) {
  ObjectTable table;
  std::vector<ObjectHandle> handles;
  for (int i = 0; i < 100; ++i) handles.push_back(table.create(kEventObject, 1, 0));
  EXPECT_EQ(table.slab_count(), 1U);
  const ObjectHandle large = table.create(kLargeQueue, 1, 0);
  EXPECT_EQ(table.slab_count(), 2U);
  EXPECT_NE(large.slab, handles.front().slab);
  for (const auto& handle : handles) table.close(handle, 1);
  table.close(large, 1);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.slab_count(), 0U) << "memory files go with their last object";
  EXPECT_EQ(table.bytes(), 0U);
}

TEST(ObjectTable, freed_ranges_are_reused_under_another_generation) {
  ObjectTable table;
  const ObjectHandle keep = table.create(kEventObject, 1, 0);
  const ObjectHandle first = table.create(kEventObject, 1, 0);
  table.close(first, 1);
  const ObjectHandle second = table.create(kEventObject, 1, 0);
  EXPECT_EQ(second.offset, first.offset);
  EXPECT_NE(second.generation, first.generation);
  test::expect_error(Errc::not_found, [&] { table.open(first, 2); });
  table.open(second, 2);
  EXPECT_EQ(table.size(), 2U);
  EXPECT_NE(keep.offset, second.offset);
}

TEST(ObjectTable, an_object_lives_until_its_last_opener_is_gone) {
  ObjectTable table;
  const ObjectHandle handle = table.create(kEventObject, 1, 0);
  table.open(handle, 2);
  table.open(handle, 3);
  table.close(handle, 1);
  table.depart(2, 1234);
  ASSERT_EQ(table.size(), 1U);
  const ObjectHeader& header = header_of(table.slab(handle.slab).memory.data() + handle.offset);
  EXPECT_EQ(header.openers, 1U);
  EXPECT_EQ(header.ever_opened, 3U);
  EXPECT_EQ(header.last_lost, 1234U);
  table.depart(3, 1235);
  EXPECT_EQ(table.size(), 0U);
}

TEST(ObjectTable, closing_an_object_that_is_not_open_is_ignored) {
  ObjectTable table;
  const ObjectHandle handle = table.create(kEventObject, 1, 0);
  table.close(handle, 2);
  ObjectHandle other = handle;
  other.generation += 5;
  table.close(other, 1);
  EXPECT_EQ(table.size(), 1U);
}

TEST(ObjectTable, a_kind_that_does_not_exist_is_refused) {
  ObjectTable table;
  test::expect_error(Errc::corrupt,
                     [&] { table.create({.kind = static_cast<ObjectKind>(99), .parameters = {}}, 1, 0); });
  test::expect_error(Errc::not_found, [&] { std::ignore = table.slab(77); });
  EXPECT_EQ(table.size(), 0U);
}

TEST(ObjectTable, failure_of_recovery_in_corrupt_memory_is_logged_and_others_are_recovered) {
  TestSession session;
  const auto self = session.join();
  Queue queue(self, {.capacity = 4, .bytes = 1 << 16, .in_flight = 1});
  Event event(self);
  const auto dead = session.join();
  static_cast<void>(dead->open(queue.handle()));
  const ObjectSlab& slab = session.table().slab(queue.handle().slab);
  for (std::size_t i = sizeof(ObjectHeader); i < slab.memory.size(); i += 97) {
    slab.memory.data()[i] = static_cast<std::byte>(i * 31);
  }
  session.recover(dead->self());
  event.set();
  EXPECT_TRUE(event.is_set());
}

TEST(ObjectTable, a_queue_takes_its_overflow_objects_with_it) {
  TestSession session;
  const auto self = session.join();
  {
    Queue queue(self, {.capacity = 4, .bytes = 1 << 16, .in_flight = 1});
    ASSERT_EQ(queue.put(std::string(1 << 20, 'x')), PutResult::put);
    EXPECT_EQ(session.table().size(), 2U);
  }
  EXPECT_EQ(session.table().size(), 0U);
}

// Rows of the crash table of Queue that need objects of the dead.
TEST(ObjectTable, an_overflow_object_outlives_its_maker_while_a_record_refers_to_it) {
  TestSession session;
  const auto self = session.join();
  Queue queue(self, {.capacity = 4, .bytes = 1 << 16, .in_flight = 1});
  const auto maker = session.join();
  {
    Queue theirs(maker, queue.handle());
    ASSERT_EQ(theirs.put(std::string(1 << 20, 'x')), PutResult::put);
  }
  session.recover(maker->self());
  Message message;
  ASSERT_EQ(queue.get(message), GetResult::got);
  EXPECT_EQ(message.bytes().size(), std::size_t{1} << 20U);
  message = {};
  EXPECT_EQ(session.table().size(), 1U);
}

TEST(ObjectTable, an_unreferenced_overflow_object_goes_with_its_maker_or_reader) {
  TestSession session;
  const auto self = session.join();
  Queue queue(self, {.capacity = 4, .bytes = 1 << 16, .in_flight = 1});
  const ObjectSpec overflow{.kind = ObjectKind::overflow, .parameters = {1 << 20, queue.handle().generation}};
  session.table().create(overflow, 7, 0);  // killed before it published
  session.recover(7);
  EXPECT_EQ(session.table().size(), 1U);
  ASSERT_EQ(queue.put(std::string(1 << 20, 'x')), PutResult::put);
  const auto reader = session.join();
  auto* const never_freed = new Message;  // as a killed process leaves it
  Queue theirs(reader, queue.handle());
  ASSERT_EQ(theirs.get(*never_freed), GetResult::got);
  session.recover(reader->self());
  EXPECT_EQ(session.table().size(), 1U);
  delete never_freed;
}

TEST(Membership, a_forked_child_is_not_a_participant) {
  TestSession session;
  const auto self = session.join();
  Queue queue(self);
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      static_cast<void>(queue.put("from a fork"));
    } catch (const Error& error) {
      status = error.code() == Errc::forked ? 0 : 2;
    }
    ::_exit(status);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(queue.put("from the parent"), PutResult::put);
}

TEST(ObjectHandle, text_that_is_not_a_handle_is_refused) {
  for (const char* text : {"", "queue", "queue:", "queue:1:2", "queue:1:2:3:4", "queue:1:2:x", "queue:-1:2:3",
                           "sofa:1:2:3", "queue:1:2:99999999999999999999999", " queue:1:2:3"}) {
    test::expect_error(Errc::invalid_argument, [&] { std::ignore = ObjectHandle::parse(text); });
  }
}

}  // namespace
}  // namespace drover::ipc
