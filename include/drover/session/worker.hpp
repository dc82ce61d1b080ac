// drover/session/worker.hpp: a worker process, as the code that runs in it sees it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "drover/session/session.hpp"

namespace drover {

/// This process in the role of a worker: what an entry is given. Belongs to the thread that runs the entry.
class Worker {
 public:
  /// Made by drover::init.
  Worker(std::string name, std::vector<std::string> arguments, const Session& session)
      : name_(std::move(name)), arguments_(std::move(arguments)), session_(session) {}

  /// As in ProcessOptions: "worker-2".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// As in ProcessOptions.
  [[nodiscard]] const std::vector<std::string>& arguments() const noexcept { return arguments_; }
  /// The session it was started into and has joined.
  [[nodiscard]] Session& session() noexcept { return session_; }

 private:
  std::string name_;
  std::vector<std::string> arguments_;
  Session session_;
};

/// What a worker runs. When it returns, the process exits with status 0; when it throws, with status 70, and
/// `Process::failure` has the exception's text.
using EntryBody = std::function<void(Worker& worker)>;

/// The name of a function that workers can run.
class Entry {
 public:
  /// Made by `entry`.
  explicit Entry(std::string name) : name_(std::move(name)) {}
  /// Its name.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// The same, so that an entry can be given where its name is asked for: `.entry = sum_up`.
  operator const std::string&() const noexcept { return name_; }  // NOLINT(google-explicit-constructor)

 private:
  std::string name_;
};

/// Makes a function known to this program's workers. To be called before main, as the initialiser of a variable of a
/// namespace, so that it is known in every process of the program:
///
///     const auto sum_up = drover::entry("sum_up", [](drover::Worker& worker) { ... });
///
/// A name that is taken is reported by drover::init. Throws `Errc::invalid_argument` when called after that.
[[nodiscard]] Entry entry(const std::string& name, EntryBody body);

}  // namespace drover
