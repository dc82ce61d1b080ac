// pool/run/task_table.hpp: the tasks that this program has made known.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "drover/base/mutex.hpp"
#include "drover/pool/task.hpp"

namespace drover {

/// Filled before main, read after. Safe for all threads.
class TaskTable {
 public:
  /// That of this program.
  [[nodiscard]] static TaskTable& instance();

  /// Adds a task; a name that is taken is remembered for `close`. Throws `Errc::invalid_argument` when closed, and
  /// for a name that is empty.
  const RegisteredTask& add(const std::string& name, std::string signature, TaskBody body) DROVER_EXCLUDES(mutex_);
  /// Takes no more, and numbers what there is. Throws `Errc::invalid_argument` if a name was given twice.
  void close() DROVER_EXCLUDES(mutex_);
  /// The task of this name; throws `Errc::not_found`, naming some there are, if there is none.
  [[nodiscard]] const RegisteredTask& find(const std::string& name) const DROVER_EXCLUDES(mutex_);
  /// By its index; nothing if there is none. Requires: closed.
  [[nodiscard]] const RegisteredTask* at(std::uint32_t index) const noexcept;
  /// Of all, in the order of their indices. Requires: closed.
  [[nodiscard]] const std::vector<const RegisteredTask*>& all() const noexcept { return in_order_; }
  /// Of all names and signatures: differs where programs differ. Requires: closed.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return fingerprint_; }

 private:
  mutable Mutex mutex_;
  std::map<std::string, RegisteredTask> tasks_ DROVER_GUARDED_BY(mutex_);
  std::string taken_twice_ DROVER_GUARDED_BY(mutex_);
  bool is_closed_ DROVER_GUARDED_BY(mutex_) = false;
  std::vector<const RegisteredTask*> in_order_;  // set once, by `close`
  std::uint64_t fingerprint_ = 0;                // as above
};

}  // namespace drover
