#include "drover/pool/task.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <typeindex>
#include <typeinfo>
#include <utility>

#include <fmt/format.h>

#include "drover/base/mutex.hpp"
#include "pool/values/remote_failure.hpp"

namespace drover {
namespace {

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return text ? text.get() : name;
}

// Keyed by the names of types, which are the same in every process of a program.
struct RegisteredExceptions {
  Mutex mutex;
  std::map<std::string, detail::Rethrow, std::less<>> by_name DROVER_GUARDED_BY(mutex);
};

template <class... Exceptions>
void add_all(RegisteredExceptions& registered) {
  const MutexLock lock(registered.mutex);
  (registered.by_name.emplace(
       demangled(typeid(Exceptions).name()),
       [](const RemoteFailure& remote) { return std::make_exception_ptr(RemoteError<Exceptions>(remote)); }),
   ...);
}

RegisteredExceptions& registered_exceptions() {
  static auto* const registered = [] {
    auto* const made = new RegisteredExceptions;  // never destroyed, because destructors of globals may take results
    add_all<std::logic_error, std::invalid_argument, std::domain_error, std::length_error, std::out_of_range,
            std::runtime_error, std::range_error, std::overflow_error, std::underflow_error>(*made);
    return made;
  }();
  return *registered;
}

// An error of drover keeps its code and its remedy.
class RemoteDroverError final : public Error, public RemoteException {
 public:
  RemoteDroverError(Errc code, const std::string& message, const std::string& remedy, const RemoteFailure& remote)
      : Error(code, fmt::format("{} in {}, run by {}", message, remote.task, remote.worker), remedy),
        RemoteException(remote) {}
};

}  // namespace

void detail::register_exception(const std::type_info& type, Rethrow rethrow) {
  RegisteredExceptions& registered = registered_exceptions();
  const MutexLock lock(registered.mutex);
  registered.by_name[demangled(type.name())] = rethrow;
}

std::string RemoteFailure::to_string() const {
  std::string text = fmt::format("{}\n  ({} was thrown by {}, run by {})", message, type, task, worker);
  if (!stack.empty()) text += fmt::format("\n  thrown at:\n{}", stack);
  return text;
}

TaskError::TaskError(const RemoteFailure& remote)
    : Error(Errc::task_failed, remote.to_string(),
            "register its type with drover::register_exception to catch it by that type"),
      RemoteException(remote) {}

bool pool::write_failure(Encoder& to, const std::string& stack) {
  std::string type = "an exception of unknown type";
  std::string message;
  std::string remedy;
  std::int64_t code = -1;
  try {
    throw;
  } catch (const Error& error) {
    type = demangled(typeid(error).name());
    message = error.message();
    remedy = error.remedy();
    code = static_cast<std::int64_t>(error.code());
  } catch (const std::exception& error) {
    type = demangled(typeid(error).name());
    message = error.what();
  } catch (...) {
    if (const auto* const thrown = abi::__cxa_current_exception_type()) type = demangled(thrown->name());
    message = "no text";
  }
  to.write(std::string_view(type));
  to.write(std::string_view(message));
  to.write(std::string_view(stack));
  to.write(code);
  to.write(std::string_view(remedy));
  return code == static_cast<std::int64_t>(Errc::device_fault) ||
         code == static_cast<std::int64_t>(Errc::device_lost);
}

std::exception_ptr pool::read_failure(std::span<const std::byte> bytes, const std::string& task,
                                      const std::string& worker) {
  Decoder from(bytes);
  RemoteFailure remote{.type = std::string(from.read_text()), .task = task, .worker = worker};
  remote.message = from.read_text();
  remote.stack = from.read_text();
  const std::int64_t code = from.read_signed();
  const std::string remedy(from.read_text());
  if (code >= 0 && std::cmp_less(code, kAllErrc.size()))
    return std::make_exception_ptr(RemoteDroverError(static_cast<Errc>(code), remote.message, remedy, remote));
  RegisteredExceptions& registered = registered_exceptions();
  detail::Rethrow rethrow = nullptr;
  {
    const MutexLock lock(registered.mutex);
    if (const auto at = registered.by_name.find(remote.type); at != registered.by_name.end()) rethrow = at->second;
  }
  return rethrow != nullptr ? rethrow(remote) : std::make_exception_ptr(TaskError(remote));
}

}  // namespace drover
