// process/template/template_state.hpp: a template as the application keeps it: when it is started, asked, and given
// up.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/base/mutex.hpp"
#include "drover/process/template.hpp"
#include "process/spawn/child_watch.hpp"
#include "process/spawn/spawner.hpp"
#include "process/template/template_facts.hpp"
#include "process/template/template_wire.hpp"

namespace drover {

/// Which of TemplateCommand::starts a child begins with, and how many arguments of its own it has.
struct OrderedStart {
  std::size_t index = 0;
  std::size_t own_arguments = 0;
};

/// One process that is a template, from its start to its end.
class RunningTemplate {
 public:
  /// Starts it.
  explicit RunningTemplate(const TemplateCommand& command);

  /// Waits until it is ready; false if it has ended, or the deadline passes first.
  [[nodiscard]] bool wait_ready(Deadline deadline) DROVER_EXCLUDES(mutex_);
  /// What became of an order.
  enum class Outcome {
    started,   ///< there is a child
    declined,  ///< there is none, and another template would give none either
    lost,      ///< the template is gone
  };
  /// Orders a child and waits until everything holds for it. Requires: it is ready.
  [[nodiscard]] Outcome order(const SpawnOptions& options, const OrderedStart& start, Spawned& spawned);
  /// Whether it was ready once.
  [[nodiscard]] bool was_ready() const noexcept { return is_ready_; }
  [[nodiscard]] std::string notes() const DROVER_EXCLUDES(mutex_);
  [[nodiscard]] pid_t pid() const noexcept { return process_.pid(); }
  [[nodiscard]] bool has_ended() const noexcept;
  /// Whether a child with our environment could be forked from it now.
  [[nodiscard]] bool fits() const;
  /// Lets it end once its children have.
  void close() noexcept;
  /// Ends it now.
  void kill() noexcept;
  /// Makes sure that it is dead after an order was lost, unless it was closed and so takes none.
  void bury() noexcept;

 private:
  [[nodiscard]] bool take_ready(bool has_news) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] static TemplateOrder to_order(SpawnPlan& plan, const OrderedStart& start);
  [[nodiscard]] Outcome await_start(const Fd& socket, Spawned& spawned);
  void give_up(const Fd& socket) noexcept;
  void complain(const std::string& why);

  std::shared_ptr<ChildWatch> watch_;  // whose thread started it, and must live as long
  Fd control_;
  ChildProcess process_;
  TemplateFacts facts_;  // of this process when it was started
  std::chrono::milliseconds patience_;
  mutable Mutex mutex_;
  std::string notes_ DROVER_GUARDED_BY(mutex_);
  std::atomic<bool> is_ready_ = false;
  std::atomic<bool> is_closed_ = false;
  std::atomic<bool> has_complained_ = false;
};

/// See Template.
class Template::State final : public Spawner {
 public:
  explicit State(TemplateCommand command);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() override = default;

  [[nodiscard]] std::optional<Spawned> spawn(const SpawnOptions& options) override;
  /// The one that runs, started now if there is none; nothing if it was given up, or in a forked child.
  [[nodiscard]] std::shared_ptr<RunningTemplate> running() DROVER_EXCLUDES(mutex_);
  [[nodiscard]] bool wait_ready(Deadline deadline);
  [[nodiscard]] std::string notes() const;
  [[nodiscard]] pid_t pid() const;
  [[nodiscard]] std::size_t forks() const noexcept { return forks_; }
  [[nodiscard]] bool fits() const;
  void retire() DROVER_EXCLUDES(mutex_);
  [[nodiscard]] bool is_over() const;
  void end() noexcept DROVER_EXCLUDES(mutex_);

 private:
  [[nodiscard]] std::optional<OrderedStart> start_of(const SpawnOptions& options) const;
  [[nodiscard]] std::shared_ptr<RunningTemplate> current() const DROVER_EXCLUDES(mutex_);

  const TemplateCommand command_;
  const pid_t process_;
  std::atomic<std::size_t> forks_ = 0;
  mutable Mutex mutex_;
  std::shared_ptr<RunningTemplate> running_ DROVER_GUARDED_BY(mutex_);  // shared: somebody may be waiting for it
  bool is_closed_ DROVER_GUARDED_BY(mutex_) = false;
  int failures_ DROVER_GUARDED_BY(mutex_) = 0;
};

}  // namespace drover
