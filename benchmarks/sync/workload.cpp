#include "sync/workload.hpp"

#include <vector>

#include <fmt/format.h>

namespace drover::bench {
namespace {

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::lock: return "lock";
    case Kind::semaphore: return "semaphore";
    case Kind::semaphore_turns: return "semaphores in turn";
    case Kind::event_turns: return "events in turn";
    case Kind::condition_turns: return "condition in turn";
    case Kind::barrier: return "barrier";
  }
  return "";
}

}  // namespace

std::string workload_name(const Cell& cell) {
  std::string kind = kind_name(cell.kind);
  if (task_of(cell.kind) == Task::turns) return kind;
  return cell.processes == 1 ? kind + ", alone" : fmt::format("{}, {} processes", kind, cell.processes);
}

Task task_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::lock:
    case Kind::semaphore: return Task::lock;
    case Kind::barrier: return Task::barrier;
    default: return Task::turns;
  }
}

std::string metric_name(const Cell& cell) {
  switch (task_of(cell.kind)) {
    case Task::lock: return "acquire + release";
    case Task::turns: return "hop";
    case Task::barrier: return "round";
  }
  return "";
}

std::span<const Contender> contenders() {
  static const std::vector<Contender> all = [] {
    std::vector<Contender> listed;
    for (const auto some : {drover_contenders(), posix_contenders(), boost_contenders(), futex_contenders()}) {
      listed.insert(listed.end(), some.begin(), some.end());
    }
    return listed;
  }();
  return all;
}

}  // namespace drover::bench
