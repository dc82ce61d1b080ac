// tests/harness/fixture_run.hpp: runs one misbehaving test under the harness.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/run_program.hpp"

namespace drover::test {

/// Runs the test `name` of harness_fixture in a supervised program, with `variables` added to the environment.
inline ProgramResult run_fixture(const std::string& name,
                                 std::vector<std::pair<std::string, std::string>> variables = {},
                                 const OutputWatcher& watcher = {}) {
  SpawnOptions options{.executable = DROVER_HARNESS_FIXTURE, .arguments = {"--gtest_filter=" + name}};
  options.environment = std::move(variables);
  return run_program(std::move(options), watcher);
}

/// Fails the test unless `whole` contains `part`.
inline void expect_contains(const std::string& whole, const std::string& part) {
  EXPECT_NE(whole.find(part), std::string::npos) << "no '" << part << "' in:\n" << whole;
}

}  // namespace drover::test
