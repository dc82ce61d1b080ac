// pool/values/throw_trace.hpp: where exceptions of tasks are thrown.
#pragma once

#include <string>

namespace drover {

/// While it lives, this thread remembers the stack of each exception it throws.
class ThrowTrace {
 public:
  ThrowTrace() noexcept;
  ~ThrowTrace();
  ThrowTrace(const ThrowTrace&) = delete;
  ThrowTrace& operator=(const ThrowTrace&) = delete;

  /// The stack of the last one, a frame per line; empty if there is none. Forgets it.
  [[nodiscard]] static std::string last();
};

}  // namespace drover
