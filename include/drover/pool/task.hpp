// drover/pool/task.hpp: functions that a pool runs in its workers, how it runs them, and the exceptions that they
// throw.
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

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "drover/pool/codec.hpp"
#include "drover/pool/future.hpp"

namespace drover::pool {
class PoolCore;
}  // namespace drover::pool

namespace drover {

/// What happens to a task whose worker dies.
class Retry {
 public:
  /// The task fails, even if it had not begun.
  [[nodiscard]] static constexpr Retry never() noexcept { return {0, false}; }
  /// Another worker runs the task if it had not begun; otherwise it fails.
  [[nodiscard]] static constexpr Retry if_not_started() noexcept { return {0, true}; }
  /// Retries a begun task up to `count` times, within PoolOptions::quarantine_after. For tasks that may run twice.
  [[nodiscard]] static constexpr Retry times(int count) noexcept { return {count, true}; }

  /// Number of retries of a task that had begun.
  [[nodiscard]] constexpr int count() const noexcept { return count_; }
  /// Whether another worker runs the task if it had not begun.
  [[nodiscard]] constexpr bool is_moved() const noexcept { return is_moved_; }

 private:
  constexpr Retry(int count, bool is_moved) noexcept : count_(count), is_moved_(is_moved) {}
  int count_;
  bool is_moved_;
};

/// How a pool runs a task.
struct TaskOptions {
  int priority = 0;                          ///< higher first; equal ones in submission order
  Retry retry = Retry::if_not_started();     ///< if its worker dies
  Duration timeout;                          ///< from its start in the worker; 0: none
  Duration grace = std::chrono::seconds(1);  ///< from the interrupt at `timeout` to the kill
  std::optional<std::size_t> worker;         ///< number of the only worker that may run it
  /// Whether its device tensors may be copied to the device of an idle worker when that is faster than waiting. For
  /// tasks that only read them: writes to a copy are lost.
  bool may_relocate = false;
};

/// An exception that left a task, as its worker saw it.
struct RemoteFailure {
  std::string type;     ///< "std::out_of_range", "drover::Error"
  std::string message;  ///< its what()
  std::string stack;    ///< where it was thrown, a frame per line, innermost first; empty if unknown
  std::string task;     ///< "task 17 'sum'"
  std::string worker;   ///< "worker-2 (process 71, cuda:0)"

  /// A message of several lines.
  [[nodiscard]] std::string to_string() const;
};

/// A base of every exception that left a task: catch it to learn where the exception came from.
class RemoteException {
 public:
  virtual ~RemoteException() = default;
  /// The exception as its worker saw it.
  [[nodiscard]] const RemoteFailure& remote() const noexcept { return remote_; }

  RemoteException& operator=(const RemoteException&) = delete;

 protected:
  /// For derived classes.
  explicit RemoteException(RemoteFailure remote) : remote_(std::move(remote)) {}
  /// Exceptions are copied when they are caught by value.
  RemoteException(const RemoteException&) = default;

 private:
  RemoteFailure remote_;
};

/// An exception whose type this process cannot construct. Its code is `Errc::task_failed`.
class TaskError : public Error, public RemoteException {
 public:
  /// From the exception as its worker saw it.
  explicit TaskError(const RemoteFailure& remote);
};

/// An exception of a registered type, to be caught as `Original` or as RemoteException. Its text says where it came
/// from.
template <class Original>
class RemoteError final : public Original, public RemoteException {
 public:
  /// From the exception as its worker saw it.
  explicit RemoteError(const RemoteFailure& remote) : Original(remote.to_string()), RemoteException(remote) {}
};

namespace detail {
using Rethrow = std::exception_ptr (*)(const RemoteFailure& remote);
void register_exception(const std::type_info& type, Rethrow rethrow);
}  // namespace detail

/// Registers an exception type, so that a result throws it with this type. It needs a constructor from std::string.
/// The logic and runtime errors of the standard library are registered already. Call it before main:
///
///     const bool known = drover::register_exception<ModelMissing>();
template <class Exception>
bool register_exception() {
  detail::register_exception(typeid(Exception), [](const RemoteFailure& remote) {
    return std::make_exception_ptr(RemoteError<Exception>(remote));
  });
  return true;
}

/// What a worker calls: reads arguments, writes the result.
using TaskBody = std::function<void(Decoder& from, Encoder& to)>;

/// A function registered under a name, until the program ends.
struct RegisteredTask {
  std::string name;         ///< unique in the program
  std::string signature;    ///< its types: "(tensor,int32) -> float64"
  TaskBody body;            ///< runs in a worker
  std::uint32_t index = 0;  ///< its index in the order of names; set when a pool exists
};

namespace detail {

/// Registers a task. The first Pool reports duplicate names.
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

// The types that a function's types are sent as: `const Tensor&` as Tensor.
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

/// A task that takes `Arguments` and returns `Result`.
template <class Result, class... Arguments>
class Task<Result(Arguments...)> {
  static_assert((Codable<Arguments> && ...),
                "an argument of this task has a type that drover::Codec does not support");
  static_assert(std::is_void_v<Result> || Codable<Result>,
                "the result of this task has a type that drover::Codec does not support");

