// drover/pool/this_worker.hpp: the worker that runs a task, as the task sees it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <typeindex>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "drover/session/session.hpp"
#include "drover/tensor/memory.hpp"

namespace drover {

/// This process as a worker of a pool. For the thread that runs tasks, except `is_interrupted`, which is thread-safe.
class PoolWorker {
 public:
  /// Its number in the pool, from 0.
  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  /// "worker-2".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Its device as this process numbers it; Place::cpu() without one.
  [[nodiscard]] const Place& place() const noexcept { return place_; }
  /// The session of the pool.
  [[nodiscard]] const Session& session() const noexcept { return session_; }
  /// Where tensors to be returned are allocated.
  [[nodiscard]] const Memory& memory() const noexcept { return memory_; }

  /// Makes an object for all tasks that run here, destroyed when the worker exits. Replaces one of the same type.
  template <class Object, class... Arguments>
  Object& emplace(Arguments&&... arguments) {
    auto made = std::make_shared<Object>(std::forward<Arguments>(arguments)...);
    Object& object = *made;
    objects_[std::type_index(typeid(Object))] = std::move(made);
    return object;
  }
  /// The object of this type. Throws `Errc::not_found` if there is none; PoolOptions::init should make it.
  template <class Object>
  [[nodiscard]] Object& object() {
    return *static_cast<Object*>(find(typeid(Object)));
  }

  /// Whether the running task should stop, because it was cancelled or has exceeded its timeout. Thread-safe.
  [[nodiscard]] bool is_interrupted() const noexcept { return is_interrupted_(); }
  /// Sets the name of the running task in `drover ps` and reports, truncated to 63 bytes.
  void set_task_title(std::string_view title);
  /// Throws `Errc::cancelled` if the running task should stop. Long tasks should call it now and then.
  void check_interrupt() const;

 private:
  friend class WorkerLoop;
  PoolWorker(std::size_t index, std::string name, Place place, const Session& session, Memory memory)
      : index_(index), name_(std::move(name)), place_(place), session_(session), memory_(std::move(memory)) {}
  [[nodiscard]] void* find(const std::type_info& type) const;

  std::size_t index_;
  std::string name_;
  Place place_;
  Session session_;
  Memory memory_;
  std::function<bool()> is_interrupted_ = [] { return false; };
  std::function<void(std::string_view)> show_title_ = [](std::string_view) {};
  std::unordered_map<std::type_index, std::shared_ptr<void>> objects_;
};

/// The worker that this process is. Throws `Errc::not_found` in any other process.
[[nodiscard]] PoolWorker& this_worker();

/// Writes the stacks of an interpreter's threads to `stack_text_file()`. Called in a signal handler, on any thread,
/// possibly while another thread holds the interpreter's lock; must be async-signal-safe.
using StackTextWriter = void (*)(int argument);

/// A memory file of this process, made by the first call and truncated before each text. Throws if it cannot be made.
[[nodiscard]] int stack_text_file();

/// Adds the output of `write(argument)` to the stacks of this worker in `drover ps --stacks`, in stall reports, and
/// in errors of tasks killed after their timeout. Starts a thread that answers while the main thread sleeps and must
/// not be disturbed. Call it once; throws `Errc::invalid_argument` if this process is no worker of a pool.
void set_stack_text_writer(StackTextWriter write, int argument);

}  // namespace drover
