// pool/watch/stack_sampler.hpp: the native stack of a worker's thread, written by the worker itself.
//
// The requester increments `stack_asked` in the worker's part of the board and sends a real-time signal with the new
// number. The handler writes the addresses of the stack that it interrupted, then the number to `stack_given`. No
// process is attached to or stopped. A thread that cannot run a handler does not answer, and the requester waits only
// until its deadline. An interpreter in the worker writes its stacks as text in the same handler
// (drover/pool/this_worker.hpp).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "drover/base/clock.hpp"
#include "pool/watch/board_layout.hpp"

namespace drover::pool {

/// The signal that requests stacks: SIGRTMIN+3.
[[nodiscard]] int stack_signal() noexcept;

/// Called by a worker, to answer requests for all its threads in `slot`, which must stay mapped until the process
/// exits or sets another slot. Gives the calling thread an alternate signal stack if it has none. Throws the errors
/// of `sigaction`.
void answer_stack_requests(BoardWorker& slot);

/// A stack, or the reason why there is none.
struct StackSample {
  std::vector<std::uint64_t> addresses;  ///< innermost first
  std::string problem;                   ///< "stopped", "no answer"; empty if there are addresses
  std::vector<std::string> text;         ///< lines of the worker's interpreter, if it has one; also with a problem
};

/// Asks thread `tid` (0: the main thread) of the worker `pid` for its stack, and waits until the deadline. Sends no
/// signal to a process without a handler for it, which the signal would kill, nor to one that does not have the board
/// of `slot` open, which is another program. A thread in a system call that a signal interrupts (nanosleep, poll and
/// the like) gets none either; another thread then writes the text alone. A thread that enters such a call between
/// the check and the signal is disturbed. Several requesters are safe, but one of them may get no answer.
[[nodiscard]] StackSample sample_stack(pid_t pid, pid_t tid, BoardWorker& slot, Deadline deadline,
                                       const std::filesystem::path& proc = "/proc");

}  // namespace drover::pool
