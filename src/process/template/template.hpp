// process/template/template.hpp: a process with modules loaded, from which children are forked in milliseconds.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drover/base/clock.hpp"

namespace drover::process {

/// How to start a template, and which children it can start.
struct TemplateCommand {
  std::string executable;              ///< path of the executable of the template and its children
  std::vector<std::string> arguments;  ///< its arguments, which must lead to a TemplateServer
  std::vector<std::pair<std::string, std::string>>
      environment;  ///< added to that of this process, for the template only
  /// Prefixes of the arguments of its children. Any other child, or one with another executable, is cloned.
  std::vector<std::vector<std::string>> starts;
  /// Time limit for forking a child, which takes milliseconds. A template that exceeds it must have been stopped and
  /// is killed.
  std::chrono::milliseconds patience = std::chrono::seconds(20);
  /// Time limit for becoming ready: importing the largest frameworks from a cold disk takes tens of seconds. A
  /// template that exceeds it is killed and not started again.
  std::chrono::milliseconds time_to_load = std::chrono::seconds(120);
  /// Whether it is nobody's child and its output is discarded, so that a program which never uses it does not notice
  /// it. It must watch the application itself, and ends when that has.
  bool is_detached = false;
};

/// Whether a template can fork children.
enum class Readiness {
  ready,        ///< now
  loading,      ///< not yet
  unavailable,  ///< never: it failed, was ended, or belongs to the parent of this process
};

class RunningTemplate;

/// A template as seen by the application. While it is in use, `ChildProcess::spawn` and `Process::start` fork
/// matching children from it. Such a child respects its SpawnOptions, is killed and waited for like any other, and
/// ends with the application. A child is cloned instead if the template is gone or not clean, or if the application
/// now has another user, process group or session than when the template was started, or other variables that are
/// read when libraries load (PYTHON*, LD_*, OMP_* and the like). A template that dies is started again when needed,
/// but not after it died three times in a row before it was ready. Thread-safe. In a forked child it does not exist.
class Template {
 public:
  /// Does not start the process yet. Throws `Errc::invalid_argument` for an executable without '/'.
  explicit Template(TemplateCommand command);
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;
  /// Kills it. Its children live on, but their exit status will be unknown.
  ~Template();

  /// Makes `ChildProcess::spawn` use it instead of any other template.
  void use();
  /// Makes `ChildProcess::spawn` use no template.
  static void use_none();

  /// Takes over a process that was started before; `start` starts another one only when that has ended. Requires:
  /// none was started yet.
  void adopt(std::shared_ptr<RunningTemplate> early);
  /// Starts it unless it runs. Does not wait until it is ready.
  void start();
  /// Starts it and waits until it is ready or never will be; `loading` if the deadline passes first.
  [[nodiscard]] Readiness wait_ready(Deadline deadline);
  /// Its report on becoming ready: a line for each thing that it left out, with the reason.
  [[nodiscard]] std::string notes() const;
  /// Its process id; 0 if it does not run.
  [[nodiscard]] pid_t pid() const;
  /// The number of children forked so far.
  [[nodiscard]] std::size_t forks() const;
  /// Whether the attributes that a child cannot be given later are still those of this process; otherwise a new
  /// template is needed.
  [[nodiscard]] bool fits() const;

  /// Stops using it and does not start it again. It ends once its children have ended.
  void retire();
  /// Whether it was retired and has ended.
  [[nodiscard]] bool is_over() const;
  /// Kills it and does not start it again.
  void end();

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with threads that are starting a child
};

}  // namespace drover::process
