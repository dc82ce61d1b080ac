// process/template/start_area.hpp: the arguments and variables of this process, as others see them in /proc.
#pragma once

#include <string>
#include <vector>

namespace drover {

/// Where the kernel keeps what the process was started with. Who is forked has those of its parent there, and
/// /proc/PID/cmdline and environ show them, unless it writes its own over them.
class StartArea {
 public:
  /// Finds it; finds nothing where there is no /proc.
  StartArea();

  /// Writes others in their place. What does not fit is left out: the variables at the end, the end of the arguments.
  /// Who still has pointers to the old ones reads the new.
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

}  // namespace drover
