// pool/values/throw_trace.hpp: records where exceptions of tasks are thrown.
#pragma once

#include <string>

namespace drover::pool {

/// While it exists, this thread records the stack of each exception that it throws.
class ThrowTrace {
 public:
  ThrowTrace() noexcept;
  ~ThrowTrace();
  ThrowTrace(const ThrowTrace&) = delete;
  ThrowTrace& operator=(const ThrowTrace&) = delete;

  /// Removes and returns the stack of the last exception, a frame per line; empty if there is none.
  [[nodiscard]] static std::string last();
};

}  // namespace drover::pool
