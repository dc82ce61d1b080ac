// session/worker/entry_table.hpp: the functions that workers of this program can run.
#pragma once

#include <map>
#include <string>

#include "drover/base/mutex.hpp"
#include "drover/session/worker.hpp"

namespace drover::session {

/// Filled before main, read afterwards. Thread-safe.
class EntryTable {
 public:
  /// The table of this program.
  [[nodiscard]] static EntryTable& instance();

  /// Adds a function; records a duplicate name for `close`. Throws `Errc::invalid_argument` if closed, and for an
  /// empty name or body.
  void add(const std::string& name, EntryBody body) DROVER_EXCLUDES(mutex_);
  /// Closes the table. Throws `Errc::invalid_argument` if a name was added twice.
  void close() DROVER_EXCLUDES(mutex_);
  /// The function of a name. Throws `Errc::not_found`, with all names, if there is none.
  [[nodiscard]] const EntryBody& find(const std::string& name) const DROVER_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<std::string, EntryBody> entries_ DROVER_GUARDED_BY(mutex_);
  std::string taken_twice_ DROVER_GUARDED_BY(mutex_);
  bool is_closed_ DROVER_GUARDED_BY(mutex_) = false;
};

}  // namespace drover::session
