// drover/ipc/membership.hpp: what a shared object needs to know of the session it lives in.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drover/base/fd.hpp"

namespace drover {

class Lease;
struct KeptInfo;
struct Recalled;

/// Number of a participant in its session, from 1. Stamped, in one atomic step, into everything a participant
/// takes, so that after its death all of it is found. Given out again only when recovery has swept everything.
using Owner = std::uint16_t;
inline constexpr Owner kNobody = 0;              ///< no participant
inline constexpr Owner kMaxParticipants = 1023;  ///< at the same time, in one session

/// What a shared object is.
enum class ObjectKind : std::uint16_t {
  queue = 1,
  lock,
  rlock,
  semaphore,
  condition,
  event,
  barrier,
  value,
  array,
  overflow,   ///< one message that is larger than its queue's memory
  slab,       ///< memory with a file of its own
  timelines,  ///< all timelines of the session; there is one such object
};

/// The kind's name as written above.
[[nodiscard]] std::string_view to_string(ObjectKind kind) noexcept;

/// From what the keeper makes an object: the kind, and numbers whose meaning the kind knows.
struct ObjectSpec {
  ObjectKind kind = ObjectKind::queue;           ///< what it is
  std::array<std::uint64_t, 6> parameters = {};  ///< e.g. the capacity of a queue
};

/// The name of a shared object, valid in every process of the session: a small value to be sent or passed as an
/// argument. A handle whose object is gone is an error when opened, never another object.
struct ObjectHandle {
  ObjectKind kind = ObjectKind::queue;  ///< what it is
  std::uint32_t slab = 0;               ///< in which memory file of the session it lies
  std::uint64_t offset = 0;             ///< where in it
  std::uint64_t generation = 0;         ///< never used twice in a session

  /// As text without spaces, for an argument of a worker: "queue:3:0:17".
  [[nodiscard]] std::string to_string() const;
  /// Reads such a text; throws `Errc::invalid_argument` for any other.
  [[nodiscard]] static ObjectHandle parse(std::string_view text);

  /// Same object.
  friend bool operator==(const ObjectHandle&, const ObjectHandle&) = default;
  /// Some order, for maps.
  friend auto operator<=>(const ObjectHandle&, const ObjectHandle&) = default;
};

/// An object open in this process.
struct OpenObject {
  ObjectHandle handle;        ///< its name
  ObjectSpec spec;            ///< as the keeper knows it, not as shared memory says
  std::byte* data = nullptr;  ///< its header, followed by its layout; mapped until closed
};

/// Who is in a session. Counts only; changes at any time.
struct Population {
  std::uint32_t present = 0;   ///< participants that are alive
  std::uint32_t starting = 0;  ///< announced, on their way
  std::uint64_t departed = 0;  ///< ended since the session began
};

/// This process as a member of a session: the seam between shared objects and what keeps them. `Session` is the
/// one users have. Safe for all threads of the process.
class Membership {
 public:
  virtual ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// The number under which this participant takes things; `kNobody` in a forked child, which is no participant.
  [[nodiscard]] Owner self() const noexcept { return self_.load(std::memory_order_relaxed); }
  /// The same; throws `Errc::forked` in a forked child, since its takings would be its parent's.
  [[nodiscard]] Owner require_self() const {
    const Owner owner = self();
    if (owner == kNobody) [[unlikely]]
      fail_without_number();
    return owner;
  }
  /// Makes an object and opens it here. Of a kind of which a session has one, that is opened if it exists.
  [[nodiscard]] virtual OpenObject create(const ObjectSpec& spec) = 0;
  /// The same for a kind of object that has a file: the keeper holds a duplicate of `file` as long as the object
  /// exists, whoever dies; the descriptor stays the caller's. Done whole or not at all. Throws
  /// `Errc::invalid_argument` if the kind has none, as `create(spec)` does if it has one; `Errc::limit_reached` when
  /// the keeper has too many files open; `Errc::unsupported` where nobody is there to hold it.
  [[nodiscard]] virtual OpenObject create(const ObjectSpec& spec, const Fd& file);
  /// Opens an object another participant made. Throws `Errc::not_found` if it is gone.
  [[nodiscard]] virtual OpenObject open(const ObjectHandle& handle) = 0;
  /// Ends one opening: an object that a process opened twice it closes twice. The object goes with the last opening
  /// of the last process.
  virtual void close(const ObjectHandle& handle) noexcept = 0;
  /// A new descriptor, closed on exec, of the file of an object that is open here; to be asked for once per process,
  /// not once per use. Throws `Errc::not_found` if the object is gone or has no file, `Errc::invalid_argument` if it
  /// is not open here.
  [[nodiscard]] virtual Fd file_of(const ObjectHandle& handle);
  /// The session holds these leases under a name until it is dropped, or the session ends, whoever dies. Afterwards
  /// they are no longer the caller's; if this throws, nothing was kept and they still are (a record without leases
  /// that timed out may be kept later). What was kept under the name is replaced: its leases end after the new ones
  /// are held. `record` comes back with `recall`; `description` is one line for people. The limits are in
  /// `drover/ipc/kept.hpp`. Throws `Errc::invalid_argument` for what is beyond them, for a name or description that
  /// is not printable, an empty name, and leases that claim nothing or are of another session; `Errc::limit_reached`
  /// if there are too many names; `Errc::unsupported` where nobody keeps.
  virtual void keep(std::string_view name, std::span<const std::byte> record, std::string_view description,
                    std::span<Lease> leases);
  /// What is kept under a name, with new leases of this process; it stays kept. Takes as long whatever its size.
  /// Throws `Errc::not_found`, with names that are kept, if there is no such.
  [[nodiscard]] virtual Recalled recall(std::string_view name);
  /// Everything that is kept, by name.
  [[nodiscard]] virtual std::vector<KeptInfo> kept();
  /// Ends what is kept under a name; blocks on which others have leases stay. Throws as `recall`.
  virtual void drop(std::string_view name);
  /// Throws `Errc::peer_lost`, with who and why, if the session is over for this process: the keeper died, the
  /// session ended, or this is a forked child. A system call; for the slow path of waiting.
  virtual void check() const = 0;
  /// Who is there.
  [[nodiscard]] virtual Population population() const noexcept = 0;

 protected:
  /// A process that is numbered later, by `set_self`.
  Membership();
  /// What joining the session gave.
  void set_self(Owner owner) noexcept { self_.store(owner, std::memory_order_relaxed); }

 private:
  friend struct MembershipForks;
  [[noreturn]] static void fail_without_number();

  std::atomic<Owner> self_{kNobody};
};

}  // namespace drover
