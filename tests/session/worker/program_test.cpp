// Programs that another executable hosts: here this test, which `env` starts.
#include "session/worker/program.hpp"

#include <chrono>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "drover/process/child_process.hpp"
#include "drover/session/process.hpp"
#include "drover/session/worker.hpp"
#include "session/worker/worker_role.hpp"
#include "support/expect_error.hpp"

namespace drover::session {
namespace {

using namespace std::chrono_literals;
using test::expect_error;

const auto succeed_if_marked = entry("program_test.marked", [](Worker&) {
  if (std::getenv("DROVER_PROGRAM_TEST") == nullptr) std::exit(3);
});

class ProgramCommand : public ::testing::Test {
 public:
  ProgramCommand() = default;
  ProgramCommand(const ProgramCommand&) = delete;
  ProgramCommand& operator=(const ProgramCommand&) = delete;
  ~ProgramCommand() override {  // as it is for all other tests
    init(Program{.executable = own_executable(), .arguments = {}, .keeper = own_executable()});
  }
};

TEST_F(ProgramCommand, starts_workers_and_keepers) {
  init(Program{.executable = "/usr/bin/env",
               .arguments = {"DROVER_PROGRAM_TEST=yes", own_executable()},
               .keeper = own_executable()});
  const Session session = Session::start();
  Process marked = Process::start(session, {.entry = succeed_if_marked});
  EXPECT_EQ(marked.wait(Deadline::after(60s)), ExitStatus::exited(0)) << marked.describe();
}

TEST_F(ProgramCommand, is_given_by_paths) {
  const auto is_refused = [](const std::string& executable, const std::string& keeper) {
    expect_error(Errc::invalid_argument,
                 [&] { init(Program{.executable = executable, .arguments = {}, .keeper = keeper}); },
                 {"is not a path", "PATH is not searched"});
  };
  is_refused("python3", "/usr/bin/env");
  is_refused("/usr/bin/env", "drover");
}

TEST_F(ProgramCommand, keeper_that_is_not_one_is_reported) {
  init(Program{.executable = own_executable(), .arguments = {}, .keeper = "/bin/true"});
  expect_error(Errc::peer_lost, [] { static_cast<void>(Session::start()); }, {"/bin/true"});
}

TEST(PlayRole, refuses_what_is_no_role) {
  EXPECT_EQ(play_role({"program", "--drover-role=worker"}), kWorkerMisused);
  EXPECT_EQ(play_role({}), kWorkerMisused);
}

}  // namespace
}  // namespace drover::session
