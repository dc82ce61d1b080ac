#include "drover/ipc/barrier.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "drover/base/error.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/object/local_openings.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/sync/barrier_layout.hpp"
#include "ipc/wake/bell.hpp"

namespace drover {

struct Barrier::State {
  explicit State(SharedObject opened)
      : object(std::move(opened)), opening(object, [this] { set_member(true); }, [this] { close(); }) {}

  [[nodiscard]] ipc::BarrierLayout& layout() const { return *reinterpret_cast<ipc::BarrierLayout*>(object.layout()); }
  [[nodiscard]] ipc::BarrierWord now() const { return ipc::BarrierWord::unpack(layout().word.load()); }

  void set_member(bool is_member) const {
    const Owner self = object.self();
    auto& members = layout().members.at(self / 64U);
    const std::uint64_t bit = std::uint64_t{1} << (self % 64U);
    if (is_member) {
      members.fetch_or(bit);
    } else {
      members.fetch_and(~bit);
    }
  }

  // Breaks it before it leaves: a death in between breaks it too.
  void close() const {
    if (std::uncaught_exceptions() > exceptions) break_it();
    set_member(false);
  }

  void break_it() const {
    layout().word.fetch_or(ipc::BarrierWord{.is_broken = true}.pack());
    wake_all(layout().bell);
  }

  // Replaces the word by the result of `change`, unless that is nullopt; returns the word before.
  // Most callers need only the change.
  template <class Change>
  ipc::BarrierWord replace(Change change) const {  // NOLINT(modernize-use-nodiscard)
    std::uint64_t seen = layout().word.load();
    for (;;) {
      const ipc::BarrierWord before = ipc::BarrierWord::unpack(seen);
      const std::optional<ipc::BarrierWord> after = change(before);
      if (!after || layout().word.compare_exchange_weak(seen, after->pack())) return before;
    }
  }

  [[nodiscard]] ipc::BarrierWord arrive() const;
  [[nodiscard]] BarrierResult outcome_of(ipc::BarrierWord arrival) const;
  [[nodiscard]] BarrierResult give_up(ipc::BarrierWord arrival) const;

  SharedObject object;
  std::uint32_t parties = static_cast<std::uint32_t>(object.spec().parameters[0]);
  ipc::Patience patience;
  int exceptions = std::uncaught_exceptions();  // in the opening thread
  ipc::LocalOpening opening;
};

// Counts the caller, and ends the round if it is the last to arrive. A broken round does not change.
ipc::BarrierWord Barrier::State::arrive() const {
  const ipc::BarrierWord before = replace([&](ipc::BarrierWord word) -> std::optional<ipc::BarrierWord> {
    if (word.is_broken) return std::nullopt;
    if (word.arrived + 1U >= parties) return word.next(true);
    ++word.arrived;
    return word;
  });
  if (!before.is_broken && before.arrived + 1U >= parties) wake_all(layout().bell);
  return before;
}

// Requires: the round of the arrival has ended, or is broken.
BarrierResult Barrier::State::outcome_of(ipc::BarrierWord arrival) const {
  const ipc::BarrierWord seen = now();
  const bool is_passed = seen.round != arrival.round && seen.was_passed(arrival);
  return {.kind = is_passed ? BarrierResult::Kind::passed : BarrierResult::Kind::broken, .index = arrival.arrived};
}

// After the deadline: breaks the round, unless it has ended meanwhile.
BarrierResult Barrier::State::give_up(ipc::BarrierWord arrival) const {
  const ipc::BarrierWord before = replace([&](ipc::BarrierWord word) -> std::optional<ipc::BarrierWord> {
    if (word.round != arrival.round || word.is_broken) return std::nullopt;
    word.is_broken = true;
    return word;
  });
  if (before.round != arrival.round || before.is_broken) return outcome_of(arrival);
  wake_all(layout().bell);
  return {.kind = BarrierResult::Kind::timed_out, .index = arrival.arrived};
}

Barrier::Barrier(std::shared_ptr<Membership> membership, std::uint32_t parties)
    : state_(std::make_unique<State>(
          SharedObject(std::move(membership), ObjectSpec{.kind = ObjectKind::barrier, .parameters = {parties}}))) {}

Barrier::Barrier(std::shared_ptr<Membership> membership, const ObjectHandle& handle)
    : state_(std::make_unique<State>(SharedObject(std::move(membership), handle, ObjectKind::barrier))) {}

Barrier::Barrier(Barrier&&) noexcept = default;
Barrier& Barrier::operator=(Barrier&&) noexcept = default;
Barrier::~Barrier() = default;

const SharedObject& Barrier::object() const { return state_->object; }

// A party that died before it opened the barrier did not break it, so a waiter that is left alone does.
BarrierResult Barrier::wait(Deadline deadline) {
  static_cast<void>(state_->object.self());  // throws in a forked child
  const ipc::BarrierWord arrival = state_->arrive();
  if (arrival.is_broken) return {.kind = BarrierResult::Kind::broken, .index = 0};
  bool is_over = false;
  try {
    is_over =
        ipc::wait_on([] { return "barrier"; }, state_->layout().bell, state_->object, deadline, state_->patience,
                     [&] {
                       const ipc::BarrierWord seen = state_->now();
                       return seen.round != arrival.round || seen.is_broken;
                     });
  } catch (const Error&) {
    state_->object.membership().check();  // throws if the session is over
    state_->break_it();
    is_over = true;
  }
  return is_over ? state_->outcome_of(arrival) : state_->give_up(arrival);
}

void Barrier::reset() {
  static_cast<void>(state_->object.self());
  static_cast<void>(state_->replace([](ipc::BarrierWord word) { return std::optional(word.next(false)); }));
  wake_all(state_->layout().bell);
}

void Barrier::abort() {
  static_cast<void>(state_->object.self());
  state_->break_it();
}

bool Barrier::is_broken() const { return state_->now().is_broken; }

std::uint32_t Barrier::parties() const { return state_->parties; }

std::uint32_t Barrier::waiting() const {
  const ipc::BarrierWord now = state_->now();
  return now.is_broken ? 0 : now.arrived;
}

pid_t Barrier::last_lost() const {
  return static_cast<pid_t>(ipc::header_of(state_->object.data()).last_lost.load());
}

const ObjectHandle& Barrier::handle() const { return state_->object.handle(); }

}  // namespace drover
