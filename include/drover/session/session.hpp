// drover/session/session.hpp: everything one application starts, kept together by a small process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "drover/base/fd.hpp"
#include "drover/ipc/kept.hpp"
#include "drover/ipc/membership.hpp"

namespace drover {

/// How the keeper sees a participant.
enum class ParticipantState : std::uint32_t {
  present = 1,  ///< alive and connected
  silent = 2,   ///< alive, but it closed its connection without leaving; keeps what it holds until it dies
};

/// "present" or "silent".
[[nodiscard]] std::string_view to_string(ParticipantState state) noexcept;

/// One participant at the moment it was looked at.
struct ParticipantInfo {
  Owner number = kNobody;                              ///< what it stamps on what it takes; given out again later
  std::uint64_t incarnation = 0;                       ///< never given to another participant of the session
  pid_t pid = 0;                                       ///< its process
  std::uint64_t start_time = 0;                        ///< of the process, in clock ticks since the machine started
  std::string name;                                    ///< for people
  ParticipantState state = ParticipantState::present;  ///< how it is
  bool is_worker = false;                              ///< joined by invitation; killed when the session ends
};

/// How a session is started and joined.
struct SessionOptions {
  std::string participant_name;               ///< under which this process is shown; empty: the program's name
  std::chrono::seconds idle_limit{3600};      ///< a named session ends after so long without participants; 0: never
  std::chrono::milliseconds patience{30000};  ///< the keeper may take so long to answer before that is an error
};

/// The number of a slab that was given to the keeper. Never used twice in a session.
enum class SlabId : std::uint64_t {};

class SessionState;

/// This process as a participant of a session: a cheap handle, to be copied and passed to every shared object
/// (`Queue queue(session, options)`). The process leaves when the last copy, and every object opened through one, is
/// gone. Safe for all threads. A forked child is no participant: there every call that asks the keeper throws
/// `Errc::forked`, `check` throws `Errc::peer_lost`, and destruction does nothing.
///
/// Every call below that asks the keeper throws `Errc::peer_lost`, naming it, when the keeper is dead or the session
/// has ended, and `Errc::timed_out` when it does not answer within SessionOptions::patience.
class Session {
 public:
  /// Starts a session without a name. It ends, with all workers, when this process leaves it or dies, however it
  /// dies. Throws `Errc::invalid_argument` unless drover::init was called first thing in main.
  [[nodiscard]] static Session start(const SessionOptions& options = {});
  /// Joins the session of this user with this name; starts it if there is none. It outlives this process: it ends by
  /// `end`, by `drover session end NAME`, or when nobody took part for SessionOptions::idle_limit. Names have 1 to 63
  /// letters, digits, '-', '_' and '.', and begin with a letter or digit. Throws as `start`, and
  /// `Errc::permission_denied` if the folder of sessions is not private to this user.
  [[nodiscard]] static Session open(const std::string& name, const SessionOptions& options = {});
  /// The session into which this process was started as a worker. The first call joins; later ones, from anywhere in
  /// the process, give the same. Throws `Errc::not_found` if there is none or this process has left it.
  [[nodiscard]] static Session inherited();

  /// One more handle. There is no move: every Session is of some session.
  Session(const Session&) = default;
  /// Lets go of the one, and is a handle of the other.
  Session& operator=(const Session&) = default;
  ~Session() = default;

  /// For shared objects; what they hold keeps this process a participant.
  operator std::shared_ptr<Membership>() const;  // NOLINT(google-explicit-constructor): Queue queue(session, options)

  /// Its name; empty if it has none.
  [[nodiscard]] const std::string& name() const noexcept;
  /// The keeper's process id, as the kernel says.
  [[nodiscard]] pid_t keeper_pid() const noexcept;
  /// This process's number in the session; `kNobody` in a forked child.
  [[nodiscard]] Owner self() const noexcept;
  /// Never given to another participant of this session, unlike the number.
  [[nodiscard]] std::uint64_t incarnation() const noexcept;
  /// Who takes part, by number. Reads shared memory; asks nobody.
  [[nodiscard]] std::vector<ParticipantInfo> participants() const;
  /// How many take part. Reads shared memory; asks nobody.
  [[nodiscard]] Population population() const noexcept;
  /// Throws `Errc::peer_lost` if the session is over for this process.
  void check() const;

  /// Announces one more participant and gives the descriptor through which a child joins: the child inherits it,
  /// finds its number in the variable DROVER_SESSION_FD and calls `inherited`. Counts as `starting` until then, or
  /// until every copy of the descriptor is closed. Who joins so is a worker: it is killed when the session ends.
  [[nodiscard]] Fd invite(const std::string& participant_name);

  /// Gives the keeper a slab to hold, so that it outlives every participant; the descriptor stays the caller's.
  /// `label` is for people, `bytes` for accounts. Throws `Errc::limit_reached` when the keeper has too many files
  /// open.
  [[nodiscard]] SlabId deposit(const Fd& slab, const std::string& label, std::uint64_t bytes);
  /// A descriptor of a slab that somebody deposited; to be asked for once per process, not once per use. Throws
  /// `Errc::not_found` if it was withdrawn.
  [[nodiscard]] Fd fetch(SlabId slab);
  /// The keeper lets go of the slab; who fetched it still has it. Unknown ones are ignored.
  void withdraw(SlabId slab);

  /// What is kept under names, by name; `Membership::keep` keeps, `Membership::recall` gives it back.
  [[nodiscard]] std::vector<KeptInfo> kept() const;
  /// Ends what is kept under a name; who recalled it still has it. Throws `Errc::not_found`, with names that are
  /// kept.
  void drop(const std::string& name);

  /// Ends the session for everybody: workers are killed, all others get errors, the name is free again. Returns when
  /// the keeper is gone.
  void end();

 private:
  explicit Session(std::shared_ptr<SessionState> state) noexcept;

  std::shared_ptr<SessionState> state_;  // shared: every copy and every object of this process may be the last
};

}  // namespace drover
