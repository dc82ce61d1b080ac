// tests/support/peer_group.hpp: runs a test body in several threads or processes.
#pragma once

#include <sys/types.h>

#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/ipc/channel.hpp"
#include "support/peer.hpp"

namespace drover::test {

/// Kind and number of peers; for parameterised tests.
struct PeerShape {
  PeerMode mode = PeerMode::processes;  ///< threads or processes
  int size = 1;                         ///< number of peers
};

/// Both modes with 1, 2, 3, 5 and 8 peers: INSTANTIATE_TEST_SUITE_P(Shapes, X, ValuesIn(all_peer_shapes()), ...).
[[nodiscard]] std::vector<PeerShape> all_peer_shapes();

/// "threads_3"; names the instances of a parameterised test.
[[nodiscard]] std::string to_string(const PeerShape& shape);
/// Lets GoogleTest print a shape as text.
void PrintTo(const PeerShape& shape, std::ostream* out);  // NOLINT(readability-identifier-naming)

/// How a peer ended.
struct PeerOutcome {
  enum class Kind {
    success,    ///< its body returned and no assertion failed
    failed,     ///< an assertion, an exception, or a signal other than SIGKILL
    abandoned,  ///< died at a point or by PeerGroup::kill: SIGKILL for a process
    running,    ///< the deadline passed first
  };
  Kind kind = Kind::running;  ///< kind of outcome
  std::string text;           ///< in words: exit status, failed assertions, exception
};

/// Lets GoogleTest print a kind as text.
void PrintTo(PeerOutcome::Kind kind, std::ostream* out);  // NOLINT(readability-identifier-naming)

class PeerMember;

/// Runs `body` in `shape.size` peers, each with a channel to the test. Never forks: processes are this program,
/// spawned in the role of a peer, so the body must be registered with DROVER_PEER_BODY. Not synchronised. A group
/// that was started must be waited for; otherwise the test fails. Destruction kills process peers; it closes the
/// channels of thread peers, which releases those that are held, and joins them.
class PeerGroup {
 public:
  /// Plans the peers; all get the same `parameters`.
  PeerGroup(const std::string& body, PeerShape shape, const std::map<std::string, std::string>& parameters = {});
  ~PeerGroup();
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;

  /// Makes peer `rank` die when it reaches `point`. Requires: not started.
  void kill_at(int rank, std::string point);
  /// Makes peer `rank` stop when it reaches `point`. Requires: not started.
  void hold_at(int rank, std::string point);
  /// Starts all peers. Process peers die with the calling thread.
  void start();

  /// The channel to peer `rank`.
  [[nodiscard]] Channel& channel(int rank);
  /// Waits for a message of peer `rank` and returns its bytes; throws, with the outcome of the peer, if it has ended.
  [[nodiscard]] std::string receive_text(int rank);
  /// The process id of peer `rank`. Requires: processes, started.
  [[nodiscard]] pid_t pid(int rank) const;

  /// Waits until peer `rank` is held at `point`; throws if it ends first or is held at another point.
  void wait_until_held(int rank, std::string_view point);
  /// Releases a held peer.
  void release(int rank);
  /// Kills a process peer by SIGKILL. A thread peer must be held, and leaves its body there.
  void kill(int rank);

  /// Waits for all peers and returns their outcomes by rank. May be called again.
  [[nodiscard]] std::vector<PeerOutcome> wait(Deadline deadline);
  /// Waits for all peers and fails the test for each one that did not succeed.
  void expect_success();

 private:
  [[nodiscard]] PeerMember& member(int rank) const;
  [[nodiscard]] PeerPlan& plan(int rank);

  std::vector<PeerPlan> plans_;
  std::vector<std::unique_ptr<PeerMember>> members_;
  bool is_waited_for_ = false;
};

}  // namespace drover::test
