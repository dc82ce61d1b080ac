// benchmarks/support/crew.hpp: the processes of a benchmark that measures between processes, and who conducts them.
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

/// What a worker has to hear and to say: one per worker process.
class Post {
 public:
  /// Takes over what the conductor handed down. Requires: this process is worker `number`.
  explicit Post(std::size_t number);

  /// This worker's number, from 0.
  [[nodiscard]] std::size_t number() const noexcept { return number_; }
  /// The session in which this worker takes part.
  [[nodiscard]] const Session& session() const noexcept { return session_; }
  /// What all share.
  [[nodiscard]] Board& board() const noexcept { return *board_; }
  /// How far this worker is.
  [[nodiscard]] Progress& progress() const noexcept { return board_->progress[number_]; }
  /// Waits for the next message; false when the conductor is gone or has no more.
  [[nodiscard]] bool receive(ChannelMessage& into);
  /// Waits for exactly this message; throws if another one comes.
  void expect(std::string_view text);
  /// Tells the conductor.
  void say(std::string_view text);

 private:
  Channel channel_;
  Session session_;
  Mapping memory_;
  Board* board_;
  std::size_t number_;
};

/// The main function of workers: if this process was started by a Crew, calls `handle` for every order until there
/// are no more and ends the process. What `handle` throws is reported to the conductor. Returns in every other
/// process.
void work_if_worker(int argc, char** argv, const std::function<void(ChannelMessage& order, Post& post)>& handle);

/// Worker processes: this program again, participants of a drover session, each with a channel to the conductor.
/// They are killed with the Crew, and end by themselves when the conductor dies.
class Crew {
 public:
  /// Starts `size` workers in `session`. Requires: size <= kMostWorkers.
  Crew(const Session& session, std::size_t size);

  /// What all share.
  [[nodiscard]] Board& board() const noexcept { return *board_; }
  /// The session in which the workers take part.
  [[nodiscard]] const Session& session() const noexcept { return session_; }
  /// Process id of a worker.
  [[nodiscard]] pid_t pid(std::size_t worker) const { return members_.at(worker).process.pid(); }

  /// Begins a step: nothing counted, nothing sampled, nobody stopped.
  void clear_board() noexcept;
  /// Sends a message to one worker.
  void say(std::size_t worker, std::string_view text, std::span<const int> fds = {});
  /// Waits for one message of a worker. Throws, with what the worker said, if it failed, and if it is silent for
  /// long.
  [[nodiscard]] std::string listen(std::size_t worker);
  /// Waits for exactly this message.
  void expect(std::size_t worker, std::string_view text);
  /// What the reporting worker sampled in this step, in nanoseconds.
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