 public:
  /// See `task`.
  explicit Task(const RegisteredTask& registered) noexcept : registered_(&registered) {}
  /// The name it is registered under.
  [[nodiscard]] const std::string& name() const noexcept { return registered_->name; }
  /// The registered function.
  [[nodiscard]] const RegisteredTask& registered() const noexcept { return *registered_; }
  /// Encodes arguments, after conversion to the types of the task.
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

/// Registers a function as a task. Call it before main, to initialise a variable at namespace scope, so that every
/// process of the program has the task:
///
///     const auto add = drover::task("add", [](int a, int b) { return a + b; });
///
/// Arguments and result are types that `Codec` supports. Exceptions are rethrown where the result is taken. Throws
/// `Errc::invalid_argument` once a pool exists, or in a worker.
template <class Function>
[[nodiscard]] auto task(const std::string& name, Function function) {
  using Types = detail::TaskTypes<decltype(std::function{function})>;
  return [&]<class Result, class... Arguments>(Result (*)(Arguments...)) {
    static_assert((Codable<Arguments> && ...),
                  "an argument of this task has a type that drover::Codec does not support");
    static_assert(std::is_void_v<Result> || Codable<Result>,
                  "the result of this task has a type that drover::Codec does not support");
    auto body = [call = std::move(function)](Decoder& from, Encoder& to) {
      // Braces evaluate in order.
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

namespace detail {

/// A submitted task, until it is done. The constructor's arguments do not change; the public fields are the pool's.
class TaskCall {
 public:
  TaskCall(const RegisteredTask& task, Encoder arguments, const TaskOptions& options);
  TaskCall(const TaskCall&) = delete;
  TaskCall& operator=(const TaskCall&) = delete;
  virtual ~TaskCall();

  /// Reads the result and completes the future.
  virtual void deliver(Decoder& from) = 0;
  /// Completes the future with an error, unless it is done.
  virtual void refuse(std::exception_ptr error) = 0;
  /// Whether the future is done, or was cancelled.
  [[nodiscard]] virtual bool is_over() const noexcept = 0;

  [[nodiscard]] const RegisteredTask& task() const noexcept { return *task_; }
  [[nodiscard]] const std::string& arguments() const noexcept { return arguments_; }
  [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const TaskOptions& options() const noexcept { return options_; }
  /// "task 17 'sum'"; with the name of the function that it calls in another language.
  [[nodiscard]] virtual std::string describe_call() const;

  std::uint64_t number = 0;            ///< in submission order, from 1; unique in a pool
  int deaths = 0;                      ///< workers that died while they ran it
  int untaken = 0;                     ///< workers that died just before they began it
  bool has_timed_out = false;          ///< it was interrupted, or its worker killed, after its timeout
  bool is_cancel_asked = false;        ///< cancelled while it ran: it is not retried
  bool is_kept_home = false;           ///< relocation failed once and is not retried
  std::size_t lane = 0;                ///< its lane in PendingTasks
  std::weak_ptr<pool::PoolCore> pool;  ///< while it is not done

 protected:
  /// Same as Future::cancel.
  bool cancel_call(FutureState& state);
  /// Frees the arguments and tensors of a task that is done.
  void release_arguments() noexcept;

 private:
  const RegisteredTask* task_;
  std::string arguments_;
  std::vector<Tensor> tensors_;
  TaskOptions options_;
};

/// A submitted task with the future of its result.
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
