// drover/ipc/membership.hpp: shared objects, and the session that they belong to as they see it.
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

#include "drover/base/checked.hpp"
#include "drover/base/fd.hpp"

namespace drover {

class Lease;
struct KeptInfo;
struct Recalled;

/// Number of a participant in its session, from 1. A participant stamps it, in one atomic step, into everything that
/// it claims, so that recovery finds all of it. Reused only after recovery is complete.
using Owner = std::uint16_t;
inline constexpr Owner kNobody = 0;              ///< no participant
inline constexpr Owner kMaxParticipants = 1023;  ///< at the same time, in one session

/// The kinds of shared objects.
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
  timelines,  ///< all timelines of the session, in one object
};

/// The kind's name as written above.
[[nodiscard]] std::string_view to_string(ObjectKind kind) noexcept;

/// The specification of an object: its kind, and parameters whose meaning depends on the kind.
struct ObjectSpec {
  ObjectKind kind = ObjectKind::queue;           ///< its kind
  std::array<std::uint64_t, 6> parameters = {};  ///< e.g. the capacity of a queue
};

/// The name of a shared object, valid in every process of the session: a small value to send or to pass as an
/// argument. Opening a handle whose object is gone is an error; it never names another object.
struct ObjectHandle {
  ObjectKind kind = ObjectKind::queue;  ///< its kind
  std::uint32_t slab = 0;               ///< number of its memory file in the session
  std::uint64_t offset = 0;             ///< offset in that file
  std::uint64_t generation = 0;         ///< unique in the session

  /// A text without spaces, for an argument of a worker: "queue:3:0:17".
  [[nodiscard]] std::string to_string() const;
  /// Parses such a text; throws `Errc::invalid_argument` for any other.
  [[nodiscard]] static ObjectHandle parse(std::string_view text);

  /// Same object.
  friend bool operator==(const ObjectHandle&, const ObjectHandle&) = default;
  /// An order, for maps.
  friend auto operator<=>(const ObjectHandle&, const ObjectHandle&) = default;
};

/// An object open in this process.
struct OpenObject {
  ObjectHandle handle;        ///< its name
  ObjectSpec spec;            ///< from the keeper, not from shared memory
  std::byte* data = nullptr;  ///< its header, followed by its layout; mapped until closed
};

/// The number of participants of a session; changes at any time.
struct Population {
  std::uint32_t present = 0;   ///< alive
  std::uint32_t starting = 0;  ///< announced, but not yet joined
  std::uint64_t departed = 0;  ///< ended since the session started
};

namespace detail {

/// In the shared memory of a session: whether it is over.
struct SessionLife {
  static constexpr std::uint32_t kOwnerDied = 0x40000000;  ///< FUTEX_OWNER_DIED
  std::atomic<std::uint32_t> is_ending;                    ///< set when the session begins to end
  std::atomic<std::uint32_t> keeper;                       ///< the keeper's thread; the kernel adds kOwnerDied

  /// Whether the session has begun to end, or its keeper has died. Two loads of one cache line.
  [[nodiscard]] bool is_over() const noexcept {
    return is_ending.load(std::memory_order_acquire) != 0 ||
           (keeper.load(std::memory_order_acquire) & kOwnerDied) != 0;
  }
};

}  // namespace detail

