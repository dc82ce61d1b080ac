#include "process/spawn/child_watch_loop.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/inspect/process_tree.hpp"
#include "process/spawn/standard_streams.hpp"

namespace drover::process {
namespace {

constexpr std::size_t kPiece = 64 * std::size_t{1024};  // usual capacity of a pipe
constexpr std::size_t kTailBytes = 4096;
constexpr std::chrono::seconds kChildTimeToKill{5};

Fd make_wake() {
  Fd wake(sys::call("eventfd", ::eventfd, 0U, int{EFD_CLOEXEC | EFD_NONBLOCK}));
  if (!wake.is_open()) throw_errno("eventfd", "the thread that watches child processes");
  return above_standard_streams(std::move(wake));
}

// So that reads never block the thread.
void make_nonblocking(const Fd& pipe) noexcept {
  if (pipe.is_open()) ::fcntl(pipe.get(), F_SETFL, O_NONBLOCK);
}

std::size_t pipe_size(const Fd& pipe) noexcept {
  const int size = pipe.is_open() ? ::fcntl(pipe.get(), F_GETPIPE_SZ) : 0;
  return size > 0 ? static_cast<std::size_t>(size) : kPiece;
}

// The last whole lines.
std::string last_lines(const std::string& text) {
  if (text.size() <= kTailBytes) return text;
  const auto newline = text.find('\n', text.size() - kTailBytes - 1);
  return newline == std::string::npos ? text.substr(text.size() - kTailBytes) : text.substr(newline + 1);
}

// If the program has closed the stream, its number may belong to an unrelated file.
LineWriter writer_to(int stream) noexcept { return LineWriter(is_standard_stream(stream) ? stream : -1); }

}  // namespace

void ChildWatch::Loop::Round::add(int fd, short events, Item item) {
  polls.push_back({.fd = fd, .events = events, .revents = 0});
  items.push_back(item);
}

// The writers come first, so that the eventfd cannot be mistaken for a standard stream.
ChildWatch::Loop::Loop() : writers_{writer_to(STDOUT_FILENO), writer_to(STDERR_FILENO)}, wake_(make_wake()) {}

void ChildWatch::Loop::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void ChildWatch::Loop::run() {
  for (;;) {
    Round round;
    int patience = -1;
    {
      const MutexLock lock(mutex_);
      if (is_over()) return;
      round = plan_round();
      patience = stop_deadline_.poll_timeout();
    }
    ::poll(round.polls.data(), round.polls.size(), patience);
    {
      const MutexLock lock(mutex_);
      for (std::size_t i = 0; i < round.items.size(); ++i) {
        if (round.polls[i].revents != 0) handle(round.items[i]);
      }
    }
    do_jobs();
    clean_up_after_the_dead();
    changed_.notify_all();
  }
}

bool ChildWatch::Loop::is_over() const { return is_stopping_ && (is_written() || stop_deadline_.has_passed()); }

bool ChildWatch::Loop::is_written() const {
  return std::ranges::all_of(writers_, [](const LineWriter& writer) { return writer.is_empty(); });
}

bool ChildWatch::Loop::is_written(const Child& child) const {
  return writers_[0].total_gone() >= child.sources[0].put && writers_[1].total_gone() >= child.sources[1].put;
}

ChildWatch::Loop::Round ChildWatch::Loop::plan_round() const {
  Round round;
  round.add(wake_.get(), POLLIN, {.kind = Item::Kind::wake});
  for (std::size_t i = 0; i < writers_.size(); ++i) {
    if (writers_[i].is_empty()) continue;
    round.add(writers_[i].fd(), POLLOUT, {.kind = Item::Kind::writer, .pid = 0, .index = i});
  }
  for (const auto& [pid, child] : children_) {
    if (!child.has_ended) round.add(child.pidfd, POLLIN, {.kind = Item::Kind::child, .pid = pid, .index = 0});
    for (std::size_t i = 0; i < child.sources.size(); ++i) {
      const Source& source = child.sources[i];
      if (!source.pipe.is_open() || !writers_[i].has_room()) continue;
      round.add(source.pipe.get(), POLLIN, {.kind = Item::Kind::source, .pid = pid, .index = i});
    }
  }
  return round;
}

void ChildWatch::Loop::handle(const Item& item) {
  if (item.kind == Item::Kind::wake) {
    std::uint64_t count = 0;
    // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): the descriptor does not block
    [[maybe_unused]] const ssize_t taken = ::read(wake_.get(), &count, sizeof count);
    return;
  }
  if (item.kind == Item::Kind::writer) {
    writers_[item.index].write_some();
    return;
  }
  const auto found = children_.find(item.pid);
  if (found == children_.end()) return;  // already finished
  if (item.kind == Item::Kind::child) {
    found->second.has_ended = true;
  } else {
    read_some(found->second, item.index);
  }
}

void ChildWatch::Loop::put(Child& child, std::size_t index, std::string_view line) {
  writers_[index].put(line);
  child.sources[index].put = writers_[index].total_put();
}

// Returns the number of bytes read.
std::size_t ChildWatch::Loop::read_some(Child& child, std::size_t index) {
  Source& source = child.sources[index];
  if (!source.pipe.is_open()) return 0;
  std::array<char, kPiece> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init): overwritten at once
  // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): the pipe does not block
  const auto length = ::read(source.pipe.get(), piece.data(), piece.size());
  if (length < 0) return 0;  // this thread blocks all signals, so the pipe is empty
  if (length == 0) {
    source.pipe.reset();
    return 0;
  }
  const std::string_view bytes(piece.data(), static_cast<std::size_t>(length));
  source.lines.take(bytes, [&](std::string_view line) DROVER_REQUIRES(mutex_) { put(child, index, line); });
  writers_[index].write_some();
  if (index == 1) {
    child.tail.append(bytes);
    if (child.tail.size() > 4 * kTailBytes) child.tail = last_lines(child.tail);
  }
  return bytes.size();
}

