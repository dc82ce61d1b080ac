// drover/process/template.hpp: a process from which others are forked, with everything they need loaded already.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drover/base/clock.hpp"

namespace drover {

/// How a template is started, and which children it can stand for.
struct TemplateCommand {
  std::string executable;                                        ///< path of what runs it, and would run the children
  std::vector<std::string> arguments;                            ///< its own; they must lead to a TemplateServer
  std::vector<std::pair<std::string, std::string>> environment;  ///< set on top of ours, for it alone
  /// What the arguments of its children begin with. A child that begins otherwise, or is run by another executable,
  /// is started in the usual way.
  std::vector<std::vector<std::string>> starts;
  /// How long it may take to fork a child, which takes milliseconds. One that takes longer was stopped, and is
  /// killed.
  std::chrono::milliseconds patience = std::chrono::seconds(20);
};

/// A template as the application sees it. While it is in use, `ChildProcess::spawn` and `Process::start` fork from it
/// what it can stand for. Such a child has what SpawnOptions say, is killed and waited for as any other, and ends
/// with the application. Where something cannot hold, the child is started in the usual way, as if there were no
/// template: the template is gone, or says that it is not clean; the application has another user, process group or
/// session than when the template was started, or other variables that are read when libraries load (PYTHON*, LD_*,
/// OMP_* and the like). A template that dies is started again when it is needed. Safe for all threads. In a forked
/// child it is as if it did not exist.
class Template {
 public:
  /// Starts nothing yet. Throws `Errc::invalid_argument` for an executable without '/'.
  explicit Template(TemplateCommand command);
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;
  /// Kills it. Its children live on, but nobody will know how they ended.
  ~Template();

  /// Lets `ChildProcess::spawn` use it from now on, in place of any other.
  void use();
  /// Lets nobody use one.
  static void use_none();

  /// Starts it, if it does not run, without waiting until it is ready.
  void start();
  /// Starts it and waits until it is ready. False if the deadline passes first, or if it cannot be started.
  [[nodiscard]] bool wait_ready(Deadline deadline);
  /// What it said when it became ready: each line about something it left out, and why.
  [[nodiscard]] std::string notes() const;
  /// Its process id; 0 if it does not run.
  [[nodiscard]] pid_t pid() const;
  /// How many children were forked from it so far.
  [[nodiscard]] std::size_t forks() const;
  /// Whether this process is still as it was when the template was started, in what a child cannot be given later;
  /// else another template is needed.
  [[nodiscard]] bool fits() const;

  /// Takes no more orders and starts it no more. It ends by itself once its children have ended.
  void retire();
  /// Whether one that was retired has ended.
  [[nodiscard]] bool is_over() const;
  /// Kills it now; it is not started again.
  void end();

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with those who start a child at this moment
};

}  // namespace drover
