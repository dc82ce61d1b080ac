#include "drover/ipc/event.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "drover/ipc/wait.hpp"
#include "ipc/sync/event_layout.hpp"
#include "ipc/wake/bell.hpp"

namespace drover {
namespace {

constexpr std::uint64_t kSet = 1;
constexpr std::uint64_t kOneSet = 2;

ipc::EventLayout& event_at(std::byte* layout) { return *reinterpret_cast<ipc::EventLayout*>(layout); }

}  // namespace

// A setter killed before it wakes leaves sleepers, so recovery wakes them after each death.
const ipc::ObjectKindInfo ipc::event_kind = {
    .layout_bytes = [](const ObjectSpec&) { return sizeof(ipc::EventLayout); },
    .format = [](std::byte* layout, const ObjectSpec&) { new (layout) ipc::EventLayout{}; },
    .recover = [](std::byte* layout, const ObjectSpec&, Owner) { ipc::wake_always(event_at(layout).bell); },
    .wake_all = [](std::byte* layout, const ObjectSpec&) { ipc::wake_always(event_at(layout).bell); }};

Event::Event(std::shared_ptr<Membership> membership)
    : object_(std::move(membership), ObjectSpec{.kind = ObjectKind::event}),
      patience_(std::make_unique<ipc::Patience>()) {}

Event::Event(std::shared_ptr<Membership> membership, const ObjectHandle& handle)
    : object_(std::move(membership), handle, ObjectKind::event), patience_(std::make_unique<ipc::Patience>()) {}

Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
Event::~Event() = default;

ipc::EventLayout& Event::layout() const { return event_at(object_.layout()); }

ipc::Bell& Event::bell() const { return layout().bell; }

void Event::set() {
  static_cast<void>(object_.self());  // throws in a forked child
  std::uint64_t seen = layout().state.load();
  while ((seen & kSet) == 0) {
    if (!layout().state.compare_exchange_weak(seen, (seen + kOneSet) | kSet)) continue;
    wake_all(bell());
    return;
  }
}

void Event::clear() {
  static_cast<void>(object_.self());
  layout().state.fetch_and(~kSet);
}

bool Event::is_set() const { return (layout().state.load() & kSet) != 0; }

WaitResult Event::wait(Deadline deadline) {
  static_cast<void>(object_.self());
  const std::uint64_t before = layout().state.load() & ~kSet;
  const bool is_done = ipc::wait_on([] { return "event"; }, bell(), object_, deadline, *patience_,
                                    [&] {
                                      const std::uint64_t seen = layout().state.load();
                                      return (seen & kSet) != 0 || seen != before;
                                    });
  return is_done ? WaitResult::done : WaitResult::timed_out;
}

WaitSource::WaitSource(const Event& event)
    : bell_(&event.bell()),
      is_ready_([&event] { return event.is_set(); }),
      membership_(event.object_.shared_membership()) {}

}  // namespace drover
