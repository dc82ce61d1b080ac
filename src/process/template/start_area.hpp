// process/template/start_area.hpp: the arguments and variables of this process that /proc shows.
#pragma once

#include <string>
#include <vector>

namespace drover::process {

/// The memory in which the kernel stored the arguments and variables of this process. A forked process has its
/// parent's there, and /proc/PID/cmdline and environ show them, until it overwrites them with its own.
class StartArea {
 public:
  /// Finds the area; finds none without /proc.
  StartArea();

  /// Overwrites the area. Drops what does not fit: the last variables, the end of the arguments. Existing pointers to
  /// the old texts see the new ones.
  void show(const std::vector<std::string>& arguments, const std::vector<std::string>& variables) const noexcept;

 private:
  struct Range {
    char* begin = nullptr;
    char* end = nullptr;
  };
  static void fill(Range range, const std::vector<std::string>& texts, bool cuts) noexcept;

  Range arguments_;
  Range variables_;
};

}  // namespace drover::process
