// The program of every test executable; the same file serves as supervisor, runner and peer.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/config.hpp"
#include "drover/session/init.hpp"
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
    ::unsetenv(kRunnerVariable);  // programs that the tests start have supervisors of their own
    const auto pid = static_cast<pid_t>(std::stol(*supervisor));
    die_with(pid);
    return run_tests(argc, argv, pid);
  }
  // For work in a debugger: one process, no deadline.
  if (drover::environment("DROVER_TEST_UNSUPERVISED")) return run_tests(argc, argv, 0);
  return supervise(argv);
}

}  // namespace

#if defined(__SANITIZE_THREAD__)
// Threads that share an exception count its users inside libstdc++, which the sanitizer does not see: whoever lets go
// of it last, and deletes it, seems to race with those who read it before.
extern "C" const char* __tsan_default_suppressions();  // NOLINT(*-reserved-identifier,*-naming): the sanitizer's name
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(*-reserved-identifier,*-naming): likewise
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
#endif

int main(int argc, char** argv) {
  try {
    drover::init(argc, argv);  // keepers and workers that tests start are this program too
    return run_role(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
