// tests/support/peer.hpp: one of several threads or processes that run the same test body.
#pragma once

#include <functional>
#include <iosfwd>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "drover/ipc/channel.hpp"

namespace drover::test {

/// What the peers of a group are.
enum class PeerMode {
  threads,    ///< of the test's own process, so that the thread sanitizer sees them
  processes,  ///< spawned, so that they can be killed
};

/// "threads" or "processes".
[[nodiscard]] std::string to_string(PeerMode mode);
/// So that GoogleTest prints a mode as text.
void PrintTo(PeerMode mode, std::ostream* out);  // NOLINT(readability-identifier-naming)

/// What one peer is told when it starts.
struct PeerPlan {
  std::string body;                               ///< the registered name of what it runs
  PeerMode mode = PeerMode::processes;            ///< what it is
  int rank = 0;                                   ///< which one it is
  int size = 1;                                   ///< how many there are
  std::map<std::string, std::string> parameters;  ///< passed by the test
  std::set<std::string, std::less<>> kill_at;     ///< points at which it dies
  std::set<std::string, std::less<>> hold_at;     ///< points at which it stands still
};

/// A peer, as its body sees it. Belongs to the thread that runs the body.
class Peer {
 public:
  /// `channel` leads to the test, `control` to its PeerGroup.
  Peer(PeerPlan plan, Channel channel, Channel control)
      : plan_(std::move(plan)), channel_(std::move(channel)), control_(std::move(control)) {}

  /// From 0 to size() - 1.
  [[nodiscard]] int rank() const noexcept { return plan_.rank; }
  /// How many peers the group has.
  [[nodiscard]] int size() const noexcept { return plan_.size; }
  /// Whether it is a thread or a process.
  [[nodiscard]] PeerMode mode() const noexcept { return plan_.mode; }
  /// To the test that started it: bytes and descriptors both ways.
  [[nodiscard]] Channel& channel() noexcept { return channel_; }
  /// What the test passed under `name`; throws std::out_of_range, naming it, if it passed nothing.
  [[nodiscard]] const std::string& parameter(const std::string& name) const;
  /// Waits on the channel and returns the message's bytes; throws if the test is gone instead.
  [[nodiscard]] std::string receive_text();

  /// Passes a named point. Where the group was told `kill_at`, the peer dies here: a process by SIGKILL, a
  /// thread by leaving the body. Where it was told `hold_at`, it stands here until released or killed.
  void reach(std::string_view point);

  /// For the harness: tells the group why this peer failed.
  void report_failure(std::string_view text) noexcept;

 private:
  [[noreturn]] void die() const;

  PeerPlan plan_;
  Channel channel_;
  Channel control_;
};

/// How a thread peer leaves its body at a point where it should die. Not a std::exception, so that bodies that
/// handle those do not catch it.
struct PeerAbandoned {};

/// What peers run.
using PeerBody = void (*)(Peer& peer);

/// Makes `body` known as `name`; what DROVER_PEER_BODY does.
bool register_peer_body(const char* name, PeerBody body);

/// The body of that name; throws std::invalid_argument, naming all that exist, if there is none.
[[nodiscard]] PeerBody find_peer_body(const std::string& name);

}  // namespace drover::test

/// Defines and registers a peer body: DROVER_PEER_BODY(echo_once) { peer.channel()... }. Names are unique in one
/// test program.
#define DROVER_PEER_BODY(name)                                                                               \
  static void name(::drover::test::Peer& peer);                                                              \
  [[maybe_unused]] static const bool name##_is_registered = ::drover::test::register_peer_body(#name, name); \
  static void name([[maybe_unused]] ::drover::test::Peer& peer)
