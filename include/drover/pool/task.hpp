// drover/pool/task.hpp: functions that workers of a pool can run.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "drover/pool/codec.hpp"

namespace drover {

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

}  // namespace drover
