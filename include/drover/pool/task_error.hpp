// drover/pool/task_error.hpp: exceptions of tasks, thrown again where their results are asked for.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "drover/base/error.hpp"

namespace drover {

/// An exception that left a task, as its worker saw it.
struct RemoteFailure {
  std::string type;     ///< "std::out_of_range"; of drover's own: "drover::Error"
  std::string message;  ///< its what()
  std::string stack;    ///< where it was thrown, a frame per line, innermost first; empty if not known
  std::string task;     ///< "task 17 'sum'"
  std::string worker;   ///< "worker-2 (process 71, cuda:0)"

  /// All of it, for people: several lines.
  [[nodiscard]] std::string to_string() const;
};

/// Part of every exception that came from a task: catch it by this to learn where it came from.
class RemoteException {
 public:
  virtual ~RemoteException() = default;
  /// What is known.
  [[nodiscard]] const RemoteFailure& remote() const noexcept { return remote_; }

  RemoteException& operator=(const RemoteException&) = delete;

 protected:
  /// Made with what came.
  explicit RemoteException(RemoteFailure remote) : remote_(std::move(remote)) {}
  /// As exceptions are copied.
  RemoteException(const RemoteException&) = default;

 private:
  RemoteFailure remote_;
};

/// An exception of a type that this process cannot make again. Its code is `Errc::task_failed`.
class TaskError : public Error, public RemoteException {
 public:
  /// Made from what came.
  explicit TaskError(const RemoteFailure& remote);
};

/// An exception of a type that is known here: caught as `Original`, or as RemoteException. Its text says where it
/// came from.
template <class Original>
class RemoteError final : public Original, public RemoteException {
 public:
  /// Made from what came.
  explicit RemoteError(const RemoteFailure& remote) : Original(remote.to_string()), RemoteException(remote) {}
};

namespace detail {
using Rethrow = std::exception_ptr (*)(const RemoteFailure& remote);
void register_exception(const std::type_info& type, Rethrow rethrow);
}  // namespace detail

/// Makes an exception type known, so that it is thrown as itself where a result is asked for. It needs a constructor
/// from std::string. The logic and runtime errors of the standard library are known. To be called before main:
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
