#include "pool/run/task_table.hpp"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/base/error.hpp"

namespace drover {
namespace {

constexpr std::size_t kMostNamed = 20;

// FNV-1a.
std::uint64_t hashed(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return (hash ^ 0xFFU) * 0x100000001b3ULL;
}

}  // namespace

const RegisteredTask& detail::register_task(const std::string& name, std::string signature, TaskBody body) {
  return pool::TaskTable::instance().add(name, std::move(signature), std::move(body));
}

pool::TaskTable& pool::TaskTable::instance() {
  static auto* const table = new pool::TaskTable;  // never destroyed, because destructors of globals may submit tasks
  return *table;
}

const RegisteredTask& pool::TaskTable::add(const std::string& name, std::string signature, TaskBody body) {
  require(!name.empty(), "a task has an empty name", "drover::task(\"sum\", function)");
  const MutexLock lock(mutex_);
  if (is_closed_) {
    throw Error(Errc::invalid_argument,
                fmt::format("the task '{}' was registered after the first pool started", name),
                "register tasks before main: const auto t = drover::task(...) at namespace scope");
  }
  const auto [at, is_new] = tasks_.try_emplace(name);
  if (!is_new) {
    taken_twice_ = name;
    return at->second;
  }
  at->second = {.name = name, .signature = std::move(signature), .body = std::move(body)};
  return at->second;
}

void pool::TaskTable::close() {
  const MutexLock lock(mutex_);
  if (!taken_twice_.empty()) {
    throw Error(Errc::invalid_argument, fmt::format("two tasks are named '{}'", taken_twice_),
                "give each task of the program a unique name");
  }
  if (std::exchange(is_closed_, true)) return;
  fingerprint_ = 0xcbf29ce484222325ULL;
  for (auto& [name, task] : tasks_) {
    task.index = static_cast<std::uint32_t>(in_order_.size());
    in_order_.push_back(&task);
    fingerprint_ = hashed(hashed(fingerprint_, name), task.signature);
  }
}

const RegisteredTask& pool::TaskTable::find(const std::string& name) const {
  const MutexLock lock(mutex_);
  if (const auto at = tasks_.find(name); at != tasks_.end()) return at->second;
  std::vector<std::string_view> names;
  for (const auto& [known, task] : tasks_) {
    if (names.size() < kMostNamed) names.emplace_back(known);
  }
  throw Error(Errc::not_found,
              fmt::format("no task is named '{}'; the {} tasks of this program: {}", name, tasks_.size(),
                          names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))),
              "register it before main: const auto t = drover::task(\"...\", function)");
}

const RegisteredTask* pool::TaskTable::at(std::uint32_t index) const noexcept {
  return index < in_order_.size() ? in_order_[index] : nullptr;
}

}  // namespace drover
