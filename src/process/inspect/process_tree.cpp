#include "process/inspect/process_tree.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "drover/base/log.hpp"
#include "drover/base/trace.hpp"
#include "drover/process/child_process.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/inspect/process_table.hpp"

namespace drover {
namespace {

constexpr std::chrono::seconds kTimeToStop{2};
constexpr std::chrono::milliseconds kTimeToDoubt{100};
constexpr std::chrono::microseconds kPause{200};

// A process to be killed, identified exactly. Keeps no descriptor: in a worker that ends, other threads of the
// program still run and may close descriptors that are not theirs.
class Quarry {
 public:
  explicit Quarry(const process::ProcessRecord& record) : record_(record) {}

  void signal(int number) const noexcept {
    const Fd pidfd = open();
    if (!is_the_one()) return;
    if (process::pidfd_send_signal(pidfd.get(), number) == 0 || errno == ESRCH) return;
    if (::kill(record_.pid, number) == 0 || errno == ESRCH)
      return;  // out of descriptors, or another thread closed it
    log(LogLevel::warn, "a descendant cannot be killed; another user may own it; it is process", record_.pid);
  }
  // False if the deadline passes first.
  [[nodiscard]] bool wait(Deadline deadline) const noexcept {
    const Fd pidfd = open();
    return !pidfd.is_open() || !is_the_one() || process::pidfd_wait(pidfd.get(), deadline);
  }
  // Reaps an orphan that this process adopted when its parent died.
  void reap_if_adopted() const noexcept {
    if (record_.parent == ::getpid()) return;
    const auto now = process::read_process(record_.pid);
    if (now && now->start == record_.start && now->parent == ::getpid() && now->has_ended()) {
      ::waitpid(record_.pid, nullptr, WNOHANG);
    }
  }
  [[nodiscard]] const process::ProcessRecord& record() const noexcept { return record_; }

 private:
  [[nodiscard]] Fd open() const noexcept { return Fd(sys::call("pidfd_open", process::pidfd_open, record_.pid)); }
  // Whether the id, and hence a pidfd opened before this check, still refers to the process in the table rather than
  // to a later one with the same id.
  [[nodiscard]] bool is_the_one() const {
    const auto now = process::read_process(record_.pid);
    return now && now->start == record_.start;
  }

  process::ProcessRecord record_;
};

// What to search for.
struct Trails {
  std::map<pid_t, int> roots;                // pid -> pidfd; -1 for this process itself
  std::set<std::string, std::less<>> marks;  // of the roots
  bool are_all_marked = false;               // each root has a mark
  std::uint64_t earliest_start = 0;          // no earlier process can have a mark
};

class TreeHunt {
 public:
  // `adopts_all`: descendants whose parents die become children of this process.
  explicit TreeHunt(Trails trails, bool adopts_all = false) : trails_(std::move(trails)), adopts_all_(adopts_all) {}

  // Finds and kills until no descendant of the roots is left. False if some do not die or /proc cannot be read.
  [[nodiscard]] bool run(Deadline deadline) {
    const auto patience = Deadline::at(std::min(deadline.moment(), Deadline::after(kTimeToStop).moment()));
    while (freeze(patience)) {
      for (const auto& [pid, quarry] : found_) quarry.signal(SIGKILL);
      kill_roots();  // before any wait, so that no process stays stopped if this one is killed now
      const auto ends = [&](const auto& entry) { return entry.second.wait(deadline); };
      if (!std::ranges::all_of(found_, ends) || deadline.has_passed()) return false;
    }
    kill_roots();
    if (!is_blind_) return true;
    for (const auto& [pid, quarry] : found_) quarry.signal(SIGKILL);  // found by earlier scans
    log(LogLevel::warn, "too many files are open, or /proc is not mounted: descendants of a process were not found");
    return false;
  }
  void reap_adopted() const noexcept {
    for (const auto& [pid, quarry] : found_) quarry.reap_if_adopted();
  }

