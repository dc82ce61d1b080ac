#include "drover/tensor/memory.hpp"

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "tensor/memory/memory_state.hpp"

namespace drover {

Place Place::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view digits = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  int index = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool is_number = problem == std::errc{} && end == digits.data() + digits.size() && !digits.starts_with('-');
  if (is_number && name == "cuda") return device(BackendKind::cuda, index);
  if (is_number && name == "host") return device(BackendKind::host, index);
  throw Error(Errc::invalid_argument, fmt::format("'{}' is not a place", text),
              "write cpu, cuda:0 or host:0, with the number of the device");
}

std::string to_string(const Place& place) {
  return place.is_device ? fmt::format("{}:{}", to_string(place.backend), place.index) : "cpu";
}

Block& Block::operator=(Block&& other) noexcept {
  if (this == &other) return *this;
  release();
  lease_ = std::move(other.lease_);
  slab_ = std::move(other.slab_);
  state_ = std::move(other.state_);
  return *this;
}

Place Block::place() const {
  require(is_open(), "an empty block has no place");
  return slab_->place();
}

std::span<std::byte> Block::bytes() const {
  require(is_open(), "an empty block has no bytes");
  require(!slab_->place().is_device, "the CPU cannot access a block on a device",
          "copy it to host memory first, or use device_ptr()");
  return {slab_->host_data() + lease_.offset(), lease_.bytes()};
}

DevicePtr Block::device_ptr() const {
  require(is_open(), "an empty block has no address");
  require(slab_->place().is_device, "a block in host memory has no device address", "use bytes()");
  return slab_->device_data() + lease_.offset();
}

Lease Block::take_lease() noexcept {
  Lease lease = std::move(lease_);
  const auto slab = std::exchange(slab_, nullptr);
  const auto state = std::exchange(state_, nullptr);
  if (state != nullptr) state->claim_ended(slab, lease.bytes());
  return lease;
}

void Block::release() noexcept {
  if (!is_open()) return;
  const std::uint64_t bytes = lease_.bytes();
  lease_.release();
  const auto slab = std::exchange(slab_, nullptr);
  const auto state = std::exchange(state_, nullptr);
  state->claim_ended(slab, bytes);
}

Memory::Memory(std::shared_ptr<Membership> membership, const MemoryOptions& options)
    : state_(std::make_shared<tensor::MemoryState>(std::move(membership), options)) {}

Block Memory::allocate(const Place& place, std::uint64_t bytes) { return state_->allocate(place, bytes); }
Block Memory::open(Lease&& lease) {
  state_->release_retired(Deadline::after({}));
  return state_->open(std::move(lease));
}
bool Memory::is_of(const std::shared_ptr<Membership>& membership) const { return state_->membership() == membership; }

std::uint64_t Memory::claimed(const Place& place) const {
  state_->release_retired(Deadline::after({}));
  return state_->claimed(place);
}
std::vector<SlabUsage> Memory::usage() const {
  state_->release_retired(Deadline::after({}));
  return state_->usage();
}
void Memory::trim() { static_cast<void>(state_->trim()); }

}  // namespace drover
