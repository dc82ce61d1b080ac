#include "tensor/mapped_slab.hpp"

#include <bit>
#include <utility>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/device/select.hpp"
#include "ipc/object_layout.hpp"
#include "ipc/slab_layout.hpp"
#include "tensor/host_registrations.hpp"

namespace drover {
namespace {

constexpr std::uint64_t kPage = 4096;

// What the keeper remembers of a slab: 0 for host memory, else 1 + the backend's number; and the device's UUID.
struct UuidWords {
  std::uint64_t high;
  std::uint64_t low;
};
static_assert(sizeof(UuidWords) == sizeof(Uuid));

SlabMarks marks_for(const Place& place) {
  if (!place.is_device) return {};
  const auto& devices = backend_of(place.backend).devices();
  const auto words = std::bit_cast<UuidWords>(devices.at(static_cast<std::size_t>(place.index)).uuid);
  return {1 + static_cast<std::uint64_t>(place.backend), words.high, words.low};
}

Place place_from(const SlabMarks& marks) {
  if (marks[0] == 0) return Place::cpu();
  const auto kind = static_cast<BackendKind>(marks[0] - 1);
  if (kind != BackendKind::host && kind != BackendKind::cuda) {
    throw Error(Errc::corrupt, fmt::format("a slab is said to be of backend {}, which is none", marks[0] - 1),
                "let all processes of a session use the same drover");
  }
  const auto uuid = std::bit_cast<Uuid>(UuidWords{.high = marks[1], .low = marks[2]});
  return Place::device(kind, device_with_uuid(backend_of(kind), uuid));
}

void require_device(const Place& place) {
  if (!place.is_device) return;
  const auto& devices = backend_of(place.backend).devices();
  if (place.index >= 0 && static_cast<std::size_t>(place.index) < devices.size()) return;
  throw Error(Errc::not_found,
              fmt::format("there is no device {}; this process sees {}", to_string(place), devices.size()),
              "`drover devices` lists them");
}

}  // namespace

std::shared_ptr<MappedSlab> MappedSlab::make(const std::shared_ptr<Membership>& membership, const Place& place,
                                             std::uint64_t bytes) {
  require_device(place);
  auto made = std::make_shared<MappedSlab>();
  made->place_ = place;
  made->is_own_ = true;
  if (!place.is_device) {
    const std::uint64_t whole = whole_slab_bytes(bytes, kPage);
    const Fd file = make_memory_file("drover slab", whole);
    made->host_ = Mapping::shared(file, whole);
    made->book_ = SlabBook::make(membership, whole, file, marks_for(place));
    return made;
  }
  Backend& backend = backend_of(place.backend);
  const auto slab = backend.create_slab(place.index, whole_slab_bytes(bytes, kPage));
  made->device_ = backend.open(place.index).map(*slab);
  made->book_ = SlabBook::make(membership, slab->size(), slab->export_fd(), marks_for(place));
  return made;
}

std::shared_ptr<MappedSlab> MappedSlab::open(std::shared_ptr<SlabBook> book) {
  auto opened = std::make_shared<MappedSlab>();
  const ObjectSpec& spec = book->object().spec();
  opened->place_ = place_from(marks_of(spec));
  const Fd file = book->file();
  if (!opened->place_.is_device) {
    if (check_memory_file(file) != slab_bytes(spec)) {
      throw Error(Errc::corrupt,
                  fmt::format("a slab of {} has a file of another size", format_bytes(slab_bytes(spec))),
                  "a process of the session made it wrongly; end the session and look for that process");
    }
    opened->host_ = Mapping::shared(file, slab_bytes(spec));
  } else {
    Backend& backend = backend_of(opened->place_.backend);
    const auto slab = backend.import_slab(opened->place_.index, file, slab_bytes(spec));
    opened->device_ = backend.open(opened->place_.index).map(*slab);
  }
  opened->book_ = std::move(book);
  return opened;
}

bool MappedSlab::make_known_to(Device& device) {
  const MutexLock lock(mutex_);
  const auto [at, is_new] = known_.try_emplace(device.info().backend);
  try {
    if (is_new) at->second = register_once(device, host_.bytes());
  } catch (const Error& error) {
    log(LogLevel::warn, error.what());
  }
  return at->second != nullptr;
}

bool MappedSlab::is_alone() const noexcept { return header_of(book_->object().data()).openers.load() <= 1; }

}  // namespace drover
