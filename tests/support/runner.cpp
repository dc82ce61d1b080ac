#include "support/runner.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include <gtest/gtest.h>

#include "support/leftovers.hpp"

namespace drover::test {
namespace {

class LeftoverListener : public ::testing::EmptyTestEventListener {
 public:
  explicit LeftoverListener(pid_t supervisor) : supervisor_(supervisor) {}

 private:
  void OnTestStart(const ::testing::TestInfo& /*test*/) override { before_ = look_around(supervisor_); }
  void OnTestEnd(const ::testing::TestInfo& /*test*/) override {
    for (const auto& what : clear_leftovers(before_, supervisor_)) {
      ADD_FAILURE() << "the test left behind " << what;
    }
  }

  pid_t supervisor_;
  Surroundings before_;
};

}  // namespace

void die_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(128 + SIGKILL);
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
}

int run_tests(int argc, char** argv, pid_t supervisor) {
  ::testing::InitGoogleTest(&argc, argv);
  // Appended, so called before the printer at the end of a test: the printer shows the failure.
  ::testing::UnitTest::GetInstance()->listeners().Append(new LeftoverListener(supervisor));
  return RUN_ALL_TESTS();
}

}  // namespace drover::test
