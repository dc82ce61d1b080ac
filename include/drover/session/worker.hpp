// drover/session/worker.hpp: the first call of every program, and a worker as seen by the code that runs in it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "drover/session/session.hpp"

namespace drover {

/// Call this first in main. drover starts this program again for its workers and for the keeper of a session; in
/// those processes the call does the work and never returns. In the application it returns at once. Code before it,
/// and the initialisers of global variables, run in all of these processes.
///
/// Throws `Errc::invalid_argument` if two entries have the same name.
void init(int argc, char** argv);

/// This process in the role of a worker; the argument of its entry. For the thread that runs the entry only.
class Worker {
 public:
  /// Made by drover::init.
  Worker(std::string name, std::vector<std::string> arguments, const Session& session)
      : name_(std::move(name)), arguments_(std::move(arguments)), session_(session) {}

  /// The name given in ProcessOptions: "worker-2".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// The arguments given in ProcessOptions.
  [[nodiscard]] const std::vector<std::string>& arguments() const noexcept { return arguments_; }
  /// The session that it has joined.
  [[nodiscard]] Session& session() noexcept { return session_; }

 private:
  std::string name_;
  std::vector<std::string> arguments_;
  Session session_;
};

/// A function that a worker runs. When it returns, the process exits with status 0; when it throws, with status 70,
/// and `Process::failure` has the text of the exception.
using EntryBody = std::function<void(Worker& worker)>;

/// The name of a function that workers can run.
class Entry {
 public:
  /// Made by `entry`.
  explicit Entry(std::string name) : name_(std::move(name)) {}
  /// Its name.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Converts to the name: `.entry = sum_up`.
  operator const std::string&() const noexcept { return name_; }  // NOLINT(google-explicit-constructor)

 private:
  std::string name_;
};

/// Registers a function under a name for the workers of this program. Call it before main, as the initialiser of a
/// namespace-scope variable, so that every process of the program registers it:
///
///     const auto sum_up = drover::entry("sum_up", [](drover::Worker& worker) { ... });
///
/// drover::init reports duplicate names. Throws `Errc::invalid_argument` when called after drover::init.
[[nodiscard]] Entry entry(const std::string& name, EntryBody body);

}  // namespace drover