 private:
  // Stops or kills everything. A scan can miss a process that starts during it, so two scans in a row must show no
  // new and no running process. Returns whether any process is there.
  bool freeze(Deadline patience) {
    int looks_to_go = 2;
    bool is_anybody_there = false;
    while (looks_to_go > 0) {
      is_unsure_ = false;
      const auto table = look();
      is_blind_ = !table;
      const auto tree = table ? members(*table) : std::vector<process::ProcessRecord>();
      is_anybody_there = std::ranges::any_of(tree, [](const auto& member) { return !member.has_ended(); });
      const bool are_roots_settled = halt_roots(tree);
      looks_to_go = stop(tree) && are_roots_settled && !is_blind_ && !is_unsure_ ? looks_to_go - 1 : 2;
      if (patience.has_passed()) break;
      if (looks_to_go == 2) std::this_thread::sleep_for(kPause);
    }
    return is_anybody_there;
  }

  // Kills a process at once if its children are found even after its death, so that it does not stay stopped if this
  // process is killed meanwhile: all are adopted, or they inherit its mark.
  void halt(const Quarry& quarry) { quarry.signal(adopts_all_ || is_marked(quarry.record()) ? SIGKILL : SIGSTOP); }

  // Whether all of them were known and already stopped.
  bool stop(const std::vector<process::ProcessRecord>& tree) {
    bool is_settled = true;
    for (const auto& member : tree) {
      if (member.has_ended()) continue;
      if (is_known(member) && member.stands_still()) continue;
      is_settled = false;
      if (is_known(member)) {  // something continued it, as the kernel does with a worker whose parent dies
        halt(found_.at(member.pid));
        continue;
      }
      halt(found_.insert_or_assign(member.pid, Quarry(member)).first->second);
    }
    return is_settled;
  }

  // Kills the roots at once if nothing is below them: what they start meanwhile has their marks. Otherwise stops
  // them, so that they continue, and kill what is below them, if this process is killed meanwhile. Whether all of
  // them were already stopped or dead.
  [[nodiscard]] bool halt_roots(const std::vector<process::ProcessRecord>& tree) {
    const bool can_kill =
        trails_.are_all_marked && !is_blind_ && std::ranges::all_of(tree, &process::ProcessRecord::has_ended);
    bool is_settled = true;
    for (const auto& [pid, pidfd] : trails_.roots) {
      const auto root = process::read_process(pid);
      if (pidfd < 0 || !root || root->stands_still()) continue;
      static_cast<void>(process::pidfd_send_signal(pidfd, can_kill ? SIGKILL : SIGSTOP));
      is_settled = false;
    }
    return is_settled;
  }

  void kill_roots() const noexcept {
    for (const auto& [pid, pidfd] : trails_.roots) {
      if (pidfd >= 0) static_cast<void>(process::pidfd_send_signal(pidfd, SIGKILL));
    }
  }

  [[nodiscard]] bool is_known(const process::ProcessRecord& record) const {
    const auto known = found_.find(record.pid);
    return known != found_.end() && known->second.record().start == record.start;
  }

  // Reading the environment of a process that is stuck in the kernel would block. Retries for a moment, in which a
  // process that only waits for a disk leaves the kernel.
  [[nodiscard]] bool is_marked(const process::ProcessRecord& record) {
    if (trails_.marks.empty() || record.has_ended() || record.start < trails_.earliest_start) return false;
    if (record.state == 'D') {
      is_unsure_ = is_unsure_ || !doubt_.has_passed();
      return false;
    }
    return process::was_started_with_any(record.pid, trails_.marks);
  }

  // If a root was reaped during the scan, an unrelated process may have got its id or session id: discards the scan.
  [[nodiscard]] std::optional<std::vector<process::ProcessRecord>> look() {
    for (;;) {
      auto table = process::read_processes();
      const auto reaped = std::erase_if(trails_.roots, [](const auto& root) {
        return root.second >= 0 && process::pidfd_send_signal(root.second, 0) != 0 && errno == ESRCH;
      });
      if (reaped == 0) return table;
    }
  }

