// drover/process/spawn_options.hpp: what a child process is given when it starts.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace drover {

/// A limit of the child, one of RLIMIT_NOFILE, RLIMIT_CORE and so on.
struct ResourceLimit {
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();  ///< no limit

  int resource = 0;                   ///< RLIMIT_NOFILE, ...
  std::uint64_t soft = kUnlimited;    ///< what is in force; beyond the hard limit it is the hard limit
  std::optional<std::uint64_t> hard;  ///< how far the child may raise it; nothing: as ours
};

/// Where and within which bounds a child runs. In force before its first instruction, so that whatever loads with the
/// program sees it.
struct Placement {
  std::vector<int> cpus;              ///< the only CPUs it may use; empty: as the calling thread
  std::vector<ResourceLimit> limits;  ///< all others are as ours
  /// From -20 to 19; nothing: as the calling thread. A worker gets that of the thread that started the first worker
  /// if it is higher, since lowering it is a privilege.
  std::optional<int> niceness;
  std::string folder;  ///< its working folder; empty: ours
};

/// To whom the child belongs in the eyes of a terminal.
enum class ChildGroup {
  ours,         ///< our process group: a terminal's Ctrl-C reaches it too
  own_group,    ///< a process group of its own
  own_session,  ///< a session of its own, without a terminal
};

/// Where a standard stream of a child leads.
class StandardStream {
 public:
  /// What kinds there are.
  enum class Kind {
    inherited,  ///< where ours leads; /dev/null if ours is closed, or closed on exec
    null,       ///< /dev/null
    file,       ///< a file, given by its path
    pipe,       ///< to us: `ChildProcess::take_pipe`
  };

  /// The stream of this process.
  StandardStream() = default;
  /// Reads nothing, and what is written is lost.
  [[nodiscard]] static StandardStream null() { return {Kind::null, {}}; }
  /// Input: the file is read from its begin. Output: appended to it; made if it does not exist. A path that does not
  /// begin with '/' starts at our working folder, not at the child's. A named pipe for output needs a reader, else
  /// `spawn` throws `Errc::not_found`; one for input is waited for until it has a writer.
  [[nodiscard]] static StandardStream file(std::string path) { return {Kind::file, std::move(path)}; }
  /// Through a pipe whose other end is ours.
  [[nodiscard]] static StandardStream pipe() { return {Kind::pipe, {}}; }

  /// Which of them it is.
  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  /// The path of a file; else empty.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  StandardStream(Kind kind, std::string path) : kind_(kind), path_(std::move(path)) {}

  Kind kind_ = Kind::inherited;
  std::string path_;
};

/// The three of them.
struct StandardStreams {
  StandardStream input;   ///< descriptor 0
  StandardStream output;  ///< descriptor 1
  StandardStream error;   ///< descriptor 2
};

/// What to start and what it is given.
struct SpawnOptions {
  std::string executable;              ///< path of the program; a relative one starts at our working folder
  std::vector<std::string> arguments;  ///< without the program's name; no zero bytes
  std::vector<std::pair<std::string, std::string>> environment;  ///< set on top of ours
  std::vector<std::pair<int, int>> inherit;  ///< (our descriptor, its number in the child); nothing else goes over
  std::vector<std::string> unset;            ///< variables of ours that it does not get
  Placement placement;                       ///< CPUs, limits, niceness, folder
  StandardStreams streams;                   ///< an `inherit` to 0, 1 or 2 goes before
  ChildGroup group = ChildGroup::ours;       ///< whom a terminal's signals reach
  /// Sent to the child by the kernel when the calling THREAD ends, with or without its process; 0: none. A child
  /// whose parent is gone before this is set does not start.
  int parent_death_signal = 0;
};

}  // namespace drover
