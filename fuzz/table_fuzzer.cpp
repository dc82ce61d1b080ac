// The keeper's table of objects: specs and handles from participants, and memory that they have corrupted.
#include <fcntl.h>

#include <string>
#include <vector>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "fuzz/fuzz_input.hpp"
#include "fuzz/spoiled_objects.hpp"
#include "ipc/registry/kept_table.hpp"
#include "ipc/registry/object_table.hpp"

namespace {

using namespace drover;

class TableRun {
 public:
  explicit TableRun(fuzz::Input& input) : input_(input) {}

  void run() {
    for (int steps = 0; !input_.is_empty() && steps < 40; ++steps) {
      try {
        step();
      } catch (const Error& error) {
        continue;  // a valid outcome
      }
    }
    for (Owner owner = 1; owner <= kOwners; ++owner) table_.depart(owner, 1);
    while (const ipc::KeptEntry* const entry = kept_.next("")) kept_.drop(std::string(entry->info.name));
    // When its last opener closes, everything is freed but the timelines, which belong to the session.
    fuzz::check(table_.size() <= 1 && table_.file_count() == 0);
  }

 private:
  static constexpr Owner kOwners = 3;

  void step() {
    const auto owner = static_cast<Owner>(1 + input_.take_up_to(kOwners - 1));
    switch (input_.take<std::uint8_t>() % 9) {
      case 0:
      case 1: create(owner); return;
      case 2: static_cast<void>(table_.open(take_handle(), owner)); return;
      case 3: table_.close(take_handle(), owner); return;
      case 4: table_.depart(owner, 1); return;
      case 5: static_cast<void>(table_.file_of(take_handle(), owner)); return;
      case 6: keep(owner); return;
      case 7: kept_.drop(take_name()); return;
      default: spoil(); return;
    }
  }

  // Mostly with the file that the kind requires; sometimes without it, or with one too many.
  void create(Owner owner) {
    const ObjectSpec spec = take_spec();
    const bool is_wrong = input_.take<std::uint8_t>() % 8 == 0;
    const bool has_file = (spec.kind == ObjectKind::slab) != is_wrong;
    handles_.push_back(table_.create(spec, owner, 0, has_file ? file_.duplicate() : Fd{}));
    fuzz::check(!is_wrong);
    if (has_file) fuzz::check(table_.file_of(handles_.back(), owner).is_open());
  }

  // Mostly leases that exist; sometimes names that only a faulty participant uses.
  void keep(Owner owner) {
    ipc::KeptEntry entry{.info = {.name = take_name()}, .record = {}, .leases = {}};
    const auto count = input_.take_up_to(3);
    for (std::uint64_t number = 0; number < count; ++number) {
      const ObjectHandle slab = take_handle();
      if (input_.take<std::uint8_t>() % 4 == 0) {
        entry.leases.push_back({.slab = slab, .lease = {.index = input_.take<std::uint8_t>()}});
      } else if (const auto lease = table_.ledger_of(slab).allocate(input_.take_up_to(1024), ipc::offered_by(owner),
                                                                    member_, Deadline::after({}))) {
        entry.leases.push_back({.slab = slab, .lease = *lease});
      }
    }
    kept_.keep(entry, owner);
    fuzz::check(kept_.find(entry.info.name).leases == entry.leases);
  }

  std::string take_name() { return std::string(1, static_cast<char>('a' + input_.take_up_to(3))); }

  ObjectSpec take_spec() {
    ObjectSpec spec;
    spec.kind = static_cast<ObjectKind>(input_.take<std::uint8_t>() % 14);
    const bool is_wild = input_.take<std::uint8_t>() % 4 == 0;
    for (auto& parameter : spec.parameters)
      parameter = is_wild ? input_.take<std::uint64_t>() : input_.take_up_to(40);
    if (spec.kind == ObjectKind::slab && !is_wild) spec.parameters[0] += 512;  // smaller ones are refused
    return spec;
  }

  ObjectHandle take_handle() {
    if (handles_.empty() || input_.take<std::uint8_t>() % 4 == 0) {
      return {.kind = static_cast<ObjectKind>(input_.take<std::uint16_t>()),
              .slab = input_.take<std::uint32_t>(),
              .offset = input_.take<std::uint64_t>(),
              .generation = input_.take<std::uint64_t>()};
    }
    return handles_[input_.take_up_to(handles_.size() - 1)];
  }

  // Headers and layouts are in memory that every participant can write; the table's private data is not.
  void spoil() {
    if (handles_.empty()) return;
    const ObjectHandle handle = handles_[input_.take_up_to(handles_.size() - 1)];
    fuzz::spoil(table_.slab(handle.slab).memory.bytes(), input_);
  }

  fuzz::Input& input_;
  const Fd file_{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  const fuzz::SpoiledObjects member_{1};
  ipc::ObjectTable table_;
  ipc::KeptTable kept_{table_};
  std::vector<ObjectHandle> handles_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_log_sink([](LogLevel, std::string_view) noexcept {});
  fuzz::Input input(data, size);
  TableRun(input).run();
  return 0;
}
