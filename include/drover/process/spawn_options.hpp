// drover/process/spawn_options.hpp: options for starting a child process.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace drover {

/// A resource limit of the child.
struct ResourceLimit {
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();  ///< no limit

  int resource = 0;                   ///< RLIMIT_NOFILE, ...
  std::uint64_t soft = kUnlimited;    ///< capped by the hard limit
  std::optional<std::uint64_t> hard;  ///< nullopt: inherited
};

/// CPUs, limits, niceness and working directory of a child, in force before its first instruction.
struct Placement {
  std::vector<int> cpus;              ///< CPU affinity; empty: that of the calling thread
  std::vector<ResourceLimit> limits;  ///< all others are inherited
  /// From -20 to 19; nullopt: that of the calling thread. A worker gets the niceness of the thread that started the
  /// first worker if that is higher, since lowering it needs a privilege.
  std::optional<int> niceness;
  std::string folder;  ///< working directory; empty: inherited
};

/// The process group and terminal session of a child.
enum class ChildGroup {
  ours,         ///< the group of this process: a terminal's Ctrl-C reaches it too
  own_group,    ///< a process group of its own
  own_session,  ///< a session of its own, without a terminal
};

/// The source or destination of a standard stream of a child.
class StandardStream {
 public:
  /// The kinds of stream.
  enum class Kind {
    inherited,  ///< that of this process; /dev/null if it is closed or closed on exec
    null,       ///< /dev/null
    file,       ///< a file
    pipe,       ///< a pipe to this process: `ChildProcess::take_pipe`
  };

  /// Inherits the stream of this process.
  StandardStream() = default;
  /// /dev/null.
  [[nodiscard]] static StandardStream null() { return {Kind::null, {}}; }
  /// A file, read from its start or created and appended to. A relative path starts at the working directory of this
  /// process, not of the child. For a named pipe as output without a reader, `spawn` throws `Errc::not_found`; for
  /// one as input, it blocks until there is a writer.
  [[nodiscard]] static StandardStream file(std::string path) { return {Kind::file, std::move(path)}; }
  /// A pipe whose other end belongs to this process.
  [[nodiscard]] static StandardStream pipe() { return {Kind::pipe, {}}; }

  /// The kind of stream.
  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  /// The path of a file; otherwise empty.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  StandardStream(Kind kind, std::string path) : kind_(kind), path_(std::move(path)) {}

  Kind kind_ = Kind::inherited;
  std::string path_;
};

/// The standard streams of a child.
struct StandardStreams {
  StandardStream input;   ///< descriptor 0
  StandardStream output;  ///< descriptor 1
  StandardStream error;   ///< descriptor 2
};

/// A program to start and its options.
struct SpawnOptions {
  std::string executable;              ///< path of the program; relative to the current working directory
  std::vector<std::string> arguments;  ///< without the program's name; no zero bytes
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to that of this process
  std::vector<std::pair<int, int>> inherit;  ///< (descriptor here, number in the child); no others are inherited
  std::vector<std::string> unset;            ///< variables to remove
  Placement placement;                       ///< CPUs, limits, niceness, directory
  StandardStreams streams;                   ///< overridden by an `inherit` to 0, 1 or 2
  ChildGroup group = ChildGroup::ours;       ///< decides if a terminal's signals reach it
  /// Sent to the child by the kernel when the calling THREAD ends, with or without its process; 0: none. If the
  /// parent dies before this is set, the child does not start.
  int parent_death_signal = 0;
};

}  // namespace drover
