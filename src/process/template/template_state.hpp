// process/template/template_state.hpp: the state of a Template: which process serves it, and when to give up.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"
#include "process/spawn/spawner.hpp"
#include "process/template/running_template.hpp"
#include "process/template/template.hpp"

namespace drover::process {

/// See Template.
class Template::State final : public Spawner {
 public:
  explicit State(TemplateCommand command);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() override = default;

  [[nodiscard]] std::optional<Spawned> spawn(const SpawnOptions& options) override;
  [[nodiscard]] bool would_wait(const SpawnOptions& options) override;
  /// Starts the template unless it runs or never will.
  void start() { static_cast<void>(running()); }
  void adopt(std::shared_ptr<RunningTemplate> early) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] Readiness wait_ready(Deadline deadline) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::string notes() const;
  [[nodiscard]] pid_t pid() const;
  [[nodiscard]] std::size_t forks() const noexcept { return forks_; }
  [[nodiscard]] bool fits() const;
  void retire() DROVER_EXCLUDES(mutex_);
  [[nodiscard]] bool is_over() const;
  void end() noexcept DROVER_EXCLUDES(mutex_);

 private:
  struct Running {
    std::shared_ptr<RunningTemplate> process;  // nullptr after too many failures or in a forked child
    Deadline loaded_by = Deadline::never();
  };
  // The running template, started if there is none.
  [[nodiscard]] Running running() DROVER_EXCLUDES(mutex_);
  // The running template once it is ready; nullptr if it is not ready by then.
  [[nodiscard]] std::pair<Readiness, std::shared_ptr<RunningTemplate>> await_ready(Deadline deadline)
      DROVER_EXCLUDES(mutex_);
  void give_up(RunningTemplate& hanging) DROVER_EXCLUDES(mutex_);
  [[nodiscard]] std::optional<OrderedStart> start_of(const SpawnOptions& options) const;
  [[nodiscard]] std::shared_ptr<RunningTemplate> current() const DROVER_EXCLUDES(mutex_);

  const TemplateCommand command_;
  const pid_t process_;
  std::atomic<std::size_t> forks_ = 0;
  mutable Mutex mutex_;
  std::shared_ptr<RunningTemplate> running_ DROVER_GUARDED_BY(mutex_);  // shared: a thread may be waiting for it
  Deadline loaded_by_ DROVER_GUARDED_BY(mutex_) = Deadline::never();    // of running_
  bool is_closed_ DROVER_GUARDED_BY(mutex_) = false;
  int failures_ DROVER_GUARDED_BY(mutex_) = 0;
};

}  // namespace drover::process
