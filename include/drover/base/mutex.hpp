// drover/base/mutex.hpp: a mutex whose use Clang checks at compile time (-Wthread-safety). For the threads of one
// process; drover/ipc has locks between processes.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define DROVER_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define DROVER_THREAD_ANNOTATION(x)
#endif

/// The field may be touched only while `m` is held.
#define DROVER_GUARDED_BY(m) DROVER_THREAD_ANNOTATION(guarded_by(m))
/// The function may be called only while the named mutexes are held.
#define DROVER_REQUIRES(...) DROVER_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
/// The function may be called only while the named mutexes are not held.
#define DROVER_EXCLUDES(...) DROVER_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

/// Disables the analysis for a function that it cannot follow; a comment there says why the function is correct.
#define DROVER_NO_THREAD_ANALYSIS DROVER_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace drover {

/// std::mutex with the annotations that libstdc++ lacks.
class DROVER_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  /// Waits until the mutex is free and acquires it.
  void lock() DROVER_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  /// Releases it. Requires: this thread holds it.
  void unlock() DROVER_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex for a scope.
class DROVER_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  /// Acquires `mutex`.
  explicit MutexLock(Mutex& mutex) DROVER_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() DROVER_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Waits on a Mutex that the caller holds: `changed.wait(mutex)`.
using ConditionVariable = std::condition_variable_any;

}  // namespace drover
