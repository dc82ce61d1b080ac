// drover/pool/task.hpp: functions that workers of a pool can run.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "drover/pool/codec.hpp"
#include "drover/pool/future.hpp"

namespace drover {

/// What happens to a task whose worker dies.
class Retry {
 public:
  /// Never given to another worker, even if it had not begun.
  [[nodiscard]] static constexpr Retry never() noexcept { return {0, false}; }
  /// Given to another worker if it had not begun; one that had begun fails.
  [[nodiscard]] static constexpr Retry if_not_started() noexcept { return {0, true}; }
  /// Begun again at most so many times; for tasks that may run twice. PoolOptions::quarantine_after bounds it too.
  [[nodiscard]] static constexpr Retry times(int count) noexcept { return {count, true}; }

  /// How often it may be begun again.
  [[nodiscard]] constexpr int count() const noexcept { return count_; }
  /// Whether it is given to another worker if it had not begun.
  [[nodiscard]] constexpr bool is_moved() const noexcept { return is_moved_; }

 private:
  constexpr Retry(int count, bool is_moved) noexcept : count_(count), is_moved_(is_moved) {}
  int count_;
  bool is_moved_;
};

/// How a task is to be run.
struct TaskOptions {
  int priority = 0;                                         ///< higher ones first; equal ones in the order they came
  Retry retry = Retry::if_not_started();                    ///< if its worker dies
  std::chrono::nanoseconds timeout{0};                      ///< from its beginning in the worker; 0: none
  std::chrono::nanoseconds grace{std::chrono::seconds(1)};  ///< from the interrupt after `timeout` to the kill
  std::optional<std::size_t> worker;                        ///< the only worker that may run it, by its number
  /// Whether its tensors on devices may be copied to the device of an idle worker where that takes less time than
  /// waiting for a worker of theirs. For tasks that write in none of them: what is written in a copy is lost.
  bool may_relocate = false;
};

/// What a worker calls: reads arguments, writes the result.
using TaskBody = std::function<void(Decoder& from, Encoder& to)>;

/// A function that was made known under a name. Lives as long as the program.
struct RegisteredTask {
  std::string name;         ///< differs from all others
  std::string signature;    ///< of its types: "(tensor,int32) -> float64"
  TaskBody body;            ///< runs in a worker
  std::uint32_t index = 0;  ///< its place in the order of names; known when a pool exists
};

namespace detail {

/// Adds a task to those of this program. A name that is taken is reported by the first Pool.
const RegisteredTask& register_task(const std::string& name, std::string signature, TaskBody body);

template <class Result>
std::string result_name() {
  if constexpr (std::is_void_v<Result>) {
    return "nothing";
  } else {
    return Codec<Result>::name();
  }
}

template <class Result, class... Arguments>
std::string signature_of() {
  return names_of<Arguments...>("(", ")") + " -> " + result_name<Result>();
}

// The types by which a function's own types travel: `const Tensor&` as Tensor.
template <class Function>
struct TaskTypes;

template <class Returned, class... Arguments>
struct TaskTypes<std::function<Returned(Arguments...)>> {
  using Result = std::remove_cvref_t<Returned>;
  using Signature = Result(std::remove_cvref_t<Arguments>...);
  static_assert((!(std::is_lvalue_reference_v<Arguments> && !std::is_const_v<std::remove_reference_t<Arguments>>) &&
                 ...),
                "a task takes its arguments by value or const reference: it runs in another process");
};

}  // namespace detail

/// A task with the types of its arguments and result: `Task<double(Tensor)>`. A small handle.
template <class Signature>
class Task;

/// The one kind there is.
template <class Result, class... Arguments>
class Task<Result(Arguments...)> {
  static_assert((Codable<Arguments> && ...),
                "an argument of this task is of a type that drover::Codec does not know");
  static_assert(std::is_void_v<Result> || Codable<Result>,
                "the result of this task is of a type that drover::Codec does not know");

 public:
  /// Made by `task`.
  explicit Task(const RegisteredTask& registered) noexcept : registered_(&registered) {}
  /// Under which it is known.
  [[nodiscard]] const std::string& name() const noexcept { return registered_->name; }
  /// What is known of it.
  [[nodiscard]] const RegisteredTask& registered() const noexcept { return *registered_; }
  /// Its arguments as they travel. They are converted to the types of the task.
  template <class... Given>
    requires(std::convertible_to<Given &&, Arguments> && ...)
  static Encoder encode(Given&&... arguments) {
    Encoder to;
    (write<Arguments>(to, std::forward<Given>(arguments)), ...);
    return to;
  }

 private:
  template <class Argument, class Given>
  static void write(Encoder& to, Given&& given) {
    if constexpr (std::same_as<Argument, std::remove_cvref_t<Given>>) {
      Codec<Argument>::write(to, given);
    } else {
      const Argument converted = std::forward<Given>(given);
      Codec<Argument>::write(to, converted);
    }
  }

  const RegisteredTask* registered_;
};

/// Makes a function known to this program's workers. To be called before main, as the initialiser of a variable of a
/// namespace, so that it is known in every process of the program:
///
///     const auto add = drover::task("add", [](int a, int b) { return a + b; });
///
/// Arguments and result are what `Codec` knows. What it throws is thrown where the result is asked for. Throws
/// `Errc::invalid_argument` once a pool exists, or in a worker.
template <class Function>
[[nodiscard]] auto task(const std::string& name, Function function) {
  using Types = detail::TaskTypes<decltype(std::function{function})>;
  return [&]<class Result, class... Arguments>(Result (*)(Arguments...)) {
    static_assert((Codable<Arguments> && ...),
                  "an argument of this task is of a type that drover::Codec does not know");
    static_assert(std::is_void_v<Result> || Codable<Result>,
                  "the result of this task is of a type that drover::Codec does not know");
    auto body = [call = std::move(function)](Decoder& from, Encoder& to) {
      // In order, being in braces.
      std::tuple<Arguments...> arguments{Codec<Arguments>::read(from)...};  // NOLINT(misc-const-correctness): moved
      Decoder::check(from.is_done());
      if constexpr (std::is_void_v<Result>) {
        std::apply(call, std::move(arguments));
      } else {
        Codec<Result>::write(to, std::apply(call, std::move(arguments)));
      }
    };
    return Task<Result(Arguments...)>(
        detail::register_task(name, detail::signature_of<Result, Arguments...>(), std::move(body)));
  }(static_cast<typename Types::Signature*>(nullptr));
}

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
