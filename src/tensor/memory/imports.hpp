// tensor/memory/imports.hpp: memory of other libraries as slabs.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "drover/base/fd.hpp"
#include "drover/ipc/lease.hpp"
#include "tensor/memory/slab_table.hpp"

namespace drover::tensor {

/// Makes memory of other libraries a slab, once for all its uses, and gives it back when no process uses it any more.
/// What keeps such memory alive belongs to the other library, whose deleter may do anything: it is released without
/// the mutex. Safe for all threads.
class Imports {
 public:
  /// `table` must outlive this.
  Imports(std::shared_ptr<Membership> membership, SlabTable& table)
      : membership_(std::move(membership)), table_(table) {}

  /// A lease on a whole allocation, and its slab, which is in the table. Holds `kept` until no process has a lease on
  /// the block any more, or has it open. Throws as `MappedSlab::make`.
  [[nodiscard]] std::pair<Lease, std::shared_ptr<MappedSlab>> open(const ForeignMemory& memory, const KeptBytes& kept)
      DROVER_EXCLUDES(table_.mutex) {
    return open_or_make(memory, kept, [&] { return MappedSlab::make(membership_, memory); });
  }
  /// The same for the first `bytes` of a file of another library.
  [[nodiscard]] std::pair<Lease, std::shared_ptr<MappedSlab>> open(const Fd& file, std::uint64_t bytes)
      DROVER_EXCLUDES(table_.mutex) {
    return open_or_make(foreign_file(file, bytes), {}, [&] { return MappedSlab::make(membership_, file, bytes); });
  }
  /// Removes imports that no process uses any more, for the caller to destroy.
  [[nodiscard]] std::vector<SlabEntry> take_unused() DROVER_EXCLUDES(table_.mutex);
  /// The same for files only, for which no device is waited for.
  [[nodiscard]] std::vector<SlabEntry> take_unused_files() DROVER_EXCLUDES(table_.mutex);
  [[nodiscard]] bool has_files() const DROVER_EXCLUDES(table_.mutex);

 private:
  [[nodiscard]] std::pair<Lease, std::shared_ptr<MappedSlab>> open_or_make(
      const ForeignMemory& memory, const KeptBytes& kept, const std::function<std::shared_ptr<MappedSlab>()>& make)
      DROVER_EXCLUDES(table_.mutex);
  [[nodiscard]] std::pair<Lease, std::shared_ptr<MappedSlab>> reopen(const ForeignMemory& memory,
                                                                     const KeptBytes& kept)
      DROVER_EXCLUDES(table_.mutex);

  const std::shared_ptr<Membership> membership_;
  SlabTable& table_;
};

}  // namespace drover::tensor
