// A pool of blocks: compared with a plain list of its blocks while its state is intact, then with a corrupted state.
#include <cstring>
#include <memory>
#include <vector>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "fuzz/fuzz_input.hpp"
#include "fuzz/spoiled_objects.hpp"
#include "ipc/ledger/block_pool.hpp"

namespace {

using namespace drover;

struct Given {
  ipc::BlockRef block;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  Owner owner = kNobody;
};

class PoolRun {
 public:
  explicit PoolRun(fuzz::Input& input)
      : input_(input), geometry_{.bytes = 256 * (1 + input.take_up_to(63)), .chunk_bytes = 256} {
    state_.resize(ipc::pool_state_bytes(geometry_) / sizeof(Line));
    ipc::format_pool(state(), geometry_);
  }

  void run() {
    for (int steps = 0; !input_.is_empty() && steps < 300; ++steps) {
      try {
        step();
      } catch (const Error& error) {
        fuzz::check(is_spoiled_ || is_error_expected_);
        fuzz::check(error.code() == Errc::corrupt || error.code() == Errc::peer_lost);
      }
      is_error_expected_ = false;
    }
    if (!is_spoiled_) free_everything();
  }

 private:
  struct alignas(ipc::kCacheLine) Line {
    std::byte bytes[ipc::kCacheLine];
  };
  std::byte* state() { return reinterpret_cast<std::byte*>(state_.data()); }
  [[nodiscard]] ipc::BlockPool pool() { return {state(), geometry_}; }

  void step() {
    switch (input_.take<std::uint8_t>() % 8) {
      case 0:
      case 1:
      case 2: allocate(); return;
      case 3: free_one(); return;
      case 4: adopt(); return;
      case 5: use_wrong_name(); return;
      case 6: recover(); return;
      default: spoil(); return;
    }
  }

  void allocate() {
    const std::uint64_t bytes = 1 + input_.take_up_to(geometry_.bytes);
    const auto owner = static_cast<Owner>(1 + input_.take_up_to(2));
    const auto block = pool().allocate(bytes, owner, objects_);
    if (!block) return;
    const std::uint64_t begin = pool().offset_of(*block);
    const std::uint64_t capacity = pool().capacity_of(*block);
    fuzz::check(is_spoiled_ || (capacity >= bytes && begin + capacity <= geometry_.bytes));
    if (is_spoiled_) return;
    for (const Given& other : given_) fuzz::check(begin >= other.end || begin + capacity <= other.begin);
    given_.push_back({.block = *block, .begin = begin, .end = begin + capacity, .owner = owner});
  }

  void free_one() {
    if (given_.empty()) return;
    const auto at = given_.begin() + static_cast<std::ptrdiff_t>(input_.take_up_to(given_.size() - 1));
    const Given given = *at;
    given_.erase(at);
    pool().free(given.block, given.owner, objects_);
  }

  void adopt() {
    if (given_.empty()) return;
    Given& given = given_[input_.take_up_to(given_.size() - 1)];
    given.owner = static_cast<Owner>(1 + input_.take_up_to(2));
    pool().adopt(given.block, given.owner);
    fuzz::check(is_spoiled_ || pool().owner_of(given.block) == given.owner);
  }

  void use_wrong_name() {
    is_error_expected_ = true;
    const auto wrong = input_.take<ipc::BlockRef>();
    for (const Given& given : given_) {
      if (given.block == wrong) return;
    }
    switch (input_.take<std::uint8_t>() % 3) {
      case 0: pool().free(wrong, 1, objects_); break;
      case 1: pool().adopt(wrong, 1); break;
      default: static_cast<void>(pool().offset_of(wrong)); break;
    }
    fuzz::check(is_spoiled_);  // it should have thrown
  }

  void recover() {
    const auto dead = static_cast<Owner>(1 + input_.take_up_to(2));
    const auto kept = input_.take<std::uint64_t>();
    const auto is_kept = [&](ipc::BlockRef block) { return (kept >> (block.chunk % 64) & 1U) != 0; };
    pool().recover(dead, is_kept);
    std::erase_if(given_, [&](const Given& given) { return given.owner == dead && !is_kept(given.block); });
  }

  void spoil() {
    is_spoiled_ = true;
    fuzz::spoil({state(), state_.size() * sizeof(Line)}, input_);
    std::memset(state(), 0, sizeof(ipc::CellLockLayout));  // otherwise the pool would rightly wait for the owner
  }

  void free_everything() {
    for (const Given& given : given_) pool().free(given.block, given.owner, objects_);
    const ipc::PoolUsage usage = pool().usage(objects_);
    fuzz::check(usage.used_blocks == 0 && usage.free_bytes == usage.total_bytes);
    fuzz::check(usage.largest_free_bytes == usage.total_bytes);
  }

  fuzz::Input& input_;
  ipc::PoolGeometry geometry_;
  std::vector<Line> state_;
  fuzz::SpoiledObjects objects_{1};
  std::vector<Given> given_;
  bool is_spoiled_ = false;
  bool is_error_expected_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_log_sink([](LogLevel, std::string_view) noexcept {});
  fuzz::Input input(data, size);
  PoolRun(input).run();
  return 0;
}
