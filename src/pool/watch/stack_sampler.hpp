// pool/watch/stack_sampler.hpp: the native stack of a thread of a worker, told by the worker itself.
//
// The asker raises `stack_asked` in the worker's part of the board and sends a real-time signal that carries the new
// number. The handler writes the addresses of the stack it interrupted, then the number to `stack_given`. Nothing is
// attached and nobody stops; who cannot run a handler does not answer, and the asker waits no longer than it wants.
// Where an interpreter runs in the worker, the handler lets it write its stacks as text (drover/pool/stack_text.hpp).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "drover/base/clock.hpp"
#include "pool/watch/board_layout.hpp"

namespace drover {

/// The signal by which stacks are asked for: SIGRTMIN+3.
[[nodiscard]] int stack_signal() noexcept;

/// In a worker: answers from now on, for all its threads, in `slot`, which must stay mapped until the process ends or
/// another slot is given. The calling thread gets an alternate signal stack if it has none. Throws what `sigaction`
/// fails with.
void answer_stack_requests(BoardWorker& slot);

/// A stack, or why there is none.
struct StackSample {
  std::vector<std::uint64_t> addresses;  ///< innermost first
  std::string problem;                   ///< for people: "stopped", "no answer"; empty if there are addresses
  std::vector<std::string> text;         ///< lines of the worker's interpreter, if it has one; also with a problem
};

/// Asks thread `tid` (0: the main thread) of the worker with process id `pid` and waits until the deadline. Sends
/// nothing to a process that has no handler for the signal, which would end it; nor to one that has not open the
/// memory file in which `slot` lies, which is a stranger; nor to a thread in a system call that a signal ends early
/// (nanosleep, poll and the like), which its program would notice; there the text alone is asked for, of another
/// thread. A thread that begins such a call between the look and the signal is disturbed. Safe for several askers:
/// one of them may get no answer.
[[nodiscard]] StackSample sample_stack(pid_t pid, pid_t tid, BoardWorker& slot, Deadline deadline,
                                       const std::filesystem::path& proc = "/proc");

}  // namespace drover
