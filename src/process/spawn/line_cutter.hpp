// process/spawn/line_cutter.hpp: splits the output of a child into lines prefixed with its name.
#pragma once

#include <climits>
#include <cstddef>
#include <string>
#include <string_view>

#include "drover/base/mutex.hpp"

namespace drover::process {

/// Splits a byte stream into lines "[NAME] text\n" of at most PIPE_BUF bytes, so that a line is never interleaved
/// with other output. A longer line continues on the next, with three dots at the end of one and the start of the
/// other; nothing is lost. Buffers at most one line. Not synchronised.
class LineCutter {
 public:
  static constexpr std::size_t kLongestLine = PIPE_BUF;  ///< including name, dots and newline
  static constexpr std::string_view kMark = "...";       ///< where a long line was cut

  /// Requires: a name of fewer than 1000 characters.
  explicit LineCutter(std::string_view name) : prefix_("[" + std::string(name) + "] ") {}

  /// Consumes output, and calls `put(std::string_view)` with each line that it completes.
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
  /// Puts the last line if it has no newline; for the end of the child.
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
  std::string line_;  // incomplete, with its prefix
};

}  // namespace drover::process
