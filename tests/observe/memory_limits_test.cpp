// Memory limits from cgroups of both versions, on made-up trees.
#include "observe/memory_limits.hpp"

#include <gtest/gtest.h>

#include "drover/base/bytes.hpp"
#include "observe/sample_tree.hpp"

namespace drover::observe {
namespace {

using observe::memory_limits;
using test::SampleTree;

constexpr auto kMountVersion2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr auto kMountVersion1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

void put_version2(SampleTree& tree, const std::string& cgroup, const std::string& limit, const std::string& used) {
  tree.put("sys/fs/cgroup" + cgroup + "/memory.max", limit + "\n");
  tree.put("sys/fs/cgroup" + cgroup + "/memory.current", used + "\n");
}

void put_version1(SampleTree& tree, const std::string& cgroup, const std::string& limit, const std::string& used) {
  tree.put("sys/fs/cgroup/memory" + cgroup + "/memory.limit_in_bytes", limit + "\n");
  tree.put("sys/fs/cgroup/memory" + cgroup + "/memory.usage_in_bytes", used + "\n");
}

TEST(MemoryLimits, own_cgroup_comes_before_its_ancestors) {
  SampleTree tree;
  tree.put("proc/self/mountinfo", kMountVersion2);
  tree.put("proc/self/cgroup", "0::/user.slice/job.scope\n");
  put_version2(tree, "/user.slice/job.scope", "4294967296", "1048576");
  put_version2(tree, "/user.slice", "8589934592", "2097152");
  const auto limits = memory_limits(tree.root());
  ASSERT_EQ(limits.size(), 2U);
  EXPECT_EQ(limits[0].cgroup, "/user.slice/job.scope");
  EXPECT_EQ(limits[0].limit, 4 * kGiB);
  EXPECT_EQ(limits[0].used, kMiB);
  EXPECT_EQ(limits[1].cgroup, "/user.slice");
  EXPECT_EQ(limits[1].limit, 8 * kGiB);
  EXPECT_EQ(limits[1].used, 2 * kMiB);
}

TEST(MemoryLimits, cgroup_without_a_limit_is_left_out) {
  SampleTree tree;
  tree.put("proc/self/mountinfo", kMountVersion2);
  tree.put("proc/self/cgroup", "0::/user.slice/job.scope\n");
  put_version2(tree, "/user.slice/job.scope", "max", "1048576");
  put_version2(tree, "/user.slice", "8589934592", "2097152");
  const auto limits = memory_limits(tree.root());
  ASSERT_EQ(limits.size(), 1U);
  EXPECT_EQ(limits[0].cgroup, "/user.slice");
}

TEST(MemoryLimits, file_pages_that_can_be_dropped_do_not_count_as_used) {
  SampleTree tree;
  tree.put("proc/self/mountinfo", kMountVersion2);
  tree.put("proc/self/cgroup", "0::/\n");
  put_version2(tree, "", "1073741824", "734003200");
  tree.put("sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 524288000\nactive_file 7\n");
  const auto limits = memory_limits(tree.root());
  ASSERT_EQ(limits.size(), 1U);
  EXPECT_EQ(limits[0].cgroup, "/");
  EXPECT_EQ(limits[0].used, 200 * kMiB);
}

TEST(MemoryLimits, version_1_has_its_own_files_and_its_own_value_for_no_limit) {
  SampleTree tree;
  tree.put("proc/self/mountinfo",
           std::string("33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n") + kMountVersion1);
  tree.put("proc/self/cgroup", "9:cpu:/other\n4:memory:/batch/job\n0::/\n");
  put_version1(tree, "/batch/job", "2147483648", "1073741824");
  tree.put("sys/fs/cgroup/memory/batch/job/memory.stat", "inactive_file 1\ntotal_inactive_file 536870912\n");
  put_version1(tree, "/batch", "4294967296", "1073741824");
  put_version1(tree, "", "9223372036854771712", "1");
  const auto limits = memory_limits(tree.root());
  ASSERT_EQ(limits.size(), 2U);
  EXPECT_EQ(limits[0].cgroup, "/batch/job");
  EXPECT_EQ(limits[0].limit, 2 * kGiB);
  EXPECT_EQ(limits[0].used, 512 * kMiB);
  EXPECT_EQ(limits[1].cgroup, "/batch");
}

TEST(MemoryLimits, container_that_mounts_its_own_cgroup_finds_it_at_the_mount) {
  SampleTree tree;
  tree.put("proc/self/mountinfo", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  tree.put("proc/self/cgroup", "4:memory:/docker/abc/inner\n");
  put_version1(tree, "", "1073741824", "1");
  put_version1(tree, "/inner", "536870912", "1");
  const auto limits = memory_limits(tree.root());
  ASSERT_EQ(limits.size(), 2U);
  EXPECT_EQ(limits[0].cgroup, "/inner");
  EXPECT_EQ(limits[1].cgroup, "/");
  EXPECT_EQ(limits[1].limit, kGiB);
}

TEST(MemoryLimits, cgroup_outside_the_namespace_falls_back_to_the_mount) {
  SampleTree tree;
  tree.put("proc/self/mountinfo", kMountVersion2);
  tree.put("proc/self/cgroup", "0::/../sibling\n");
  put_version2(tree, "", "1073741824", "1");
  const auto limits = memory_limits(tree.root());
  ASSERT_EQ(limits.size(), 1U);
  EXPECT_EQ(limits[0].cgroup, "/");
}

TEST(MemoryLimits, nonsense_gives_no_limit) {
  SampleTree tree;
  tree.put("proc/self/mountinfo", "\n-\n1 2 3 - cgroup2\ngarbage\n");
  tree.put("proc/self/cgroup", "no colon\n::::\n:\n");
  EXPECT_TRUE(memory_limits(tree.root()).empty());
  tree.put("proc/self/mountinfo", kMountVersion2);
  put_version2(tree, "", "not a number", "");
  EXPECT_TRUE(memory_limits(tree.root()).empty());
}

}  // namespace
}  // namespace drover::observe