/// This process as a member of a session: the interface between shared objects and their keeper. Users have a
/// `Session`. Safe for all threads of the process.
class Membership {
 public:
  virtual ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// The number of this participant; `kNobody` in a forked child, which is no participant.
  [[nodiscard]] Owner self() const noexcept { return self_.load(std::memory_order_relaxed); }
  /// The same; throws `Errc::forked` in a forked child, whose claims would be its parent's.
  [[nodiscard]] Owner require_self() const {
    const Owner owner = self();
    if (owner == kNobody) [[unlikely]]
      fail_without_number();
    return owner;
  }
  /// Whether the session has ended or its keeper has died, so that nobody can receive what is put into it now. Two
  /// loads; `check` has the reason.
  [[nodiscard]] bool is_over() const noexcept { return life_ != nullptr && life_->is_over(); }
  /// Whether a participant has this number now. True if that is unknown.
  [[nodiscard]] virtual bool has_participant(Owner number) const noexcept;
  /// Makes an object and opens it here; opens the existing one of a kind that a session has only once.
  [[nodiscard]] virtual OpenObject create(const ObjectSpec& spec) = 0;
  /// The same for a kind of object that has a file: the keeper holds a duplicate of `file` as long as the object
  /// exists, regardless of deaths; the descriptor stays the caller's. All or nothing. Throws `Errc::invalid_argument`
  /// if the kind has no file, as `create(spec)` does if it has one; `Errc::limit_reached` if the keeper has too many
  /// open files; `Errc::unsupported` without a keeper.
  [[nodiscard]] virtual OpenObject create(const ObjectSpec& spec, const Fd& file);
  /// Opens an object that another participant made. Throws `Errc::not_found` if it is gone.
  [[nodiscard]] virtual OpenObject open(const ObjectHandle& handle) = 0;
  /// Ends one opening; an object opened twice must be closed twice. The last process's last opening frees the object.
  virtual void close(const ObjectHandle& handle) noexcept = 0;
  /// A new descriptor, closed on exec, of the file of an object that is open here; request it once per process, not
  /// once per use. Throws `Errc::not_found` if the object is gone or has no file, `Errc::invalid_argument` if it is
  /// not open here.
  [[nodiscard]] virtual Fd file_of(const ObjectHandle& handle);
  /// Keeps leases under a name until `drop` or the end of the session, regardless of deaths. Afterwards they are
  /// empty; if this throws, nothing was kept and they are unchanged (a record without leases that timed out may be
  /// kept later). Replaces the entry of the name, whose leases end after the new ones are held. `record` comes back
  /// with `recall`; `description` is one line for display. The limits are in `drover/ipc/lease.hpp`. Throws
  /// `Errc::invalid_argument` beyond them, for a name or description that is not printable, an empty name, and leases
  /// that are empty or of another session; `Errc::limit_reached` if there are too many names; `Errc::unsupported`
  /// without a keeper.
  virtual void keep(std::string_view name, std::span<const std::byte> record, std::string_view description,
                    std::span<Lease> leases);
  /// The entry of a name, with new leases of this process; it stays kept. Takes constant time. Throws
  /// `Errc::not_found`, with similar names, if there is none.
  [[nodiscard]] virtual Recalled recall(std::string_view name);
  /// All entries, by name.
  [[nodiscard]] virtual std::vector<KeptInfo> kept();
  /// Drops the entry of a name; blocks with other leases stay. Throws as `recall`.
  virtual void drop(std::string_view name);
  /// Throws `Errc::peer_lost`, with the reason, if the session is over for this process: the keeper died, the session
  /// ended, or this is a forked child. A system call; for the slow path of waits.
  virtual void check() const = 0;
  /// The current number of participants.
  [[nodiscard]] virtual Population population() const noexcept = 0;
  /// Whether processes may join unannounced, as they do a named session.
  [[nodiscard]] virtual bool is_open_to_all() const noexcept { return false; }

 protected:
  /// Has no number before `set_self`.
  Membership();
  /// Sets the number that joining the session returned.
  void set_self(Owner owner) noexcept { self_.store(owner, std::memory_order_relaxed); }
  /// Sets where the session shows that it is over. Requires: lives as long as this.
  void set_life(const detail::SessionLife& life) noexcept { life_ = &life; }

 private:
  friend struct MembershipForks;
  [[noreturn]] static void fail_without_number();

  std::atomic<Owner> self_{kNobody};
  const detail::SessionLife* life_ = nullptr;
};

/// One opening of a shared object by this process, closed on destruction: the base of `Queue`, `Lock` and the others.
/// Move-only; a moved-from one owns nothing, and its use throws `Errc::invalid_argument`. Shares the membership,
/// because any object may be the last to need it.
class SharedObject {
 public:
  /// Makes a new object.
  SharedObject(std::shared_ptr<Membership> membership, const ObjectSpec& spec);
  /// Makes an object of a kind that has a file: Membership::create.
  SharedObject(std::shared_ptr<Membership> membership, const ObjectSpec& spec, const Fd& file);
  /// Opens an existing one. Throws `Errc::invalid_argument` if the handle names another kind, `Errc::not_found` if
  /// the object is gone, `Errc::corrupt` if its header is corrupt or of another version.
  SharedObject(std::shared_ptr<Membership> membership, const ObjectHandle& handle, ObjectKind kind);
  /// Takes over the opening.
  SharedObject(SharedObject&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  SharedObject& operator=(SharedObject&& other) noexcept;
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;
  ~SharedObject();

  /// Whether it is open: false once it was moved from, and then the calls below throw.
  [[nodiscard]] bool is_open() const noexcept { return object_.data != nullptr; }
  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const { return opened().handle; }
  /// Its specification.
  [[nodiscard]] const ObjectSpec& spec() const { return opened().spec; }
  /// The layout, behind the header.
  [[nodiscard]] std::byte* layout() const;
  /// The header.
  [[nodiscard]] std::byte* data() const { return opened().data; }
  /// The session it belongs to.
  [[nodiscard]] Membership& membership() const { return *membership_; }
  /// The same, to open further objects with.
  [[nodiscard]] const std::shared_ptr<Membership>& shared_membership() const {
    static_cast<void>(opened());
    return membership_.pointer();
  }
  /// The number of this participant; throws `Errc::forked` in a forked child.
  [[nodiscard]] Owner self() const { return membership_->require_self(); }

 private:
  void close() noexcept;
  [[nodiscard]] const OpenObject& opened() const {
    if (!is_open()) [[unlikely]]
      detail::fail_empty();
    return object_;
  }

  detail::Checked<std::shared_ptr<Membership>> membership_;
  OpenObject object_;
};

}  // namespace drover
