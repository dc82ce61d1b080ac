// session/worker/program.hpp: programs that are hosted by another executable, such as an interpreter.
#pragma once

#include <string>
#include <vector>

namespace drover::session {

/// How to start this program again if its executable is not enough: "python3 -m package".
struct Program {
  std::string executable;              ///< path of the host
  std::vector<std::string> arguments;  ///< before those of a worker; they must lead to `play_role`
  std::string keeper;                  ///< path of the keeper program, the drover tool
};

/// Replaces `init(argc, argv)` in the application of such a program; call it before any other function of drover.
/// Throws `Errc::invalid_argument` for a path without '/' and if two entries have the same name. May be called again
/// with another program, for processes started from then on.
void init(const Program& program);

/// Runs a worker of such a program and returns the exit status with which the process should end. `arguments` starts
/// with the program's name, followed by "--drover-role=worker". Requires: `init` was called.
[[nodiscard]] int play_role(std::vector<std::string> arguments);

/// Whether Process::start would now wait, for seconds, for a template that is loading. Does not wait.
[[nodiscard]] bool start_would_wait();

}  // namespace drover::session
