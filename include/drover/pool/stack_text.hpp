// drover/pool/stack_text.hpp: stacks that an interpreter knows of, in the reports on a worker.
#pragma once

namespace drover {

/// Writes, into `stack_text_file()`, where the threads of an interpreter are. Called in a signal handler, by any
/// thread of the process and perhaps while another holds the interpreter's lock: only what is safe there.
using StackTextWriter = void (*)(int argument);

/// A memory file of this process, made by the first call, which is emptied before each text. Throws as making memory
/// files does.
[[nodiscard]] int stack_text_file();

/// In a worker of a pool: from now on, who asks for its stack gets what `write(argument)` says too: `drover ps
/// --stacks`, stall reports, and the error of a task whose worker is killed since it took too long. Starts a thread
/// that answers where the main one is asleep and must not be disturbed. Once in a process; throws
/// `Errc::invalid_argument` if no pool started this process.
void tell_stack_text(StackTextWriter write, int argument);

}  // namespace drover
