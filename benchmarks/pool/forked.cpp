#include "pool/forked.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <utility>

#include "drover/base/error.hpp"

namespace drover::bench {
namespace {

constexpr int kRequests = 3;
constexpr int kAnswers = 4;

// Closes all descriptors of the parent but the two pipes.
[[noreturn]] void be_child(const Fd& requests, const Fd& answers,
                           const std::function<void(const Fd&, const Fd&)>& serve) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int from = ::fcntl(requests.get(), F_DUPFD, kAnswers + 1);
  const int to = ::fcntl(answers.get(), F_DUPFD, kAnswers + 1);
  ::dup2(from, kRequests);
  ::dup2(to, kAnswers);
  ::close_range(kAnswers + 1, ~0U, 0);
  try {
    serve(Fd(kRequests), Fd(kAnswers));
  } catch (...) {
    ::_exit(1);
  }
  ::_exit(0);
}

}  // namespace

PipeEnds make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("pipe2", "to a forked worker");
  return {.read = Fd(ends[0]), .write = Fd(ends[1])};
}

void write_whole(const Fd& to, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(to.get(), bytes.data(), bytes.size());
    if (count <= 0) throw_errno("write", "to a pipe");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

bool read_whole(const Fd& from, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::read(from.get(), bytes.data(), bytes.size());
    if (count < 0) throw_errno("read", "from a pipe");
    if (count == 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

ForkedWorker::ForkedWorker(const Fd& answers, const std::function<void(const Fd&, const Fd&)>& serve)
    : ForkedWorker(make_pipe(), answers, serve) {}

ForkedWorker::ForkedWorker(PipeEnds pipe, const Fd& answers, const std::function<void(const Fd&, const Fd&)>& serve)
    : requests_(std::move(pipe.write)), pid_(::fork()) {
  if (pid_ < 0) throw_errno("fork", "a worker");
  if (pid_ == 0) be_child(pipe.read, answers, serve);
}

ForkedWorker::ForkedWorker(ForkedWorker&& other) noexcept
    : requests_(std::move(other.requests_)), pid_(std::exchange(other.pid_, -1)) {}

ForkedWorker::~ForkedWorker() {
  requests_.reset();
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
}

}  // namespace drover::bench
