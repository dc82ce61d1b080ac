#include "session/worker/entry_table.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/base/error.hpp"

namespace drover {

session::EntryTable& session::EntryTable::instance() {
  static auto* const table = new session::EntryTable;  // used before and after the lifetime of other globals
  return *table;
}

void session::EntryTable::add(const std::string& name, EntryBody body) {
  require(!name.empty() && body, "an entry needs a name and a function");
  const MutexLock lock(mutex_);
  if (is_closed_) {
    throw Error(Errc::invalid_argument, fmt::format("entry '{}' is registered after drover::init", name),
                "register it in the initialiser of a namespace-scope variable, so that workers register it too");
  }
  // An exception before main would end the program without a location, so drover::init throws it.
  if (!entries_.emplace(name, std::move(body)).second && taken_twice_.empty()) taken_twice_ = name;
}

void session::EntryTable::close() {
  const MutexLock lock(mutex_);
  is_closed_ = true;
  if (taken_twice_.empty()) return;
  throw Error(Errc::invalid_argument, fmt::format("two entries of this program have the name '{}'", taken_twice_),
              "give each entry a unique name");
}

const EntryBody& session::EntryTable::find(const std::string& name) const {
  const MutexLock lock(mutex_);
  if (const auto found = entries_.find(name); found != entries_.end()) return found->second;
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [known, body] : entries_) names.push_back(known);
  throw Error(Errc::not_found,
              fmt::format("this program has no entry '{}'; it has {}", name,
                          names.empty() ? "none" : fmt::format("'{}'", fmt::join(names, "', '"))),
              "register it before main: const auto name = drover::entry(\"name\", function)");
}

Entry entry(const std::string& name, EntryBody body) {
  session::EntryTable::instance().add(name, std::move(body));
  return Entry(name);
}

}  // namespace drover
