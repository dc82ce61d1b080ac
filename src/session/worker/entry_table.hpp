// session/worker/entry_table.hpp: the functions that workers of this program can run.
#pragma once

#include <map>
#include <string>

#include "drover/base/mutex.hpp"
#include "drover/session/worker.hpp"

namespace drover {

/// Filled before main, read after. Safe for all threads.
class EntryTable {
 public:
  /// That of this program.
  [[nodiscard]] static EntryTable& instance();

  /// Adds a function; a name that is taken is remembered for `close`. Throws `Errc::invalid_argument` when closed,
  /// and for a name that is empty or a body that is none.
  void add(const std::string& name, EntryBody body) DROVER_EXCLUDES(mutex_);
  /// Takes no more. Throws `Errc::invalid_argument` if a name was given twice.
  void close() DROVER_EXCLUDES(mutex_);
  /// The function of this name; throws `Errc::not_found`, naming all there are, if there is none.
  [[nodiscard]] const EntryBody& find(const std::string& name) const DROVER_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<std::string, EntryBody> entries_ DROVER_GUARDED_BY(mutex_);
  std::string taken_twice_ DROVER_GUARDED_BY(mutex_);
  bool is_closed_ DROVER_GUARDED_BY(mutex_) = false;
};

}  // namespace drover
