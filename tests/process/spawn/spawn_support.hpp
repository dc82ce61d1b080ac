// process/spawn/spawn_support.hpp: what the tests of starting programs share.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>

#include "drover/base/fd.hpp"
#include "drover/process/spawn_options.hpp"

namespace drover::test {

struct PipeEnds {
  Fd reader;
  Fd writer;
};

inline PipeEnds make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  return {.reader = Fd(ends[0]), .writer = Fd(ends[1])};
}

/// A shell that runs `command`.
inline SpawnOptions shell_program(const std::string& command) {
  return {.executable = "/bin/sh", .arguments = {"-c", command}};
}

}  // namespace drover::test
