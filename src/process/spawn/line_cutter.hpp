// process/spawn/line_cutter.hpp: what a child writes, as lines with its name in front.
#pragma once

#include <climits>
#include <cstddef>
#include <string>
#include <string_view>

#include "drover/base/mutex.hpp"

namespace drover {

/// Cuts a stream of any bytes into lines "[NAME] text\n", none longer than a pipe takes in one piece (PIPE_BUF), so
/// that a line is never mixed with what others write. A longer line goes on in the next, with three dots at the end
/// of the one and at the start of the other; nothing is lost. Keeps at most one line. Not synchronised.
class LineCutter {
 public:
  static constexpr std::size_t kLongestLine = PIPE_BUF;  ///< with name, dots and newline
  static constexpr std::string_view kMark = "...";       ///< where a long line was cut

  /// For a child of this name. Requires: a name of under 1000 characters.
  explicit LineCutter(std::string_view name) : prefix_("[" + std::string(name) + "] ") {}

  /// Takes what was written, and calls `put(std::string_view)` with each line that is complete by it.
  template <class Put>
  void take(std::string_view bytes, const Put& put) {
    while (!bytes.empty()) {
      const auto newline = bytes.find('\n');
      const bool is_whole = newline != std::string_view::npos;
      add(bytes.substr(0, newline), put);
      if (is_whole) end_line(put);
      bytes.remove_prefix(is_whole ? newline + 1 : bytes.size());
    }
  }
  /// Puts a last line that has no newline; for the end of the child.
  template <class Put>
  void finish(const Put& put) {
    if (!line_.empty()) end_line(put);
  }

 private:
  [[nodiscard]] std::size_t room() const noexcept { return kLongestLine - kMark.size() - 1 - line_.size(); }

  template <class Put>
  void add(std::string_view text, const Put& put) {
    if (line_.empty()) line_ = prefix_;
    while (text.size() > room()) {
      const auto piece = text.substr(0, room());
      text.remove_prefix(piece.size());
      line_.append(piece).append(kMark);
      end_line(put);
      line_.append(prefix_).append(kMark);
    }
    line_.append(text);
  }
  template <class Put>
  void end_line(const Put& put) DROVER_NO_THREAD_ANALYSIS {  // `put` may require what the caller holds
    line_.push_back('\n');
    put(std::string_view(line_));
    line_.clear();
  }

  std::string prefix_;
  std::string line_;  // begun, with its prefix
};

}  // namespace drover
