// benchmarks/support/crew.hpp: the processes of a benchmark between processes, and their conductor.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drover/base/mapping.hpp"
#include "drover/ipc/channel.hpp"
#include "drover/process/child_process.hpp"
#include "drover/session/session.hpp"
#include "support/board.hpp"

namespace drover::bench {

/// A worker's link to the conductor: one per worker process.
class Post {
 public:
  /// Takes over the descriptors from the conductor. Requires: this process is worker `number`.
  explicit Post(std::size_t number);

  /// This worker's number, from 0.
  [[nodiscard]] std::size_t number() const noexcept { return number_; }
  /// The session that this worker has joined.
  [[nodiscard]] const Session& session() const noexcept { return session_; }
  /// The memory that all share.
  [[nodiscard]] Board& board() const noexcept { return *board_; }
  /// The progress of this worker.
  [[nodiscard]] Progress& progress() const noexcept { return board_->progress[number_]; }
  /// Waits for the next message; false if the conductor is gone or finished.
  [[nodiscard]] bool receive(ChannelMessage& into);
  /// Waits for this message; throws if another one arrives.
  void expect(std::string_view text);
  /// Sends a message to the conductor.
  void send(std::string_view text);

 private:
  Channel channel_;
  Session session_;
  Mapping memory_;
  Board* board_;
  std::size_t number_;
};

/// The main function of workers: in a process started by a Crew, calls `handle` for every order, then ends the
/// process. Reports exceptions of `handle` to the conductor. Returns in every other process.
void work_if_worker(int argc, char** argv, const std::function<void(ChannelMessage& order, Post& post)>& handle);

/// Worker processes of this program: participants of a drover session, each with a channel to the conductor. They
/// are killed with the Crew, and end when the conductor dies.
class Crew {
 public:
  /// Starts `size` workers in `session`. Requires: size <= kMostWorkers.
  Crew(const Session& session, std::size_t size);

  /// The memory that all share.
  [[nodiscard]] Board& board() const noexcept { return *board_; }
  /// The session that the workers have joined.
  [[nodiscard]] const Session& session() const noexcept { return session_; }
  /// Process id of a worker.
  [[nodiscard]] pid_t pid(std::size_t worker) const { return members_.at(worker).process.pid(); }

  /// Begins a step: resets counts, samples and the stop signal.
  void clear_board() noexcept;
  /// Sends a message to one worker.
  void send(std::size_t worker, std::string_view text, std::span<const int> fds = {});
  /// Waits for a message of a worker. Throws if the worker failed, with its message, or is silent for too long.
  [[nodiscard]] std::string receive(std::size_t worker);
  /// Waits for this message; throws if another one arrives.
  void expect(std::size_t worker, std::string_view text);
  /// The samples of the reporting worker in this step, in nanoseconds.
  [[nodiscard]] std::vector<double> samples() const;

 private:
  struct Member {
    ChildProcess process;
    Channel channel;
  };
  [[nodiscard]] Member start(std::size_t number, const Fd& memory);

  Session session_;
  Mapping memory_;
  Board* board_ = nullptr;
  std::vector<Member> members_;
};

}  // namespace drover::bench
