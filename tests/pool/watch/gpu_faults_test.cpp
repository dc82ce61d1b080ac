#include "pool/watch/gpu_faults.hpp"

#include <fstream>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace drover::pool {
namespace {

constexpr const char* kLog =
    "6,100,5000000,-;usb 1-1: new device\n"
    "4,101,6000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
    " SUBSYSTEM=pci\n"
    "4,102,7000000,-;NVRM: Xid (PCI:0000:1c:00): 31, pid=77, MMU Fault\n"
    "4,103,7000000,-;NVRM: Xid (PCI:0000:1c:00\n"
    "4,104,7000000,-;NVRM: Xid (PCI:0000:1c:00): x\n"
    "NVRM: Xid (PCI:0000:1c:00): 31, without a head\n";

TEST(GpuFaults, only_complete_xids_are_read) {
  const auto faults = faults_in(kLog);
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_EQ(faults[0].code, 79);
  EXPECT_EQ(faults[0].pci, "0000:1b:00");
  EXPECT_EQ(faults[0].when, std::chrono::seconds(6));
  EXPECT_NE(faults[0].text.find("fallen off the bus"), std::string::npos);
  EXPECT_EQ(faults[1].code, 31);
}

TEST(GpuFaults, only_the_newest_faults_are_kept) {
  std::string log;
  for (int i = 0; i < 1000; ++i) log += "4,1," + std::to_string(i) + ",-;NVRM: Xid (PCI:0000:1b:00): 31, x\n";
  const auto faults = faults_in(log);
  EXPECT_EQ(faults.size(), 64U);
  EXPECT_EQ(faults.back().when.count(), 999);
}

TEST(GpuFaults, an_unreadable_log_has_no_faults) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(read_gpu_faults(folder.path() / "none").empty());
  EXPECT_TRUE(read_gpu_faults(folder.path()).empty());
  std::ofstream(folder.path() / "log") << kLog;
  EXPECT_EQ(read_gpu_faults(folder.path() / "log").size(), 2U);
}

TEST(GpuFaults, reading_the_log_of_this_machine_does_not_block) { static_cast<void>(read_gpu_faults()); }

TEST(GpuFaults, common_codes_have_a_meaning) {
  for (const int code : {8, 13, 31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120}) {
    EXPECT_NE(meaning_of_xid(code), "") << code;
  }
  EXPECT_EQ(meaning_of_xid(1), "");
}

TEST(GpuFaults, faults_of_programs_do_not_condemn_the_gpu) {
  for (const int code : {48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120}) EXPECT_TRUE(condemns_gpu(code)) << code;
  for (const int code : {0, 8, 13, 31, 43, 45, 61}) EXPECT_FALSE(condemns_gpu(code)) << code;
}

}  // namespace
}  // namespace drover::pool
