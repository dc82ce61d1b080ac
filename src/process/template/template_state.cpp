#include "process/template/template_state.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"

namespace drover::process {
namespace {

constexpr int kMostFailures = 3;

// A failure to order, such as too many open files, need not prevent a clone; if it does, the clone has the better
// error.
RunningTemplate::Outcome try_order(RunningTemplate& used, const SpawnOptions& options, const OrderedStart& start,
                                   Spawned& spawned) {
  try {
    return used.order(options, start, spawned);
  } catch (const Error& error) {
    log(LogLevel::info, std::string("the template is not used: ") + error.what());
    return RunningTemplate::Outcome::declined;
  }
}

}  // namespace

Template::State::State(TemplateCommand command) : command_(std::move(command)), process_(::getpid()) {}

std::optional<OrderedStart> Template::State::start_of(const SpawnOptions& options) const {
  if (options.executable != command_.executable) return std::nullopt;
  for (std::size_t i = 0; i < command_.starts.size(); ++i) {
    const auto& start = command_.starts[i];
    if (start.size() > options.arguments.size()) continue;
    if (!std::ranges::equal(start, std::span(options.arguments).first(start.size()))) continue;
    return OrderedStart{.index = i, .own_arguments = options.arguments.size() - start.size()};
  }
  return std::nullopt;
}

std::optional<Spawned> Template::State::spawn(const SpawnOptions& options) {
  const auto start = start_of(options);
  if (!start) return std::nullopt;
  // A template that died before is not the fault of the next.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto used = await_ready(Deadline::never()).second;
    if (!used) return std::nullopt;
    Spawned spawned;
    const auto outcome = try_order(*used, options, *start, spawned);
    if (outcome == RunningTemplate::Outcome::declined) return std::nullopt;
    if (outcome == RunningTemplate::Outcome::lost) {
      used->reap();
      continue;
    }
    ++forks_;
    return spawned;
  }
  return std::nullopt;
}

bool Template::State::would_wait(const SpawnOptions& options) {
  return start_of(options) && wait_ready(Deadline::after(std::chrono::seconds(0))) == Readiness::loading;
}

Template::State::Running Template::State::running() {
  if (process_ != ::getpid()) return {};
  const MutexLock lock(mutex_);
  if (is_closed_) return {};
  if (running_ && !running_->has_ended()) return {.process = running_, .loaded_by = loaded_by_};
  if (running_) failures_ = running_->was_ready() ? 0 : failures_ + 1;
  running_.reset();
  if (failures_ >= kMostFailures) {
    is_closed_ = true;
    log(LogLevel::warn,
        "the template process repeatedly ended before it was ready; from now on processes are started without it. "
        "See its standard error, or set DROVER_TEMPLATE=0");
    return {};
  }
  try {
    running_ = std::make_shared<RunningTemplate>(command_);
    loaded_by_ = Deadline::after(command_.time_to_load);
  } catch (const Error& error) {
    is_closed_ = true;
    log(LogLevel::warn,
        fmt::format("the template process cannot be started, so processes are started without it: {}", error.what()));
  }
  return {.process = running_, .loaded_by = loaded_by_};
}

// Ends: running() starts few templates that fail, and each has a time limit.
std::pair<Readiness, std::shared_ptr<RunningTemplate>> Template::State::await_ready(Deadline deadline) {
  for (;;) {
    const auto [used, loaded_by] = running();
    if (!used) return {Readiness::unavailable, nullptr};
    if (used->wait_ready(deadline.moment() < loaded_by.moment() ? deadline : loaded_by))
      return {Readiness::ready, used};
    if (used->has_ended()) continue;
    if (!loaded_by.has_passed()) return {Readiness::loading, nullptr};
    give_up(*used);
  }
}

void Template::State::give_up(RunningTemplate& hanging) {
  hanging.kill();
  const MutexLock lock(mutex_);
  if (is_closed_ || running_.get() != &hanging) return;
  is_closed_ = true;
  log(LogLevel::warn,
      fmt::format("the template process was not ready after {} s and was killed; from now on processes are started "
                  "without it. An import may hang: leave the module out of the preload, or set DROVER_TEMPLATE=0",
                  std::chrono::ceil<std::chrono::seconds>(command_.time_to_load).count()));
}

void Template::State::adopt(std::shared_ptr<RunningTemplate> early) {
  const MutexLock lock(mutex_);
  require(!running_ && !is_closed_, "a template that was started or ended cannot adopt a process");
  running_ = std::move(early);
  loaded_by_ = Deadline::after(command_.time_to_load);
}

std::shared_ptr<RunningTemplate> Template::State::current() const {
  if (process_ != ::getpid()) return nullptr;
  const MutexLock lock(mutex_);
  return running_;
}

Readiness Template::State::wait_ready(Deadline deadline) { return await_ready(deadline).first; }

std::string Template::State::notes() const {
  const auto used = current();
  return used ? used->notes() : "";
}

pid_t Template::State::pid() const {
  const auto used = current();
  return used && !used->has_ended() ? used->pid() : 0;
}

bool Template::State::fits() const {
  const auto used = current();
  return !used || used->has_ended() || used->fits();
}

void Template::State::retire() {
  if (process_ != ::getpid()) return;
  const MutexLock lock(mutex_);
  is_closed_ = true;
  if (running_) running_->close();
}

bool Template::State::is_over() const {
  const auto used = current();
  return !used || used->has_ended();
}

void Template::State::end() noexcept {
  if (process_ != ::getpid()) return;
  std::shared_ptr<RunningTemplate> last;
  {
    const MutexLock lock(mutex_);
    is_closed_ = true;
    last.swap(running_);
  }
  if (last) last->kill();
}

}  // namespace drover::process
