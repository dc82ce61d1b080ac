// drover/pool/progress.hpp: how far work on many tasks has come.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "drover/base/clock.hpp"

namespace drover {

/// How far it has come.
struct Progress {
  std::uint64_t done = 0;                  ///< results that were taken
  std::uint64_t failed = 0;                ///< errors among them
  std::uint64_t total = 0;                 ///< tasks altogether; 0: not known
  Clock::time_point began = Clock::now();  ///< when
  bool is_over = false;                    ///< whether this is the last word
};

/// What a bar says: "squares  [#####.....]  50 %  512/1024  3.1 k/s  0:02 left". Cut to `columns`.
[[nodiscard]] std::string describe_progress(const std::string& title, const Progress& progress, Clock::time_point now,
                                            std::size_t columns);

/// For MapOptions::progress: shows a bar on standard error if that is a terminal, ten times a second at most; else a
/// line at the end.
[[nodiscard]] std::function<void(const Progress& progress)> progress_bar(std::string title);

}  // namespace drover
