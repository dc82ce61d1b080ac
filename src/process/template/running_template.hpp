// process/template/running_template.hpp: one template process, as seen by the application.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/base/mutex.hpp"
#include "process/spawn/child_watch.hpp"
#include "process/spawn/spawn.hpp"
#include "process/template/template.hpp"
#include "process/template/template_facts.hpp"
#include "process/template/template_wire.hpp"

namespace drover::process {

/// The entry of TemplateCommand::starts that a child matches, and the number of its further arguments.
struct OrderedStart {
  std::size_t index = 0;
  std::size_t own_arguments = 0;
};

/// Owns one template process.
class RunningTemplate {
 public:
  /// Starts the process.
  explicit RunningTemplate(const TemplateCommand& command);
  RunningTemplate(const RunningTemplate&) = delete;
  RunningTemplate& operator=(const RunningTemplate&) = delete;
  /// Kills it. Does not wait for the end of a detached one.
  ~RunningTemplate();

  /// Sends it a text, which TemplateServer::await_word returns there. False if it has ended.
  [[nodiscard]] bool tell(std::string_view text) const;

  /// Waits until it is ready; false if it ends or the deadline passes first.
  [[nodiscard]] bool wait_ready(Deadline deadline) DROVER_EXCLUDES(mutex_);
  /// The result of an order.
  enum class Outcome {
    started,   ///< the child runs
    declined,  ///< no child, and no other template would start it either
    lost,      ///< the template is gone
  };
  /// Orders a child and waits until its options are in force. Requires: the template is ready.
  [[nodiscard]] Outcome order(const SpawnOptions& options, const OrderedStart& start, Spawned& spawned);
  /// Whether it has ever been ready.
  [[nodiscard]] bool was_ready() const noexcept { return is_ready_; }
  [[nodiscard]] std::string notes() const DROVER_EXCLUDES(mutex_);
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] bool has_ended() const noexcept;
  /// Whether a child with the environment of this process could be forked from it now.
  [[nodiscard]] bool fits() const;
  /// Makes it end once its children have ended.
  void close() noexcept;
  /// Kills it.
  void kill() noexcept;
  /// Kills and reaps it after an order was lost, unless it was closed and so takes no orders.
  void reap() noexcept;

 private:
  void start_child(const SpawnOptions& options);
  void start_detached(const SpawnOptions& options);
  [[nodiscard]] int pidfd() const noexcept { return child_ ? child_->pidfd() : detached_.get(); }
  [[nodiscard]] bool take_ready(bool has_news) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] static TemplateOrder to_order(SpawnPlan& plan, const OrderedStart& start);
  [[nodiscard]] Outcome await_start(const Fd& socket, Spawned& spawned);
  void give_up(const Fd& socket) noexcept;
  void log_once(const std::string& why);

  std::shared_ptr<ChildWatch> watch_;  // its thread started the child and must outlive it; none for a detached one
  Fd control_;
  pid_t pid_ = 0;
  std::optional<ChildProcess> child_;
  Fd detached_;  // its pidfd, if it is not a child
  pid_t owner_;
  TemplateFacts facts_;  // of the application when the template was started
  std::chrono::milliseconds patience_;
  mutable Mutex mutex_;
  std::string notes_ DROVER_GUARDED_BY(mutex_);
  std::atomic<bool> is_ready_ = false;
  std::atomic<bool> is_closed_ = false;
  std::atomic<bool> has_logged_ = false;
};

}  // namespace drover::process
