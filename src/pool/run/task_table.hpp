// pool/run/task_table.hpp: the registered tasks of this program.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "drover/base/mutex.hpp"
#include "drover/pool/task.hpp"

namespace drover::pool {

/// Filled before main, read after. Thread-safe.
class TaskTable {
 public:
  /// The table of this program.
  [[nodiscard]] static TaskTable& instance();

  /// Adds a task. `close` reports a duplicate name. Throws `Errc::invalid_argument` for an empty name, and once
  /// closed.
  const RegisteredTask& add(const std::string& name, std::string signature, TaskBody body) DROVER_EXCLUDES(mutex_);
  /// Closes the table and numbers its tasks. Throws `Errc::invalid_argument` if two tasks have the same name.
  void close() DROVER_EXCLUDES(mutex_);
  /// The task of this name. Throws `Errc::not_found`, with some existing names.
  [[nodiscard]] const RegisteredTask& find(const std::string& name) const DROVER_EXCLUDES(mutex_);
  /// The task of this index; nullptr if there is none. Requires: closed.
  [[nodiscard]] const RegisteredTask* at(std::uint32_t index) const noexcept;
  /// All tasks, in the order of their indices. Requires: closed.
  [[nodiscard]] const std::vector<const RegisteredTask*>& all() const noexcept { return in_order_; }
  /// A hash of all names and signatures, to tell programs apart. Requires: closed.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return fingerprint_; }

 private:
  mutable Mutex mutex_;
  std::map<std::string, RegisteredTask> tasks_ DROVER_GUARDED_BY(mutex_);
  std::string taken_twice_ DROVER_GUARDED_BY(mutex_);
  bool is_closed_ DROVER_GUARDED_BY(mutex_) = false;
  std::vector<const RegisteredTask*> in_order_;  // set by `close`
  std::uint64_t fingerprint_ = 0;                // set by `close`
};

}  // namespace drover::pool
