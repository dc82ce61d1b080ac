// tests/support/single_step.hpp: kills a process after each single instruction of an operation.
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

/// Why this machine or build cannot do it, e.g. because ptrace is forbidden; empty if it can. For GTEST_SKIP.
[[nodiscard]] std::string why_no_single_steps();

/// Marks the part of an operation that is stepped. Used in the stepped process; outside of one it ends the process.
struct StepMarks {
  /// What follows is stepped.
  static void begin();
  /// What follows is not.
  static void end();
};

/// What a stepped process does: gets ready, then passes `begin`, works, passes `end`. Runs in a process that was
/// forked from a small one for this purpose and ends with it, so it may leave anything behind.
using SteppedBody = void (*)(const Invited& invited);

/// Makes `body` known as `name`; what DROVER_STEPPED does.
bool register_stepped_body(const char* name, SteppedBody body);

/// Where a stepped process came to.
enum class StepEnd {
  reached,   ///< the instruction that was asked for
  finished,  ///< the end: its way differed from the one that was measured
};

/// Runs a registered body again and again, killing it after one more instruction each time. The processes are forked
/// by a peer, which traces them; this object is the test's side. Each is a new participant of the test's session.
class SingleStepper {
 public:
  /// Starts the peer. `objects` are what each process opens.
  SingleStepper(TestSession& session, std::string body, std::vector<ObjectHandle> objects);
  ~SingleStepper();
  SingleStepper(const SingleStepper&) = delete;
  SingleStepper& operator=(const SingleStepper&) = delete;

  /// What to do when the process sleeps in a system call: typically what wakes it. Without it, the process is killed
  /// in its sleep, or measured to there.
  void on_sleep(std::function<void()> wake) { wake_ = std::move(wake); }

  /// Runs the body to its end, then buries it; returns how many instructions it had. Later kills follow this way.
  std::size_t measure();
  /// Runs it and kills it after `instructions`. The process is reaped when this returns, and not yet buried.
  StepEnd kill_after(std::size_t instructions);
  /// Runs it and stops it after `instructions`. It stands there until `resume`.
  StepEnd pause_after(std::size_t instructions);
  /// Lets a stopped process go on to its end; fails the test if it does not get there in order.
  void resume();
  /// Recovers what the last process held, as the keeper does.
  void bury();

  /// The number of the last process.
  [[nodiscard]] Owner owner() const noexcept { return owner_; }
  /// Where the last process was killed: an address, and the function if its name is known.
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

/// Measures, then for every instruction: `prepare`, kill, `check_dead` before and `check_buried` after the burial.
/// Returns the number of kills. At most about `most` instructions are tried, evenly spread; 0 is all of them.
struct StepChecks {
  std::function<void()> prepare;       ///< brings everything to where the body expects it
  std::function<void()> check_dead;    ///< the process is dead and nobody has recovered anything
  std::function<void()> check_buried;  ///< the living must find everything right
};
std::size_t kill_at_every_instruction(SingleStepper& stepper, const StepChecks& checks, std::size_t most = 0);

/// Measures, then for every instruction: `prepare`, stop there, `overtake`, go on to the end, bury, `check`. Returns
/// the number of stops.
struct OvertakeChecks {
  std::function<void()> prepare;   ///< brings everything to where the body expects it
  std::function<void()> overtake;  ///< what others do while the process stands still
  std::function<void()> check;     ///< all must be right now
};
std::size_t overtake_at_every_instruction(SingleStepper& stepper, const OvertakeChecks& checks);

}  // namespace drover::test

/// Defines and registers what is stepped: DROVER_STEPPED(put_small) { Queue queue(...); StepMarks::begin(); ... }.
/// Names are unique in one test program.
#define DROVER_STEPPED(name)                                                                                    \
  static void name(const ::drover::test::Invited& invited);                                                     \
  [[maybe_unused]] static const bool name##_is_registered = ::drover::test::register_stepped_body(#name, name); \
  static void name([[maybe_unused]] const ::drover::test::Invited& invited)
