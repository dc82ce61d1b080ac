#include "ipc/sync/lock_layout.hpp"

#include <unistd.h>

#include <new>
#include <string>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover {
namespace {

CellLockLayout& cell_at(std::byte* layout) { return *reinterpret_cast<CellLockLayout*>(layout); }

std::string describe(LockHolder holder, LockHolder self) {
  if (holder.owner == kNobody) return "nobody holds it";
  if (holder.owner != self.owner) {
    return fmt::format("thread {} of participant {} holds it", holder.thread, holder.owner);
  }
  return fmt::format("thread {} of this process holds it", holder.thread);
}

constexpr ObjectKindInfo kOneCell = {
    .layout_bytes = [](const ObjectSpec&) { return sizeof(CellLockLayout); },
    .format = [](std::byte* layout, const ObjectSpec&) { new (layout) CellLockLayout{}; },
    .recover = [](std::byte* layout, const ObjectSpec&, Owner dead) { recover(cell_at(layout), dead); },
    .wake_all = [](std::byte* layout, const ObjectSpec&) { wake_all(cell_at(layout)); }};

}  // namespace

const ObjectKindInfo lock_kind = kOneCell;
const ObjectKindInfo rlock_kind = kOneCell;

void fail_not_holder(const CellLockLayout& cell, LockHolder self, const ObjectHandle& handle) {
  throw Error(Errc::invalid_argument,
              fmt::format("thread {} of process {} (participant {}) releases the {} {}, which it does not hold: {}",
                          self.thread, ::getpid(), self.owner, to_string(handle.kind), handle.to_string(),
                          describe(full_holder_of(cell), self)),
              "release a lock in the thread that acquired it, once for each acquisition");
}

}  // namespace drover
