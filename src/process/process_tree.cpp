#include "drover/process/process_tree.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "drover/base/log.hpp"
#include "drover/base/trace.hpp"
#include "process/pidfd.hpp"
#include "process/process_table.hpp"

namespace drover {
namespace {

constexpr std::chrono::seconds kTimeToStop{2};
constexpr std::chrono::microseconds kPause{200};

// A process that was found, named exactly.
class Quarry {
 public:
  explicit Quarry(const ProcessRecord& record)
      : record_(record), pidfd_(sys::call("pidfd_open", pidfd_open, record.pid)) {}

  // Whether the pidfd names what the table showed, and not a process that got the same id since.
  [[nodiscard]] bool is_the_one() const {
    const auto now = read_process(record_.pid);
    return now && now->start == record_.start;
  }
  void signal(int number) const noexcept {
    const int result =
        pidfd_.is_open() ? pidfd_send_signal(pidfd_.get(), number) : (is_the_one() ? ::kill(record_.pid, number) : 0);
    if (result != 0 && errno != ESRCH) {
      log(LogLevel::warn, "a process below one of ours cannot be killed; another user may own it", record_.pid);
    }
  }
  // False if the deadline passes first.
  [[nodiscard]] bool wait(Deadline deadline) const noexcept {
    return !pidfd_.is_open() || pidfd_wait(pidfd_.get(), deadline);
  }
  // An orphan that fell to us when its parent died; nobody else knows of it.
  void reap_if_adopted() const noexcept {
    if (record_.parent == ::getpid()) return;
    const auto now = read_process(record_.pid);
    if (now && now->start == record_.start && now->parent == ::getpid() && now->has_ended()) {
      ::waitpid(record_.pid, nullptr, WNOHANG);
    }
  }
  [[nodiscard]] const ProcessRecord& record() const noexcept { return record_; }

 private:
  ProcessRecord record_;
  Fd pidfd_;
};

class TreeHunt {
 public:
  explicit TreeHunt(std::set<pid_t> roots, std::vector<std::string> marks = {})
      : roots_(std::move(roots)), marks_(std::move(marks)) {}

  // Finds and kills until nobody is left below the roots. False if some do not die.
  [[nodiscard]] bool run(Deadline deadline) {
    const auto patience = Deadline::at(std::min(deadline.moment(), Deadline::after(kTimeToStop).moment()));
    while (freeze(patience)) {
      for (const auto& [pid, quarry] : found_) quarry.signal(SIGKILL);
      const auto ends = [&](const auto& entry) { return entry.second.wait(deadline); };
      if (!std::ranges::all_of(found_, ends) || deadline.has_passed()) return false;
    }
    return true;
  }
  void reap_adopted() const noexcept {
    for (const auto& [pid, quarry] : found_) quarry.reap_if_adopted();
  }

 private:
  // Stops everything. One look can miss a process that was started while it was taken, so two looks in a row must
  // show nobody new and nobody who moves. Returns whether anybody is there.
  bool freeze(Deadline patience) {
    int looks_to_go = 2;
    bool is_anybody_there = false;
    while (looks_to_go > 0) {
      const auto tree = members();
      is_anybody_there = std::ranges::any_of(tree, [](const auto& member) { return !member.has_ended(); });
      looks_to_go = stop(tree) && roots_stand_still() ? looks_to_go - 1 : 2;
      if (patience.has_passed()) break;
      if (looks_to_go == 2) std::this_thread::sleep_for(kPause);
    }
    return is_anybody_there;
  }

  // Whether all of them were known and stand still already.
  bool stop(const std::vector<ProcessRecord>& tree) {
    bool is_settled = true;
    for (const auto& member : tree) {
      if (member.has_ended()) continue;
      if (is_known(member)) {
        is_settled = is_settled && member.stands_still();
        continue;
      }
      is_settled = false;
      Quarry quarry(member);
      if (!quarry.is_the_one()) continue;
      quarry.signal(SIGSTOP);
      found_.insert_or_assign(member.pid, std::move(quarry));
    }
    return is_settled;
  }

  [[nodiscard]] bool roots_stand_still() const {
    return std::ranges::all_of(roots_, [](pid_t pid) {
      const auto root = read_process(pid);
      return pid == ::getpid() || !root || root->stands_still();
    });
  }

  [[nodiscard]] bool is_known(const ProcessRecord& record) const {
    const auto known = found_.find(record.pid);
    return known != found_.end() && known->second.record().start == record.start;
  }

  [[nodiscard]] bool is_marked(const ProcessRecord& record) const {
    return std::ranges::any_of(marks_, [&](const auto& mark) { return was_started_with(record.pid, mark); });
  }

  // Everything below the roots or below what was found before, everything in the roots' sessions, and everything with
  // their marks; without the roots.
  [[nodiscard]] std::vector<ProcessRecord> members() const {
    const auto table = read_processes();
    std::multimap<pid_t, const ProcessRecord*> children;
    for (const auto& record : table) children.emplace(record.parent, &record);
    std::set<pid_t> seen = roots_;
    seen.insert(::getpid());
    std::vector<ProcessRecord> tree;
    std::vector<pid_t> parents(roots_.begin(), roots_.end());
    const auto add = [&](const ProcessRecord& record) {
      if (!seen.insert(record.pid).second) return;
      tree.push_back(record);
      parents.push_back(record.pid);
    };
    for (const auto& record : table) {
      if (is_known(record) || roots_.contains(record.session) || is_marked(record)) add(record);
    }
    for (std::size_t next = 0; next < parents.size(); ++next) {  // NOLINT(modernize-loop-convert): it grows
      const auto [first, last] = children.equal_range(parents[next]);
      for (auto child = first; child != last; ++child) add(*child->second);
    }
    return tree;
  }

  std::set<pid_t> roots_;
  std::vector<std::string> marks_;
  std::map<pid_t, Quarry> found_;
};

}  // namespace

WaitResult kill_trees(std::span<const TreeRoot> roots, Deadline deadline) {
  const TraceSpan span("process.kill_trees", roots.size());
  std::set<pid_t> pids;
  std::vector<std::string> marks;
  for (const auto& root : roots) {
    require(root.pid > 1 && root.pid != ::getpid(), "the root of a tree to be killed is another process");
    // Reaped by somebody: its id and that of its session may be a stranger's by now.
    const bool is_reaped = pidfd_send_signal(root.pidfd, SIGSTOP) != 0 && errno == ESRCH;
    if (is_reaped) continue;
    pids.insert(root.pid);
    if (!root.mark.empty()) marks.push_back(root.mark);
  }
  if (pids.empty()) return WaitResult::done;
  TreeHunt hunt(std::move(pids), std::move(marks));
  bool is_done = hunt.run(deadline);
  for (const auto& root : roots) static_cast<void>(pidfd_send_signal(root.pidfd, SIGKILL));
  for (const auto& root : roots) is_done = pidfd_wait(root.pidfd, deadline) && is_done;
  hunt.reap_adopted();
  return is_done ? WaitResult::done : WaitResult::timed_out;
}

WaitResult kill_tree(pid_t root, int pidfd, Deadline deadline) {
  return kill_trees(std::array{TreeRoot{.pid = root, .pidfd = pidfd, .mark = {}}}, deadline);
}

WaitResult kill_descendants(Deadline deadline) {
  TreeHunt hunt({::getpid()});
  const bool is_done = hunt.run(deadline);
  hunt.reap_adopted();
  return is_done ? WaitResult::done : WaitResult::timed_out;
}

}  // namespace drover
