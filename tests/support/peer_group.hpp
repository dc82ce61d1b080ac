// tests/support/peer_group.hpp: one test body, run by several threads or processes.
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

/// How many peers of which kind; for parameterised tests.
struct PeerShape {
  PeerMode mode = PeerMode::processes;  ///< what they are
  int size = 1;                         ///< how many
};

/// Both modes with 1, 2, 3, 5 and 8 peers: INSTANTIATE_TEST_SUITE_P(Shapes, X, ValuesIn(all_peer_shapes()), ...).
[[nodiscard]] std::vector<PeerShape> all_peer_shapes();

/// "threads_3"; names the instances of a parameterised test.
[[nodiscard]] std::string to_string(const PeerShape& shape);
/// So that GoogleTest prints a shape as text.
void PrintTo(const PeerShape& shape, std::ostream* out);  // NOLINT(readability-identifier-naming)

/// How a peer ended.
struct PeerOutcome {
  /// The kinds of end.
  enum class Kind {
    success,    ///< its body returned and no assertion of it failed
    failed,     ///< an assertion or exception, or a signal other than SIGKILL
    abandoned,  ///< died at a point or by PeerGroup::kill: SIGKILL for a process
    running,    ///< the deadline passed first
  };
  Kind kind = Kind::running;  ///< which
  std::string text;           ///< for people: exit status, failed assertions, exception
};

/// So that GoogleTest prints a kind as text.
void PrintTo(PeerOutcome::Kind kind, std::ostream* out);  // NOLINT(readability-identifier-naming)

class PeerMember;

/// Runs `body` in `shape.size` peers, each with a channel to the test. Never forks: processes are this program,
/// spawned in the role of a peer, so the body must be registered with DROVER_PEER_BODY. Not synchronised. A
/// group that was started must be waited for; one that was not fails the test. Its destruction kills process
/// peers; thread peers see their channels closed, leave a point that holds them, and are joined.
class PeerGroup {
 public:
  /// Plans the peers; `parameters` are the same for all.
  PeerGroup(const std::string& body, PeerShape shape, const std::map<std::string, std::string>& parameters = {});
  ~PeerGroup();
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;

  /// Lets peer `rank` die when it reaches `point`. Requires: not started.
  void kill_at(int rank, std::string point);
  /// Lets peer `rank` stand still when it reaches `point`. Requires: not started.
  void hold_at(int rank, std::string point);
  /// Starts all peers. Process peers die with the thread that calls this.
  void start();

  /// The test's end of the channel to peer `rank`.
  [[nodiscard]] Channel& channel(int rank);
  /// Waits for one message of peer `rank` and returns its bytes; throws, with the peer's outcome, if it ended.
  [[nodiscard]] std::string receive_text(int rank);
  /// The process id of peer `rank`. Requires: processes, started.
  [[nodiscard]] pid_t pid(int rank) const;

  /// Waits until peer `rank` stands at `point`; throws if it ends first or stands at another point.
  void wait_until_held(int rank, std::string_view point);
  /// Lets a peer that is held go on.
  void release(int rank);
  /// Kills a process peer by SIGKILL wherever it is. A thread peer must be held, and leaves its body there.
  void kill(int rank);

  /// Waits for all peers and says how each ended, by rank. May be called again.
  [[nodiscard]] std::vector<PeerOutcome> wait(Deadline deadline);
  /// Waits for all peers and fails the test for each that did not succeed.
  void expect_success();

 private:
  [[nodiscard]] PeerMember& member(int rank) const;
  [[nodiscard]] PeerPlan& plan(int rank);

  std::vector<PeerPlan> plans_;
  std::vector<std::unique_ptr<PeerMember>> members_;
  bool is_waited_for_ = false;
};

}  // namespace drover::test
