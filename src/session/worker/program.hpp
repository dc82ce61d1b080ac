// session/worker/program.hpp: programs that are hosted by another executable, such as an interpreter.
#pragma once

#include <string>
#include <vector>

namespace drover {

/// How this program is started again, where its executable alone does not tell: "python3 -m package".
struct Program {
  std::string executable;              ///< path of what runs it
  std::vector<std::string> arguments;  ///< in front of those of a worker; they must lead to `play_role`
  std::string keeper;                  ///< path of a program that becomes the keeper: the drover tool
};

/// Instead of `init(argc, argv)`, in the application of such a program and before anything else of drover. Throws
/// `Errc::invalid_argument` for a path without '/' and if two entries have the same name. May be called again, with
/// another program for what is started from then on.
void init(const Program& program);

/// Instead of it in a worker: does the worker's work and returns the exit status, with which the process should end
/// soon. `arguments` begins with the program's name, and "--drover-role=worker" follows. `init` must have been
/// called.
[[nodiscard]] int play_role(std::vector<std::string> arguments);

}  // namespace drover
