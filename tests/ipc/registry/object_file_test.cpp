// Objects with a file in the keeper's table.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/event.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/registry/object_table.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/leftovers.hpp"
#include "support/peer_group.hpp"
#include "support/slab_spec.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using test::slab_spec;
using test::TestSession;

constexpr ObjectSpec kEvent{.kind = ObjectKind::event, .parameters = {}};

// Whether this process has a descriptor of the memory file with this label.
bool is_held(const std::string& label) {
  for (const auto& [number, target] : test::open_descriptors()) {
    if (target.find("memfd:" + label) != std::string::npos) return true;
  }
  return false;
}

// A file that only the table has open.
Fd labelled_file(const std::string& label) { return make_memory_file(label, 4096); }

TEST(ObjectFile, is_held_until_the_last_opening_ends) {
  ObjectTable table;
  const ObjectHandle handle = table.create(slab_spec(4096), 1, 0, labelled_file("held"));
  EXPECT_EQ(table.file_count(), 1U);
  EXPECT_EQ(table.file_bytes(), 4096U);
  EXPECT_TRUE(table.file_of(handle, 1).is_open());
  table.open(handle, 2);
  table.depart(1, 1234);
  EXPECT_TRUE(table.file_of(handle, 2).is_open()) << "its maker is dead, but another participant has it open";
  EXPECT_TRUE(is_held("held"));
  table.close(handle, 2);
  EXPECT_FALSE(is_held("held"));
  EXPECT_EQ(table.file_count(), 0U);
  EXPECT_EQ(table.file_bytes(), 0U);
  test::expect_error(Errc::not_found, [&] { std::ignore = table.file_of(handle, 2); }, {handle.to_string()});
}

TEST(ObjectFile, is_freed_at_the_death_of_the_last_opener) {
  ObjectTable table;
  const ObjectHandle keep = table.create(kEvent, 2, 0);
  table.create(slab_spec(4096), 1, 0, labelled_file("lonely"));
  table.depart(1, 1234);
  EXPECT_FALSE(is_held("lonely"));
  EXPECT_EQ(table.size(), 1U);
  table.close(keep, 2);
}

TEST(ObjectFile, is_given_only_to_participants_with_the_object_open) {
  ObjectTable table;
  const ObjectHandle slab = table.create(slab_spec(4096), 1, 0, labelled_file("mine"));
  const ObjectHandle event = table.create(kEvent, 1, 0);
  test::expect_error(Errc::invalid_argument, [&] { std::ignore = table.file_of(slab, 2); },
                     {"participant 2", "has not opened", "open the object first"});
  test::expect_error(Errc::not_found, [&] { std::ignore = table.file_of(event, 1); }, {"has no file"});
  ObjectHandle other = slab;
  other.offset += 64;
  test::expect_error(Errc::not_found, [&] { std::ignore = table.file_of(other, 1); }, {"does not exist"});
}

TEST(ObjectFile, kind_and_file_must_match) {
  ObjectTable table;
  test::expect_error(Errc::invalid_argument, [&] { table.create(slab_spec(4096), 1, 0); },
                     {"kind slab", "without a file"});
  test::expect_error(Errc::invalid_argument, [&] { table.create(kEvent, 1, 0, labelled_file("refused")); },
                     {"kind event", "with a file"});
  EXPECT_FALSE(is_held("refused"));
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.bytes(), 0U);
}

TEST(ObjectFile, corrupt_ledger_does_not_keep_its_slab_alive) {
  ObjectTable table;
  const ObjectHandle slab = table.create(slab_spec(4096), 1, 0, labelled_file("spoilt"));
  const auto& memory = table.slab(slab.slab).memory;
  std::ranges::fill(memory.bytes().subspan(slab.offset + sizeof(ObjectHeader), 4096), std::byte{0xff});
  const test::CapturedLog log;
  table.depart(1, 1234);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_FALSE(is_held("spoilt"));
}

TEST(ObjectFile, participant_gets_descriptors_of_its_own) {
  TestSession session;
  const auto maker = session.join();
  const auto other = session.join();
  Fd file = labelled_file("own");
  Mapping::shared(file, 4096).bytes()[3] = std::byte{33};
  const OpenObject made = maker->create(slab_spec(4096), file);
  file.reset();
  test::expect_error(Errc::invalid_argument, [&] { std::ignore = other->file_of(made.handle); });
  std::ignore = other->open(made.handle);
  maker->close(made.handle);
  session.recover(maker->self());
  EXPECT_EQ(Mapping::shared(other->file_of(made.handle), 4096).bytes()[3], std::byte{33});
  other->close(made.handle);
  EXPECT_FALSE(is_held("own"));
}

DROVER_PEER_BODY(reads_the_file_it_was_given) {
  const auto invited = test::accept_invitation(peer.channel());
  Event done(invited.membership, invited.handles.at(1));
  const Fd file = invited.membership->file_of(invited.handles.at(0));
  EXPECT_EQ(Mapping::shared(file, 4096).bytes()[3], std::byte{44});
  test::expect_error(Errc::not_found, [&] { std::ignore = invited.membership->file_of(done.handle()); });
  test::expect_error(Errc::unsupported, [&] { std::ignore = invited.membership->create(slab_spec(4096), file); },
                     {"slab"});
  done.set();
}

TEST(ObjectFile, is_given_to_invited_peers_too) {
  TestSession session;
  const auto self = session.join();
  const Fd file = labelled_file("given");
  Mapping::shared(file, 4096).bytes()[3] = std::byte{44};
  const OpenObject made = self->create(slab_spec(4096), file);
  Event done(self);
  test::PeerGroup group("reads_the_file_it_was_given", {.mode = test::PeerMode::processes, .size = 1});
  group.start();
  session.invite(group.channel(0), std::array{made.handle, done.handle()});
  group.expect_success();
  EXPECT_TRUE(done.is_set());
  self->close(made.handle);
}

}  // namespace
}  // namespace drover::ipc
