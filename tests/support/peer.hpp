// tests/support/peer.hpp: one of the threads or processes that run a test body.
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

/// The kind of the peers of a group.
enum class PeerMode {
  threads,    ///< threads of the test, which the thread sanitizer can check
  processes,  ///< spawned processes, which can be killed
};

/// "threads" or "processes".
[[nodiscard]] std::string to_string(PeerMode mode);
/// Lets GoogleTest print a mode as text.
void PrintTo(PeerMode mode, std::ostream* out);  // NOLINT(readability-identifier-naming)

/// The start parameters of a peer.
struct PeerPlan {
  std::string body;                               ///< registered name of its body
  PeerMode mode = PeerMode::processes;            ///< thread or process
  int rank = 0;                                   ///< its number
  int size = 1;                                   ///< number of peers
  std::map<std::string, std::string> parameters;  ///< from the test
  std::set<std::string, std::less<>> kill_at;     ///< points at which it dies
  std::set<std::string, std::less<>> hold_at;     ///< points at which it stops
};

/// The view of a peer for its body. Used only by the thread that runs the body.
class Peer {
 public:
  /// `channel` leads to the test, `control` to its PeerGroup.
  Peer(PeerPlan plan, Channel channel, Channel control)
      : plan_(std::move(plan)), channel_(std::move(channel)), control_(std::move(control)) {}

  /// From 0 to size() - 1.
  [[nodiscard]] int rank() const noexcept { return plan_.rank; }
  /// Number of peers in the group.
  [[nodiscard]] int size() const noexcept { return plan_.size; }
  /// Whether it is a thread or a process.
  [[nodiscard]] PeerMode mode() const noexcept { return plan_.mode; }
  /// The channel to the test: bytes and descriptors both ways.
  [[nodiscard]] Channel& channel() noexcept { return channel_; }
  /// The parameter `name`; throws std::out_of_range, naming it, if the test did not pass it.
  [[nodiscard]] const std::string& parameter(const std::string& name) const;
  /// Waits for a message and returns its bytes; throws if the test closes the channel.
  [[nodiscard]] std::string receive_text();

  /// Passes a named point. At a point of `PeerGroup::kill_at` the peer dies: a process by SIGKILL, a thread by
  /// leaving the body. At a point of `hold_at` it stops until released or killed.
  void reach(std::string_view point);

  /// For the harness: reports the failure of this peer to the group.
  void report_failure(std::string_view text) noexcept;

 private:
  [[noreturn]] void die() const;

  PeerPlan plan_;
  Channel channel_;
  Channel control_;
};

/// Thrown to make a thread peer leave its body where it must die. Not a std::exception, so that bodies that catch
/// those do not catch it.
struct PeerAbandoned {};

/// The code that a peer runs.
using PeerBody = void (*)(Peer& peer);

/// Registers `body` as `name`; called by DROVER_PEER_BODY.
bool register_peer_body(const char* name, PeerBody body);

/// The body registered as `name`; throws std::invalid_argument with all names if there is none.
[[nodiscard]] PeerBody find_peer_body(const std::string& name);

}  // namespace drover::test

/// Defines and registers a peer body: DROVER_PEER_BODY(echo_once) { peer.channel()... }. Names must be
/// unique in a test program.
#define DROVER_PEER_BODY(name)                                                                               \
  static void name(::drover::test::Peer& peer);                                                              \
  [[maybe_unused]] static const bool name##_is_registered = ::drover::test::register_peer_body(#name, name); \
  static void name([[maybe_unused]] ::drover::test::Peer& peer)
