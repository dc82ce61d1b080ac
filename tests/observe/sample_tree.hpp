// tests/observe/sample_tree.hpp: a made-up /proc, /sys and /dev.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "support/temporary_folder.hpp"

namespace drover::test {

/// A directory to read as if it were the root of a machine.
class SampleTree {
 public:
  /// Creates a file at a path such as "proc/self/cgroup".
  void put(const std::string& path, std::string_view text = "") {
    const auto whole = folder_.path() / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  /// Creates a symbolic link, which may dangle.
  void link(const std::string& path, const std::string& target) {
    const auto whole = folder_.path() / path;
    std::filesystem::create_directories(whole.parent_path());
    std::filesystem::create_symlink(target, whole);
  }
  /// Creates an empty directory.
  void make_folder(const std::string& path) { std::filesystem::create_directories(folder_.path() / path); }

  /// Its path.
  [[nodiscard]] const std::filesystem::path& root() const noexcept { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace drover::test
