// drover/ipc/event.hpp: a flag to wait for.
#pragma once

#include <memory>

#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"

namespace drover::ipc {
struct Bell;
struct EventLayout;
struct ObjectAccess;
class Patience;
}  // namespace drover::ipc

namespace drover {

/// A flag, initially clear, that any participant may set, clear and wait for. It has no holder, so a death does not
/// change it. All functions are safe for all threads.
class Event {
 public:
  /// Makes one.
  explicit Event(std::shared_ptr<Membership> membership);
  /// Opens one.
  Event(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
  /// Takes over the opening; use of `other` then throws `Errc::invalid_argument`.
  Event(Event&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  Event& operator=(Event&& other) noexcept;
  ~Event();

  /// Sets the flag and ends all current waits, even if it is cleared at once. No system call if nobody sleeps.
  void set();
  /// Clears the flag.
  void clear();
  /// Whether it is set.
  [[nodiscard]] bool is_set() const;
  /// Waits until the flag is set, or has been set since the call began. Throws `Errc::peer_lost` when the session is
  /// over, and if there is no deadline and nobody is left who could set it: a participant has departed, and the
  /// session has no other one, nor one that is starting. A thread or a signal handler of this program, a pool, and a
  /// named session, which anybody may join, could always do so.
  WaitResult wait(Deadline deadline = Deadline::never());

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const { return object_.handle(); }

 private:
  friend class WaitSource;  // wait() sleeps on the bells of all its sources
  friend struct ipc::ObjectAccess;

  [[nodiscard]] ipc::Bell& bell() const;
  [[nodiscard]] ipc::EventLayout& layout() const;

  SharedObject object_;
  std::unique_ptr<ipc::Patience> patience_;
};

}  // namespace drover
