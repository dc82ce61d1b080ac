#include "process/template/template_wire.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "process/template/template_facts.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/scoped_environment.hpp"

namespace drover::process {
namespace {

TemplateOrder example() {
  TemplateOrder order;
  order.start = 1;
  order.arguments = {"program", "-c", "", std::string(70000, 'x')};
  order.own_arguments = 2;
  order.variables = {"A=1", "B=\n", "C"};
  order.targets = {0, 1, 2, 77};
  order.creation_mask = 022;
  order.plan.group = ChildGroup::own_session;
  order.plan.parent_death_signal = 9;
  order.plan.has_niceness = true;
  order.plan.niceness = -5;
  order.plan.cpus = {~0UL, 5};
  order.plan.folder = "/tmp";
  order.plan.limits = {{RLIMIT_CORE, {.soft = 0, .hard = ~0UL}}};
  return order;
}

TEST(TemplateWire, order_comes_back_as_it_was) {
  const auto sent = example();
  const auto got = order_from_bytes(to_bytes(sent));
  EXPECT_EQ(got.start, sent.start);
  EXPECT_EQ(got.arguments, sent.arguments);
  EXPECT_EQ(got.own_arguments, sent.own_arguments);
  EXPECT_EQ(got.variables, sent.variables);
  EXPECT_EQ(got.targets, sent.targets);
  EXPECT_EQ(got.creation_mask, sent.creation_mask);
  EXPECT_EQ(got.plan.group, sent.plan.group);
  EXPECT_EQ(got.plan.parent_death_signal, sent.plan.parent_death_signal);
  EXPECT_TRUE(got.plan.has_niceness);
  EXPECT_EQ(got.plan.niceness, -5);
  EXPECT_EQ(got.plan.cpus, sent.plan.cpus);
  EXPECT_EQ(got.plan.folder, sent.plan.folder);
  ASSERT_EQ(got.plan.limits.size(), 1U);
  EXPECT_EQ(got.plan.limits[0].second.hard, ~0UL);
}

TEST(TemplateWire, order_that_is_cut_or_too_long_is_corrupt) {
  auto small = example();
  small.arguments.pop_back();
  const auto bytes = to_bytes(small);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    test::expect_error(Errc::corrupt, [&] { static_cast<void>(order_from_bytes(bytes.substr(0, length))); });
  }
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(order_from_bytes(bytes + "x")); });
  auto other = bytes;
  other[0] = 2;  // another version
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(order_from_bytes(other)); });
}

TEST(TemplateWire, message_carries_descriptors) {
  const auto [ours, theirs] = message_sockets();
  const Fd file = file_with("some text");
  ASSERT_TRUE(send_message(ours.get(), "hello", {file.get(), ours.get()}));
  const auto got = receive_message(theirs.get());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->bytes, "hello");
  ASSERT_EQ(got->descriptors.size(), 2U);
  EXPECT_EQ(contents_of(got->descriptors[0]), "some text");
  EXPECT_EQ(::fcntl(got->descriptors[0].get(), F_GETFD), FD_CLOEXEC);
}

TEST(TemplateWire, no_message_and_end_of_file_are_distinguished) {
  auto [ours, theirs] = message_sockets();
  EXPECT_FALSE(receive_message(theirs.get()));
  EXPECT_EQ(errno, EAGAIN);
  ours.reset();
  EXPECT_FALSE(receive_message(theirs.get()));
  EXPECT_EQ(errno, 0);
  EXPECT_FALSE(send_message(theirs.get(), "hello", {})) << "nobody is there";
}

TEST(TemplateWire, more_descriptors_than_a_message_takes_are_not_sent) {
  const auto [ours, theirs] = message_sockets();
  EXPECT_FALSE(send_message(ours.get(), "hello", std::vector<int>(kMostDescriptors + 1, ours.get())));
  const test::FaultSeam fail("sendmsg", ETOOMANYREFS);
  EXPECT_FALSE(send_message(ours.get(), "hello", {}));
}

TEST(TemplateFacts, variables_that_libraries_read_when_they_load_count) {
  EXPECT_TRUE(is_read_at_load("PYTHONPATH=/x"));
  EXPECT_TRUE(is_read_at_load("LD_PRELOAD=/x"));
  EXPECT_TRUE(is_read_at_load("OMP_PROC_BIND=true"));
  EXPECT_TRUE(is_read_at_load("TZ=UTC"));
  EXPECT_FALSE(is_read_at_load("OMP_NUM_THREADS=4"));
  EXPECT_FALSE(is_read_at_load("CUDA_VISIBLE_DEVICES=0"));
  EXPECT_FALSE(is_read_at_load("TZDIR=/x"));
}

TEST(TemplateFacts, limits_are_inherited_except_those_of_the_plan) {
  SpawnPlan plan;
  plan.limits = {{RLIMIT_NOFILE, {.soft = 10, .hard = 20}}};
  std::size_t found = 0;
  for (const auto& [resource, limit] : limits_of_child(plan)) {
    if (resource == RLIMIT_NOFILE) {
      EXPECT_EQ(limit.hard, 20U);
    }
    if (resource != RLIMIT_CORE) continue;
    rlimit ours{};
    ASSERT_EQ(::getrlimit(RLIMIT_CORE, &ours), 0);
    EXPECT_EQ(limit.soft, ours.rlim_cur);
    ++found;
  }
  EXPECT_EQ(found, 1U);
}

}  // namespace
}  // namespace drover::process
