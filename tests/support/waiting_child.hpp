// tests/support/waiting_child.hpp: children that wait in a known way, to be examined from outside.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/process/child_process.hpp"
#include "process/inspect/process_facts.hpp"

namespace drover::test {

/// Waits until `holds` returns true; false after a minute.
inline bool comes_true(const std::function<bool()>& holds) {
  const auto watchdog = Deadline::after(std::chrono::seconds(60));
  while (!holds()) {
    if (watchdog.has_passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// Starts a program with a pipe as input that stays open.
inline ChildProcess start_child(std::string program, std::vector<std::string> arguments) {
  SpawnOptions options{.executable = std::move(program), .arguments = std::move(arguments)};
  options.streams.input = StandardStream::pipe();
  options.streams.output = StandardStream::null();
  return ChildProcess::spawn(options);
}

/// The facts of a process once `holds` accepts them; fails the test if it never does.
inline process::ProcessFacts facts_once(pid_t pid, const std::function<bool(const process::ProcessFacts&)>& holds) {
  process::ProcessFacts facts;
  EXPECT_TRUE(comes_true([&] {
    const auto found = process::read_process_facts(pid);
    if (found) facts = *found;
    return found && holds(facts);
  })) << "process "
      << pid << " is " << process::state_text(facts.state);
  return facts;
}

/// Waits until a child has ended, without reaping it.
inline void await_end(const ChildProcess& child) {
  pollfd ended{.fd = child.pidfd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&ended, 1, 60000), 1);
}

}  // namespace drover::test
