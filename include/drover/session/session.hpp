// drover/session/session.hpp: the processes and shared objects of one application, owned by a keeper process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "drover/ipc/lease.hpp"
#include "drover/ipc/membership.hpp"

namespace drover::session {
class SessionState;
}  // namespace drover::session

namespace drover {

/// The state of a participant, as seen by the keeper.
enum class ParticipantState : std::uint32_t {
  present = 1,  ///< alive and connected
  silent = 2,   ///< alive, but it closed its connection without leaving; keeps its holdings until it dies
};

/// "present" or "silent".
[[nodiscard]] std::string_view to_string(ParticipantState state) noexcept;

/// A snapshot of one participant.
struct ParticipantInfo {
  Owner number = kNobody;                              ///< its owner stamp in shared memory; reused later
  std::uint64_t incarnation = 0;                       ///< unique within the session
  pid_t pid = 0;                                       ///< process id
  std::uint64_t start_time = 0;                        ///< of the process, in clock ticks since boot
  std::string name;                                    ///< for messages
  ParticipantState state = ParticipantState::present;  ///< its state
  bool is_worker = false;                              ///< joined by invitation; killed when the session ends
};

/// Options for starting and joining a session.
struct SessionOptions {
  std::string participant_name;                  ///< name shown for this process; empty: the program's name
  Duration idle_limit = std::chrono::hours(1);   ///< a named session without participants ends after this; 0: never
  Duration patience = std::chrono::seconds(30);  ///< time limit for each answer of the keeper
};

/// The number of a deposited slab; never reused in a session.
enum class SlabId : std::uint64_t {};

/// A handle of this process's participation in a session, cheap to copy, from which shared objects are made.
///
/// ```
/// #include <drover/drover.hpp>
/// #include <iostream>
///
/// int main(int argc, char** argv) {
///   drover::init(argc, argv);
///   const auto session = drover::Session::start();
///   drover::Queue queue(session, {.capacity = 16});  // any participant can open it
///   std::cout << session.participants().size() << " participant\n";
/// }
/// ```
///
/// The process leaves the session when the last copy, and every object made from one, is gone. Thread-safe. A forked
/// child is not a participant: there every call to the keeper throws `Errc::forked`, `check` throws
/// `Errc::peer_lost`, and destruction does nothing.
///
/// Every call to the keeper throws `Errc::peer_lost`, naming the keeper, if it is dead or the session has ended, and
/// `Errc::timed_out` if it does not answer within SessionOptions::patience.
class Session {
 public:
  /// Starts an unnamed session. It ends, with all its workers, when this process leaves it or dies in any way. Throws
  /// `Errc::invalid_argument` unless main called drover::init first.
  [[nodiscard]] static Session start(const SessionOptions& options = {});
  /// Joins the named session of this user, or starts it. It outlives this process: it ends by `end`, by
  /// `drover session end NAME`, or after SessionOptions::idle_limit without participants. Names have 1 to 63 letters,
  /// digits, '-', '_' and '.', and start with a letter or digit. Throws like `start`, and `Errc::permission_denied`
  /// if the directory of sessions is not private to this user.
  [[nodiscard]] static Session open(const std::string& name, const SessionOptions& options = {});
  /// The session into which this process was started as a worker. The first call joins it; later calls return the
  /// same session. Throws `Errc::not_found` if there is none or this process has left it.
  [[nodiscard]] static Session inherited();

  /// Copies the handle. There is no move, so a Session always refers to a session.
  Session(const Session&) = default;
  /// Refers to the session of the other handle.
  Session& operator=(const Session&) = default;
  ~Session() = default;

  /// For shared objects, which keep this process a participant while they live.
  operator std::shared_ptr<Membership>() const;  // NOLINT(google-explicit-constructor): Queue queue(session, options)

  /// Its name; empty if it has none.
  [[nodiscard]] const std::string& name() const noexcept;
  /// The keeper's process id, as reported by the kernel.
  [[nodiscard]] pid_t keeper_pid() const noexcept;
  /// The number of this process in the session; `kNobody` in a forked child.
  [[nodiscard]] Owner self() const noexcept;
  /// Unique within the session, unlike the number.
  [[nodiscard]] std::uint64_t incarnation() const noexcept;
  /// The participants by number. Reads shared memory only.
  [[nodiscard]] std::vector<ParticipantInfo> participants() const;
  /// The number of participants. Reads shared memory only.
  [[nodiscard]] Population population() const noexcept;
  /// Throws `Errc::peer_lost` if the session is over for this process.
  void check() const;