  // All descendants of the roots and of what was found before, the members of the roots' sessions, and the processes
  // with their marks; without the roots.
  [[nodiscard]] std::vector<process::ProcessRecord> members(const std::vector<process::ProcessRecord>& table) {
    std::multimap<pid_t, const process::ProcessRecord*> children;
    for (const auto& record : table) children.emplace(record.parent, &record);
    std::set<pid_t> seen = {::getpid()};
    std::vector<process::ProcessRecord> tree;
    std::vector<pid_t> parents;
    for (const auto& [pid, pidfd] : trails_.roots) {
      seen.insert(pid);
      parents.push_back(pid);
    }
    const auto add = [&](const process::ProcessRecord& record) {
      if (!seen.insert(record.pid).second) return;
      tree.push_back(record);
      parents.push_back(record.pid);
    };
    for (const auto& record : table) {
      if (is_known(record) || trails_.roots.contains(record.session) || is_marked(record)) add(record);
    }
    for (std::size_t next = 0; next < parents.size(); ++next) {  // NOLINT(modernize-loop-convert): it grows
      const auto [first, last] = children.equal_range(parents[next]);
      for (auto child = first; child != last; ++child) add(*child->second);
    }
    return tree;
  }

  Trails trails_;
  bool adopts_all_;
  std::map<pid_t, Quarry> found_;
  Deadline doubt_ = Deadline::after(kTimeToDoubt);
  bool is_blind_ = false;   // the last scan failed
  bool is_unsure_ = false;  // it showed a process that could not be read
};

}  // namespace

namespace process {

WaitResult kill_trees(std::span<const TreeRoot> roots, Deadline deadline) {
  const TraceSpan span("process.kill_trees", roots.size());
  Trails trails{.are_all_marked = std::ranges::none_of(roots, &std::string::empty, &TreeRoot::mark),
                .earliest_start = std::numeric_limits<std::uint64_t>::max()};
  for (const auto& root : roots) {
    require(root.pid > 1 && root.pid != ::getpid(), "the root of a process tree to kill must be another process");
    // It was reaped, so its id and session id may belong to an unrelated process by now; its mark is still unique.
    const bool is_reaped = pidfd_send_signal(root.pidfd, 0) != 0 && errno == ESRCH;
    const auto record = is_reaped ? std::nullopt : read_process(root.pid);
    if (!is_reaped) trails.roots.emplace(root.pid, root.pidfd);
    if (root.mark.empty()) continue;
    trails.marks.insert(root.mark);
    trails.earliest_start = std::min(trails.earliest_start, record ? record->start : 0);
  }
  if (trails.roots.empty() && trails.marks.empty()) return WaitResult::done;
  TreeHunt hunt(std::move(trails));
  bool is_done = hunt.run(deadline);
  for (const auto& root : roots) is_done = pidfd_wait(root.pidfd, deadline) && is_done;
  hunt.reap_adopted();
  return is_done ? WaitResult::done : WaitResult::timed_out;
}

}  // namespace process

WaitResult kill_tree(pid_t root, int pidfd, Deadline deadline) {
  return process::kill_trees(std::array{process::TreeRoot{.pid = root, .pidfd = pidfd, .mark = {}}}, deadline);
}

// If this process adopts orphans, descendants can be killed at once without losing track of any. So none is left
// stopped if this process, which may be about to end, is killed meanwhile.
WaitResult kill_descendants(Deadline deadline) {
  int adopts = 0;
  ::prctl(PR_GET_CHILD_SUBREAPER, &adopts);
  TreeHunt hunt({.roots = {{::getpid(), -1}}, .marks = {}}, adopts != 0);
  const bool is_done = hunt.run(deadline);
  hunt.reap_adopted();
  return is_done ? WaitResult::done : WaitResult::timed_out;
}

}  // namespace drover
