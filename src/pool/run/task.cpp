#include "drover/pool/task.hpp"

#include <utility>

#include <fmt/format.h>

#include "pool/run/pool_core.hpp"

namespace drover::detail {

TaskCall::TaskCall(const RegisteredTask& task, Encoder arguments, const TaskOptions& options)
    : task_(&task), options_(options) {
  auto [bytes, tensors] = arguments.take();
  arguments_ = std::move(bytes);
  tensors_ = std::move(tensors);
}

TaskCall::~TaskCall() = default;

std::string TaskCall::describe_call() const { return fmt::format("task {} '{}'", number, task_->name); }

void TaskCall::release_arguments() noexcept {
  arguments_ = {};
  tensors_ = {};
}

bool TaskCall::cancel_call(FutureState& state) {
  if (state.is_done()) return false;
  const auto core = pool.lock();
  return core != nullptr && core->cancel(*this, state);
}

}  // namespace drover::detail
