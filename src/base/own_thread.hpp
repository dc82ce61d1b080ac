// base/own_thread.hpp: how many threads of this process are the library's own.
#pragma once

#include <atomic>

namespace drover {

/// Counts the calling thread as one of the library's own while it lives. For threads that run none of the program's
/// functions, and so never end a wait of the program.
class OwnThread {
 public:
  OwnThread() noexcept { ++count(); }
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;
  ~OwnThread() { --count(); }

  /// How many there are. A thread that starts or ends may be missing for a moment, so never too many.
  [[nodiscard]] static int present() noexcept { return count().load(); }

 private:
  static std::atomic<int>& count() noexcept {
    static std::atomic<int> threads{0};
    return threads;
  }
};

}  // namespace drover
