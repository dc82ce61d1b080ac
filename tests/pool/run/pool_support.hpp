// Helpers for tests of pools.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace drover::test {

/// Longer than any operation of these tests takes.
inline constexpr std::chrono::seconds kPatience{60};

/// Makes an empty file. Returns false if it exists: true for one caller only, in all processes.
inline bool make_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file >= 0) ::close(file);
  return file >= 0;
}

}  // namespace drover::test
