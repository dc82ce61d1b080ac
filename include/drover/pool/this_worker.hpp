// drover/pool/this_worker.hpp: the worker of a pool in which a task runs, as the task sees it.
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

/// This process as a worker of a pool. Belongs to the thread that runs tasks, but for `is_interrupted`.
class PoolWorker {
 public:
  /// Its number in the pool, from 0.
  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  /// "worker-2".
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Its device as it is numbered here, to make tensors on; Place::cpu() without one.
  [[nodiscard]] const Place& place() const noexcept { return place_; }
  /// The session of the pool.
  [[nodiscard]] const Session& session() const noexcept { return session_; }
  /// In which tensors are made that shall be results.
  [[nodiscard]] const Memory& memory() const noexcept { return memory_; }

  /// Makes an object that lives until the worker ends, for all tasks that run here; replaces one of the same type.
  template <class Object, class... Arguments>
  Object& emplace(Arguments&&... arguments) {
    auto made = std::make_shared<Object>(std::forward<Arguments>(arguments)...);
    Object& object = *made;
    objects_[std::type_index(typeid(Object))] = std::move(made);
    return object;
  }
  /// That object. Throws `Errc::not_found` if there is none: the initialiser of the pool should have made it.
  template <class Object>
  [[nodiscard]] Object& object() {
    return *static_cast<Object*>(find(typeid(Object)));
  }

  /// Whether the task that runs shall stop: it was cancelled, or its time is over. All threads may ask.
  [[nodiscard]] bool is_interrupted() const noexcept { return is_interrupted_(); }
  /// What `drover ps` and reports call the task that runs, in place of the name under which it is known; cut to 63
  /// bytes. For tasks that do one thing or another.
  void set_task_title(std::string_view title);
  /// Throws `Errc::cancelled` then; to be called now and then by tasks that take long.
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

/// In a worker of a pool: this worker. Throws `Errc::not_found` anywhere else.
[[nodiscard]] PoolWorker& this_worker();

/// Writes, into `stack_text_file()`, where the threads of an interpreter are. Called in a signal handler, by any
/// thread of the process and perhaps while another holds the interpreter's lock: only what is safe there.
using StackTextWriter = void (*)(int argument);

/// A memory file of this process, made by the first call, which is emptied before each text. Throws as making memory
/// files does.
[[nodiscard]] int stack_text_file();

/// In a worker of a pool: from now on, who asks for its stack gets what `write(argument)` says too: `drover ps
/// --stacks`, stall reports, and the error of a task whose worker is killed since it took too long. Starts a thread
/// that answers where the main one is asleep and must not be disturbed. Once in a process; throws
/// `Errc::invalid_argument` if no pool started this process.
void tell_stack_text(StackTextWriter write, int argument);

}  // namespace drover