// All writers are dead, so the pipes hold the rest of the output. In case an undetected writer is left, reads at most
// the capacity of a pipe.
void ChildWatch::Loop::drain(Child& child) {
  for (std::size_t i = 0; i < child.sources.size(); ++i) {
    for (std::size_t left = pipe_size(child.sources[i].pipe); left > 0;) {
      const auto bytes = read_some(child, i);
      if (bytes == 0) break;
      left -= std::min(left, bytes);
    }
    child.sources[i].pipe.reset();
    child.sources[i].lines.finish([&](std::string_view line) DROVER_REQUIRES(mutex_) { put(child, i, line); });
    writers_[i].write_some();
  }
  child.is_finished = true;
}

void ChildWatch::Loop::do_jobs() {
  for (;;) {
    const std::function<void()>* job = nullptr;
    {
      const MutexLock lock(mutex_);
      if (jobs_.empty()) return;
      job = jobs_.front();
    }
    (*job)();
    const MutexLock lock(mutex_);
    jobs_.pop_front();
    changed_.notify_all();
  }
}

// Orphans would run on unnoticed and hold the pipes open. Finding them takes a while, so it is done without the lock;
// a child that is not finished is never removed.
void ChildWatch::Loop::clean_up_after_the_dead() {
  std::vector<TreeRoot> dead;
  {
    const MutexLock lock(mutex_);
    for (const auto& [pid, child] : children_) {
      if (child.has_ended && !child.is_finished) {
        dead.push_back({.pid = pid, .pidfd = child.pidfd, .mark = child.mark});
      }
    }
  }
  if (dead.empty()) return;
  try {
    if (kill_trees(dead, Deadline::after(kChildTimeToKill)) == WaitResult::timed_out) {
      log(LogLevel::warn, "processes that a child left behind do not die; the child was process", dead.front().pid);
    }
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
  const MutexLock lock(mutex_);
  for (const auto& root : dead) {
    if (const auto found = children_.find(root.pid); found != children_.end()) drain(found->second);
  }
}

void ChildWatch::Loop::stop(Deadline deadline) {
  const MutexLock lock(mutex_);
  is_stopping_ = true;
  stop_deadline_ = deadline;
  wake();
}

void ChildWatch::Loop::do_there(const std::function<void()>& job) {
  const MutexLock lock(mutex_);
  jobs_.push_back(&job);
  wake();
  while (std::ranges::find(jobs_, &job) != jobs_.end()) changed_.wait(mutex_);
}

void ChildWatch::Loop::add(pid_t pid, int pidfd, WatchedChild what) {
  make_nonblocking(what.output);
  make_nonblocking(what.error);
  const MutexLock lock(mutex_);
  children_.insert_or_assign(pid, Child{.pidfd = pidfd,
                                        .sources = {Source{std::move(what.output), LineCutter(what.name)},
                                                    Source{std::move(what.error), LineCutter(what.name)}},
                                        .mark = std::move(what.mark),
                                        .tail = {}});
  wake();
}

std::string ChildWatch::Loop::tail(pid_t pid) const {
  const MutexLock lock(mutex_);
  const auto found = children_.find(pid);
  return found == children_.end() ? std::string() : last_lines(found->second.tail);
}

void ChildWatch::Loop::forget(pid_t pid) {
  const MutexLock lock(mutex_);
  children_.erase(pid);
  wake();
}

std::string ChildWatch::Loop::finish(pid_t pid, Deadline deadline) {
  const MutexLock lock(mutex_);
  const auto found = children_.find(pid);
  if (found == children_.end()) return {};
  while (!found->second.is_finished) changed_.wait(mutex_);
  while (!is_written(found->second) && !deadline.has_passed()) {
    static_cast<void>(changed_.wait_until(mutex_, deadline.moment()));
  }
  auto tail = last_lines(found->second.tail);
  children_.erase(found);
  return tail;
}

}  // namespace drover::process
