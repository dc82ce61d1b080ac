#include "ipc/ledger/block_pool_core.hpp"

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::ipc {
namespace {

class PoolRebuild {
 public:
  explicit PoolRebuild(const BlockPoolCore<>& core) noexcept : core_(core) {}

  // If a corrupt word breaks the tiling off, the pool is whole before that place and unused behind it.
  void run() {
    PoolHeader& header = core_.view().header;
    core_.lists().clear();
    header.orphans = kNoLink;
    walk();
    end_free();
    header.free_chunks = free_chunks_;
    header.used_blocks = used_blocks_;
  }

 private:
  void walk() {
    const PoolView& view = core_.view();
    std::uint32_t length = 0;
    for (std::uint32_t chunk = 0; chunk < view.chunks; chunk += length) {
      const Extent extent = core_.extent_at(chunk);
      length = extent.length;
      if (length == 0 || length > view.chunks - chunk) return;
      if (extent.is_used && !BlockPoolCore<>::is_orphan(extent)) {
        add_used(chunk, length);
      } else {
        add_free(chunk, extent);
      }
    }
  }

  void add_used(std::uint32_t chunk, std::uint32_t length) {
    end_free();
    core_.view().cells[chunk + length - 1].free_before = 0;
    ++used_blocks_;
  }

  // Unites it with a free run before it, in case the dead had not done so.
  void add_free(std::uint32_t chunk, const Extent& extent) {
    if (extent.is_used) {
      const std::uint32_t next_generation = (extent.generation + 1) & kGenerationMask;
      core_.write_word(chunk, {.length = extent.length, .generation = next_generation});
    }
    if (run_length_ == 0) run_start_ = chunk;
    run_length_ += extent.length;
  }

  void end_free() {
    if (run_length_ == 0) return;
    core_.write_word(run_start_, {.length = run_length_, .generation = core_.extent_at(run_start_).generation});
    core_.add_free(run_start_, run_length_);
    free_chunks_ += run_length_;
    run_length_ = 0;
  }

  const BlockPoolCore<>& core_;
  std::uint32_t run_start_ = 0;
  std::uint32_t run_length_ = 0;
  std::uint32_t free_chunks_ = 0;
  std::uint32_t used_blocks_ = 0;
};

}  // namespace

void rebuild(const BlockPoolCore<>& core) { PoolRebuild(core).run(); }

void throw_corrupt_pool(const char* what, std::uint64_t chunk) {
  throw Error(Errc::corrupt, fmt::format("the state of a block pool is corrupt: {} {}", chunk, what),
              "look for a process that writes outside its blocks");
}

}  // namespace drover::ipc
