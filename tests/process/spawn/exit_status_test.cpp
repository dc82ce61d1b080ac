#include "drover/process/child_process.hpp"

#include <csignal>

#include <gtest/gtest.h>

namespace drover::process {
namespace {

TEST(ExitStatus, success_is_status_zero_alone) {
  EXPECT_TRUE(ExitStatus::exited(0).is_success());
  EXPECT_FALSE(ExitStatus::exited(1).is_success());
  EXPECT_FALSE(ExitStatus::killed(SIGTERM).is_success());
}

TEST(ExitStatus, status_and_signal_exclude_each_other) {
  EXPECT_EQ(ExitStatus::exited(3).status(), 3);
  EXPECT_EQ(ExitStatus::exited(3).signal(), std::nullopt);
  EXPECT_EQ(ExitStatus::killed(SIGTERM).signal(), SIGTERM);
  EXPECT_EQ(ExitStatus::killed(SIGTERM).status(), std::nullopt);
}

TEST(ExitStatus, text_names_status_or_signal_and_usual_cause) {
  EXPECT_EQ(ExitStatus::exited(3).to_string(), "exited with status 3");
  EXPECT_EQ(ExitStatus::killed(SIGTERM).to_string(), "killed by SIGTERM");
  EXPECT_EQ(ExitStatus::killed(SIGSEGV, true).to_string(), "killed by SIGSEGV (invalid memory access), core dumped");
  EXPECT_EQ(ExitStatus::killed(SIGBUS).to_string(), "killed by SIGBUS (shared memory or disk full?)");
  EXPECT_EQ(ExitStatus::killed(SIGABRT).to_string(), "killed by SIGABRT (abort, see its output)");
}

TEST(ExitStatus, text_of_a_kill_has_its_known_reason) {
  const auto text = [](KillReason reason) { return ExitStatus::killed(SIGKILL, false, reason).to_string(); };
  EXPECT_EQ(text(KillReason::unknown),
            "killed by SIGKILL (sent by another process, or the kernel was out of memory: see dmesg)");
  EXPECT_EQ(text(KillReason::out_of_memory),
            "killed by SIGKILL (out of memory: the kernel counted an OOM kill meanwhile)");
  EXPECT_EQ(text(KillReason::somebody),
            "killed by SIGKILL (sent by another process; the kernel counted no OOM kill)");
  EXPECT_EQ(text(KillReason::parent), "killed by SIGKILL (requested by its parent)");
  EXPECT_EQ(ExitStatus::killed(SIGKILL, false, KillReason::parent), ExitStatus::killed(SIGKILL));
}

TEST(ExitStatus, signal_without_a_name_is_given_by_number) {
  EXPECT_EQ(ExitStatus::killed(60).to_string(), "killed by signal 60");
}

TEST(ExitStatus, equality_is_of_kind_and_number) {
  EXPECT_EQ(ExitStatus::exited(9), ExitStatus::exited(9));
  EXPECT_NE(ExitStatus::exited(9), ExitStatus::exited(8));
  EXPECT_NE(ExitStatus::exited(9), ExitStatus::killed(9));
  EXPECT_EQ(ExitStatus::killed(SIGABRT), ExitStatus::killed(SIGABRT, true)) << "a core file is the machine's choice";
}

TEST(ExitStatus, unknown_end_is_neither_a_status_nor_a_signal) {
  const auto unknown = ExitStatus::unknown();
  EXPECT_FALSE(unknown.is_success());
  EXPECT_EQ(unknown.status(), std::nullopt);
  EXPECT_EQ(unknown.signal(), std::nullopt);
  EXPECT_NE(unknown, ExitStatus::exited(0));
  EXPECT_EQ(unknown, ExitStatus::unknown());
  EXPECT_NE(unknown.to_string().find("template"), std::string::npos) << unknown.to_string();
}

}  // namespace
}  // namespace drover::process
