// drover/pool/task_call.hpp: one task that was submitted, as the pool knows it.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drover/pool/codec.hpp"
#include "drover/pool/future.hpp"
#include "drover/pool/task.hpp"
#include "drover/pool/task_options.hpp"

namespace drover {

class PoolCore;

namespace detail {

/// A task with its arguments, until it is done. What it is told by its constructor does not change; the rest belongs
/// to the pool.
class TaskCall {
 public:
  TaskCall(const RegisteredTask& task, Encoder arguments, const TaskOptions& options);
  TaskCall(const TaskCall&) = delete;
  TaskCall& operator=(const TaskCall&) = delete;
  virtual ~TaskCall();

  /// Reads the result and ends the future.
  virtual void deliver(Decoder& from) = 0;
  /// Ends the future with an error; does nothing if it is done.
  virtual void refuse(std::exception_ptr error) = 0;
  /// Whether nobody waits for a result any more: it is done, or was cancelled.
  [[nodiscard]] virtual bool is_over() const noexcept = 0;

  [[nodiscard]] const RegisteredTask& task() const noexcept { return *task_; }
  [[nodiscard]] const std::string& arguments() const noexcept { return arguments_; }
  [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const TaskOptions& options() const noexcept { return options_; }
  /// "task 17 'sum'"; one that runs functions of another language has their names.
  [[nodiscard]] virtual std::string describe_call() const;

  std::uint64_t number = 0;      ///< in the order of submission, from 1; never used twice in a pool
  int deaths = 0;                ///< workers that died while they ran it
  int untaken = 0;               ///< workers that died when they were to take it in, before they began it
  bool has_timed_out = false;    ///< it was interrupted, or its worker killed, for that
  bool is_cancel_asked = false;  ///< while it ran: it is not begun again
  bool is_kept_home = false;     ///< its tensors could not be brought to another device: that is not tried again
  std::size_t lane = 0;          ///< who may run it; see pool/pending.hpp
  std::weak_ptr<PoolCore> pool;  ///< while it is not done

 protected:
  /// Asks the pool not to run it; see Future::cancel.
  bool cancel_call(FutureState& state);
  /// Lets go of arguments, and of the memory of tensors, which nobody needs when it is done.
  void release_arguments() noexcept;

 private:
  const RegisteredTask* task_;
  std::string arguments_;
  std::vector<Tensor> tensors_;
  TaskOptions options_;
};

/// The same with the future of its result.
template <class Result>
class TaskFuture final : public FutureValue<Result>, public TaskCall {
 public:
  using TaskCall::TaskCall;

  void deliver(Decoder& from) override {
    release_arguments();
    set_from(*this, [&]() -> Result {
      if constexpr (!std::is_void_v<Result>) return Codec<Result>::read(from);
    });
  }
  void refuse(std::exception_ptr error) override {
    release_arguments();
    this->fail(std::move(error));
  }
  [[nodiscard]] bool is_over() const noexcept override { return this->is_done(); }
  bool cancel() override { return cancel_call(*this); }
  [[nodiscard]] std::string describe() const override { return "the result of " + describe_call(); }
};

}  // namespace detail

}  // namespace drover
