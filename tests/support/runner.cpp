#include "support/runner.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>

#include <gtest/gtest.h>

#include "support/leftovers.hpp"

namespace drover::test {
namespace {

class LeftoverListener : public ::testing::EmptyTestEventListener {
 public:
  explicit LeftoverListener(pid_t supervisor) : supervisor_(supervisor) {}

 private:
  void OnTestStart(const ::testing::TestInfo& /*test*/) override {
    if (!before_) before_ = look_around(supervisor_);
  }
  void OnTestEnd(const ::testing::TestInfo& /*test*/) override {
    for (const auto& what : clear_leftovers(*before_, supervisor_)) {
      ADD_FAILURE() << "the test left behind " << what;
    }
  }
  // The fixture of a suite exists before its first test starts, and is gone after the last one.
  void OnTestSuiteEnd(const ::testing::TestSuite& /*suite*/) override { before_.reset(); }

  pid_t supervisor_;
  std::optional<Surroundings> before_;  // nullopt before the first test of a suite
};

}  // namespace

void die_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(128 + SIGKILL);
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
}

int run_tests(int argc, char** argv, pid_t supervisor) {
  ::testing::InitGoogleTest(&argc, argv);
  // Appended listeners are called before the printer at the end of a test, so the printer shows the failure.
  ::testing::UnitTest::GetInstance()->listeners().Append(new LeftoverListener(supervisor));
  return RUN_ALL_TESTS();
}

}  // namespace drover::test
