// tests/support/single_step.hpp: kills or stops a process after every single instruction of an operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "drover/ipc/membership.hpp"
#include "support/peer_group.hpp"
#include "support/test_session.hpp"

namespace drover::test {

/// Why this machine or build cannot single-step, e.g. because ptrace is forbidden; empty if it can. For GTEST_SKIP.
[[nodiscard]] std::string why_no_single_steps();

/// Marks the stepped part of an operation. For stepped processes only: the marks kill any other process.
struct StepMarks {
  /// Stepping starts here.
  static void begin();
  /// Stepping ends here.
  static void end();
};

/// The body of a stepped process: prepares, passes `begin`, works, passes `end`. Runs in a process that is forked for
/// each run and ends with it, so it may leave anything behind.
using SteppedBody = void (*)(const Invited& invited);

/// Registers `body` as `name`; called by DROVER_STEPPED.
bool register_stepped_body(const char* name, SteppedBody body);

/// Where a stepped process stopped.
enum class StepEnd {
  reached,   ///< at the requested instruction
  finished,  ///< at its end: its path differed from the measured one
};

/// Runs a registered body repeatedly and kills or stops it after a given number of instructions. A peer forks and
/// traces the processes; this object is the test's side. Each process is a new participant of the test's session.
class SingleStepper {
 public:
  /// Starts the peer. Each process opens `objects`.
  SingleStepper(TestSession& session, std::string body, std::vector<ObjectHandle> objects);
  ~SingleStepper();
  SingleStepper(const SingleStepper&) = delete;
  SingleStepper& operator=(const SingleStepper&) = delete;

  /// Called when the process sleeps in a system call, typically to wake it. Without it, the process is killed in its
  /// sleep, or measured up to it.
  void on_sleep(std::function<void()> wake) { wake_ = std::move(wake); }

  /// Runs the body to its end, then recovers it; returns its number of instructions. Later runs follow this path.
  std::size_t measure();
  /// Runs the body and kills it after `instructions`. On return the process is reaped, but not yet recovered.
  StepEnd kill_after(std::size_t instructions);
  /// Runs the body and stops it after `instructions`, until `resume`.
  StepEnd pause_after(std::size_t instructions);
  /// Resumes a stopped process and waits for its end; fails the test if it does not end as expected.
  void resume();
  /// Recovers everything that the last process held, as the keeper does.
  void recover();

  /// The participant number of the last process.
  [[nodiscard]] Owner owner() const noexcept { return owner_; }
  /// Where the last process was killed or stopped: an address, and the function if its name is known.
  [[nodiscard]] const std::string& place() const noexcept { return place_; }

 private:
  std::string run(const std::string& command);

  TestSession& session_;
  std::vector<ObjectHandle> objects_;
  PeerGroup peers_;
  std::function<void()> wake_;
  Owner owner_ = kNobody;
  std::string place_;
};

/// Measures, then for every instruction: `prepare`, kill, `check_dead`, recover, `check_recovered`. Returns the
/// number of kills. Tries about `most` instructions, evenly spread, or all if `most` is 0.
struct StepChecks {
  std::function<void()> prepare;          ///< sets up the state that the body expects
  std::function<void()> check_dead;       ///< after the death, before the recovery
  std::function<void()> check_recovered;  ///< after the recovery
};
std::size_t kill_at_every_instruction(SingleStepper& stepper, const StepChecks& checks, std::size_t most = 0);

/// Measures, then for every instruction: `prepare`, stop, `overtake`, resume to the end, recover, `check`. Returns
/// the number of stops.
struct OvertakeChecks {
  std::function<void()> prepare;   ///< sets up the state that the body expects
  std::function<void()> overtake;  ///< actions of others while the process is stopped
  std::function<void()> check;     ///< after the recovery
};
std::size_t overtake_at_every_instruction(SingleStepper& stepper, const OvertakeChecks& checks);

}  // namespace drover::test

/// Defines and registers a stepped body: DROVER_STEPPED(put_small) { Queue queue(...); StepMarks::begin(); ... }.
/// Names must be unique in a test program.
#define DROVER_STEPPED(name)                                                                                    \
  static void name(const ::drover::test::Invited& invited);                                                     \
  [[maybe_unused]] static const bool name##_is_registered = ::drover::test::register_stepped_body(#name, name); \
  static void name([[maybe_unused]] const ::drover::test::Invited& invited)
