// tests/support/scoped_environment.hpp: sets an environment variable for a scope.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace drover::test {

/// Sets or removes a variable and restores it at the end of the scope. For tests without other threads.
class ScopedEnvironment {
 public:
  /// Sets `name` to `value`, or removes it if `value` is nullopt.
  ScopedEnvironment(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
    if (const char* const text = std::getenv(name_.c_str()); text != nullptr) before_ = text;
    put(value);
  }
  ~ScopedEnvironment() { put(before_); }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  void put(const std::optional<std::string>& value) const {
    if (value) {
      ::setenv(name_.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }

  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace drover::test
