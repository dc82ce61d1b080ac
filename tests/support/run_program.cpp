#include "support/run_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <utility>

#include "drover/base/fd.hpp"

namespace drover::test {
namespace {

std::pair<Fd, Fd> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw std::runtime_error("cannot create a pipe for the output of a program");
  return {Fd(ends[0]), Fd(ends[1])};
}

// Appends one piece; false at the end of the output.
bool read_some(const Fd& pipe, std::string& output) {
  std::array<char, 4096> piece{};
  const auto length = ::read(pipe.get(), piece.data(), piece.size());
  if (length > 0) output.append(piece.data(), static_cast<std::size_t>(length));
  return length > 0;
}

}  // namespace

ProgramResult run_program(SpawnOptions options, const OutputWatcher& watcher) {
  auto [reader, writer] = make_pipe();
  options.inherit.emplace_back(writer.get(), STDOUT_FILENO);
  options.inherit.emplace_back(writer.get(), STDERR_FILENO);
  auto child = ChildProcess::spawn(options);
  writer.reset();
  std::string output;
  std::array<pollfd, 2> ready = {pollfd{.fd = reader.get(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = child.pidfd(), .events = POLLIN, .revents = 0}};
  for (;;) {
    ::poll(ready.data(), ready.size(), -1);
    if ((ready[0].revents & (POLLIN | POLLHUP)) != 0) {
      if (!read_some(reader, output)) break;
      if (watcher) watcher(child, output);
    } else if ((ready[1].revents & POLLIN) != 0) {
      break;
    }
  }
  return {.status = child.wait(Deadline::never()).value(), .output = std::move(output)};
}

}  // namespace drover::test
