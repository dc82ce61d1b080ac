// The main function of every test program, which is supervisor, runner and peer.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/config.hpp"
#include "drover/session/worker.hpp"
#include "support/peer_main.hpp"
#include "support/runner.hpp"
#include "support/supervisor.hpp"

namespace {

bool asks_for_list(std::span<char* const> arguments) {
  return std::ranges::any_of(arguments,
                             [](const char* text) { return std::string_view(text) == "--gtest_list_tests"; });
}

int list_tests(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

int run_role(int argc, char** argv) {
  using namespace drover::test;
  const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
  if (is_peer(arguments)) return run_peer(arguments);
  if (asks_for_list(arguments)) return list_tests(argc, argv);
  if (const auto supervisor = drover::environment(kRunnerVariable)) {
    ::unsetenv(kRunnerVariable);  // test programs that the tests start get their own supervisor
    const auto pid = static_cast<pid_t>(std::stol(*supervisor));
    die_with(pid);
    return run_tests(argc, argv, pid);
  }
  // For debuggers: one process, no deadline.
  if (drover::environment("DROVER_TEST_UNSUPERVISED")) return run_tests(argc, argv, 0);
  return supervise(argv);
}

}  // namespace

#if defined(__SANITIZE_THREAD__)
// libstdc++ counts the references of a shared exception in code that the sanitizer does not see, so the thread that
// drops the last reference and deletes the exception seems to race with earlier readers.
extern "C" const char* __tsan_default_suppressions();  // NOLINT(*-reserved-identifier,*-naming): the sanitizer's name
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(*-reserved-identifier,*-naming): likewise
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
#endif

int main(int argc, char** argv) {
  try {
    drover::init(argc, argv);  // keepers and workers that tests start run this program too
    return run_role(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
