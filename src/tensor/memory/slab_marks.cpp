#include "tensor/memory/slab_marks.hpp"

#include <bit>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/device/backend.hpp"

namespace drover::tensor {
namespace {

// The first mark is 0 for host memory, or kFile for a file of another library, whose bytes are the second mark;
// otherwise 1 + the backend's number, plus this bit for a handle, and the others are the device's UUID.
constexpr std::uint64_t kHandleBit = std::uint64_t{1} << 32U;
constexpr std::uint64_t kFile = std::uint64_t{1} << 33U;

struct UuidWords {
  std::uint64_t high;
  std::uint64_t low;
};
static_assert(sizeof(UuidWords) == sizeof(Uuid));

}  // namespace

void require_device(const Place& place) {
  if (!place.is_device) return;
  const auto& devices = backend_of(place.backend).devices();
  if (place.index >= 0 && static_cast<std::size_t>(place.index) < devices.size()) return;
  throw Error(Errc::not_found,
              fmt::format("there is no device {}; this process sees {}", to_string(place), devices.size()),
              "`drover devices` lists them");
}

ipc::SlabMarks marks_for(const Place& place, SlabForm form) {
  if (!place.is_device) return {};
  const auto& devices = backend_of(place.backend).devices();
  const auto words = std::bit_cast<UuidWords>(devices.at(static_cast<std::size_t>(place.index)).uuid);
  const std::uint64_t first = 1 + static_cast<std::uint64_t>(place.backend);
  return {form == SlabForm::handle ? first | kHandleBit : first, words.high, words.low};
}

ipc::SlabMarks marks_for_file(std::uint64_t bytes) { return {kFile, bytes, 0}; }

std::uint64_t file_bytes_from(const ipc::SlabMarks& marks) noexcept { return marks[1]; }

Place place_from(const ipc::SlabMarks& marks) {
  if (marks[0] == 0 || marks[0] == kFile) return Place::cpu();
  const std::uint64_t number = (marks[0] & ~kHandleBit) - 1;
  const auto kind = static_cast<BackendKind>(number);
  if (number > 0xff || (kind != BackendKind::host && kind != BackendKind::cuda)) {
    throw Error(Errc::corrupt, fmt::format("a slab names the unknown backend {}", number),
                "use the same version of drover in all processes of a session");
  }
  const auto uuid = std::bit_cast<Uuid>(UuidWords{.high = marks[1], .low = marks[2]});
  return Place::device(kind, device_with_uuid(backend_of(kind), uuid));
}

SlabForm form_from(const ipc::SlabMarks& marks) noexcept {
  if (marks[0] == kFile) return SlabForm::file;
  return (marks[0] & kHandleBit) != 0 ? SlabForm::handle : SlabForm::memory;
}

}  // namespace drover::tensor
