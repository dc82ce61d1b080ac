// drover/pool/task_error.hpp: exceptions of tasks, rethrown where their results are taken.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "drover/base/error.hpp"

namespace drover {

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

}  // namespace drover