  /// Announces a participant and returns the descriptor through which a child joins: the child inherits it, finds its
  /// number in DROVER_SESSION_FD and calls `inherited`. It counts as `starting` until then, or until every copy of
  /// the descriptor is closed. A process that joins this way is a worker, which is killed when the session ends.
  [[nodiscard]] Fd invite(const std::string& participant_name);

  /// Deposits a slab with the keeper, so that it outlives every participant. Does not take over the descriptor.
  /// `label` and `bytes` are shown in listings. Throws `Errc::limit_reached` if the keeper has too many open files.
  [[nodiscard]] SlabId deposit(const Fd& slab, const std::string& label, std::uint64_t bytes);
  /// Fetches a descriptor of a deposited slab; call it once per process, not once per use. Throws `Errc::not_found`
  /// if the slab was withdrawn.
  [[nodiscard]] Fd fetch(SlabId slab);
  /// Makes the keeper close the slab; processes that fetched it keep it. Ignores unknown numbers.
  void withdraw(SlabId slab);

  /// Lists the kept entries by name; see `Membership::keep` and `Membership::recall`.
  [[nodiscard]] std::vector<KeptInfo> kept() const;
  /// Drops a kept entry; processes that recalled it keep it. Throws `Errc::not_found`, with the kept names.
  void drop(const std::string& name);

  /// Ends the session for all: kills its workers, makes calls of other participants fail, and frees the name. Returns
  /// once the keeper has ended.
  void end();

 private:
  explicit Session(std::shared_ptr<session::SessionState> state) noexcept;

  std::shared_ptr<session::SessionState> state_;  // shared: any copy or object of this process may be the last
};

/// A slab deposited with a keeper.
struct SlabInfo {
  SlabId id{};              ///< its number in the session
  std::string label;        ///< for listings
  std::uint64_t bytes = 0;  ///< as declared by its depositor
};

/// A snapshot of a session.
struct SessionInfo {
  std::string name;                           ///< its name
  pid_t keeper_pid = 0;                       ///< process id of its keeper
  std::chrono::nanoseconds age{};             ///< time since its start
  std::chrono::seconds idle_limit{};          ///< it ends after this time without participants; 0: never
  Population population;                      ///< numbers of participants
  std::uint64_t objects = 0;                  ///< shared objects
  std::uint64_t object_bytes = 0;             ///< of their memory files
  std::uint64_t slab_count = 0;               ///< slabs that the keeper holds: deposited ones and files of objects
  std::uint64_t slab_bytes = 0;               ///< total size of these
  std::vector<ParticipantInfo> participants;  ///< by number
  std::vector<SlabInfo> slabs;                ///< deposited slabs by number
  std::vector<KeptInfo> kept;                 ///< kept entries by name
  std::string problem;                        ///< why the rest is unknown; empty if there is no problem
};

/// Lists the named sessions of this user, by name, without joining them. Removes leftovers of killed keepers. A
/// keeper that does not answer within two seconds is listed with a `problem`.
[[nodiscard]] std::vector<SessionInfo> list_sessions();

/// Describes one session. Throws `Errc::not_found` if there is none of this name, `Errc::timed_out` if its keeper
/// does not answer.
[[nodiscard]] SessionInfo describe_session(const std::string& name);

/// Drops a kept entry of a session, like `Session::drop`. Throws `Errc::not_found` if there is no such session or
/// entry, `Errc::timed_out` if its keeper does not answer.
void drop_kept(const std::string& session_name, const std::string& kept_name);

/// Ends a session and returns once its keeper has ended. Throws `Errc::not_found`, and `Errc::busy` if it has
/// participants. With `is_forced`, kills its workers instead, makes calls of other participants fail, and kills a
/// keeper that does not answer.
void end_session(const std::string& name, bool is_forced);

}  // namespace drover
