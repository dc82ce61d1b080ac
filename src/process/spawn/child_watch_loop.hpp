// process/spawn/child_watch_loop.hpp: the loop of the watching thread, and the state it shares with callers.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/base/mutex.hpp"
#include "process/spawn/child_watch.hpp"
#include "process/spawn/line_cutter.hpp"
#include "process/spawn/line_writer.hpp"

namespace drover::process {

/// See ChildWatch. One thread calls `run`, any thread the rest.
class ChildWatch::Loop {
 public:
  Loop();

  /// Runs until `stop`.
  void run() DROVER_EXCLUDES(mutex_);
  /// Makes `run` return once everything is written or the deadline passes.
  void stop(Deadline deadline) DROVER_EXCLUDES(mutex_);
  /// Runs `job` on the thread and waits for it. It must not throw.
  void do_there(const std::function<void()>& job) DROVER_EXCLUDES(mutex_);

  /// As in ChildWatch. `pidfd` must stay open until `finish`.
  void add(pid_t pid, int pidfd, WatchedChild what) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::string tail(pid_t pid) const DROVER_EXCLUDES(mutex_);
  std::string finish(pid_t pid, Deadline deadline) DROVER_EXCLUDES(mutex_);
  void forget(pid_t pid) DROVER_EXCLUDES(mutex_);

 private:
  // One standard stream of a child.
  struct Source {
    Fd pipe;  // closed at end of file
    LineCutter lines;
    std::uint64_t put = 0;  // position of its last line in the total of its writer
  };
  struct Child {
    int pidfd = -1;
    std::array<Source, 2> sources;  // each feeds the writer of the same index
    std::string mark;
    std::string tail;
    bool has_ended = false;    // as the thread has seen
    bool is_finished = false;  // leftovers are killed, output is with the writers
  };
  // What an entry of the poll set stands for.
  struct Item {
    enum class Kind { wake, writer, child, source } kind = Kind::wake;
    pid_t pid = 0;
    std::size_t index = 0;
  };
  struct Round {
    std::vector<pollfd> polls;
    std::vector<Item> items;
    void add(int fd, short events, Item item);
  };

  [[nodiscard]] bool is_over() const DROVER_REQUIRES(mutex_);
  [[nodiscard]] Round plan_round() const DROVER_REQUIRES(mutex_);
  void handle(const Item& item) DROVER_REQUIRES(mutex_);
  std::size_t read_some(Child& child, std::size_t index) DROVER_REQUIRES(mutex_);
  void drain(Child& child) DROVER_REQUIRES(mutex_);
  void do_jobs() DROVER_EXCLUDES(mutex_);
  void clean_up_after_the_dead() DROVER_EXCLUDES(mutex_);
  [[nodiscard]] bool is_written() const DROVER_REQUIRES(mutex_);
  [[nodiscard]] bool is_written(const Child& child) const DROVER_REQUIRES(mutex_);
  void put(Child& child, std::size_t index, std::string_view line) DROVER_REQUIRES(mutex_);
  void wake() noexcept;

  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::map<pid_t, Child> children_ DROVER_GUARDED_BY(mutex_);
  std::array<LineWriter, 2> writers_ DROVER_GUARDED_BY(mutex_);
  Fd wake_;
  std::deque<const std::function<void()>*> jobs_ DROVER_GUARDED_BY(mutex_);
  bool is_stopping_ DROVER_GUARDED_BY(mutex_) = false;
  Deadline stop_deadline_ DROVER_GUARDED_BY(mutex_) = Deadline::never();
};

}  // namespace drover::process
