#include "tensor/memory/mapped_slab.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "drover/base/log.hpp"
#include "drover/device/backend.hpp"
#include "ipc/ledger/slab_layout.hpp"
#include "ipc/object/object_layout.hpp"
#include "tensor/memory/foreign_memory.hpp"
#include "tensor/memory/host_registrations.hpp"
#include "tensor/memory/slab_marks.hpp"

namespace drover::tensor {
namespace {

constexpr std::uint64_t kPage = 4096;

// Not open if the keeper does not answer, or this process has no descriptors left.
Fd file_of(const ipc::OpenLedger& book) {
  try {
    return book.file();
  } catch (const Error& error) {
    log(LogLevel::debug, error.what());
    return {};
  }
}

}  // namespace

std::shared_ptr<MappedSlab> MappedSlab::make(const std::shared_ptr<Membership>& membership, const Place& place,
                                             std::uint64_t bytes, bool is_for_one) {
  require_device(place);
  auto made = std::make_shared<MappedSlab>();
  made->place_ = place;
  made->is_own_ = true;
  made->is_for_one_ = is_for_one;
  if (!place.is_device) {
    const std::uint64_t whole = ipc::whole_slab_bytes(bytes, kPage);
    const Fd file = make_memory_file("drover slab", whole);
    made->host_ = Mapping::shared(file, whole);
    made->book_ = ipc::OpenLedger::make(membership, whole, file, marks_for(place));
    made->is_new_ = is_for_one;
    return made;
  }
  Backend& backend = backend_of(place.backend);
  const auto slab = backend.create_slab(place.index, ipc::whole_slab_bytes(bytes, kPage));
  made->device_ = backend.open(place.index).map(*slab);
  made->book_ = ipc::OpenLedger::make(membership, slab->size(), slab->export_fd(), marks_for(place));
  return made;
}

std::shared_ptr<MappedSlab> MappedSlab::make(const std::shared_ptr<Membership>& membership,
                                             const ForeignMemory& memory) {
  auto made = std::make_shared<MappedSlab>();
  made->place_ = memory.place;
  Device& device = backend_of(memory.place.backend).open(memory.place.index);
  if (memory.form == SlabForm::memory) {
    const auto slab = device.retain_slab(memory.base);
    made->device_ = device.map(*slab);
    made->book_ = ipc::OpenLedger::make(membership, slab->size(), slab->export_fd(), marks_for(memory.place));
  } else {
    const Fd file = make_handle_file(device, memory);
    made->form_ = SlabForm::handle;
    made->address_ = memory.base;
    made->book_ = ipc::OpenLedger::make(membership, ipc::whole_slab_bytes(memory.size, 1), file,
                                        marks_for(memory.place, SlabForm::handle));
  }
  return made;
}

std::shared_ptr<MappedSlab> MappedSlab::make(const std::shared_ptr<Membership>& membership, const Fd& file,
                                             std::uint64_t bytes) {
  auto made = std::make_shared<MappedSlab>();
  made->form_ = SlabForm::file;
  made->host_ = Mapping::shared(file, bytes);
  made->book_ = ipc::OpenLedger::make(membership, ipc::whole_slab_bytes(bytes, 1), file, marks_for_file(bytes));
  return made;
}

std::shared_ptr<MappedSlab> MappedSlab::open(std::shared_ptr<ipc::OpenLedger> book) {
  auto opened = std::make_shared<MappedSlab>();
  const ObjectSpec& spec = book->object().spec();
  opened->place_ = place_from(ipc::marks_of(spec));
  opened->form_ = form_from(ipc::marks_of(spec));
  const Fd file = book->file();
  if (opened->form_ == SlabForm::file) {
    opened->host_ = Mapping::shared(file, file_bytes_from(ipc::marks_of(spec)));
  } else if (!opened->place_.is_device) {
    if (check_memory_file(file) != ipc::slab_bytes(spec)) {
      throw Error(Errc::corrupt,
                  fmt::format("a slab of {} has a file of a different size", format_bytes(ipc::slab_bytes(spec))),
                  "end the session, and use the same version of drover in all its processes");
    }
    opened->host_ = Mapping::shared(file, ipc::slab_bytes(spec));
  } else if (opened->form_ == SlabForm::handle) {
    HandleMemory memory = open_handle_file(opened->place_, file, ipc::slab_bytes(spec));
    opened->device_ = std::move(memory.opened);
    opened->address_ = memory.address;
  } else {
    Backend& backend = backend_of(opened->place_.backend);
    const auto slab = backend.import_slab(opened->place_.index, file, ipc::slab_bytes(spec));
    opened->device_ = backend.open(opened->place_.index).map(*slab);
  }
  opened->book_ = std::move(book);
  return opened;
}

// Gets the file on use: a descriptor held for the life of each large slab would soon be too many.
void MappedSlab::write(std::uint64_t offset, std::span<const std::byte> from) const {
  std::uint64_t done = 0;
  const Fd file = is_new_.load(std::memory_order_relaxed) && is_new_.exchange(false) ? file_of(*book_) : Fd();
  while (file.is_open() && done < from.size()) {
    const auto some = sys::retry("pwrite", ::pwrite, file.get(), static_cast<const void*>(from.data() + done),
                                 from.size() - done, static_cast<off_t>(offset + done));
    if (some < 0 && errno == ENOSPC) {
      throw Error(Errc::out_of_memory,
                  fmt::format("host memory has no pages for a block of {}", format_bytes(from.size())),
                  "free memory, or raise the shared-memory limit of this machine or container");
    }
    if (some <= 0) break;  // memcpy does the rest
    done += static_cast<std::uint64_t>(some);
  }
  std::memcpy(host_.data() + offset + done, from.data() + done, from.size() - done);
}

bool MappedSlab::register_with(Device& device) {
  const MutexLock lock(mutex_);
  const auto [at, is_new] = registrations_.try_emplace(device.info().backend);
  try {
    if (is_new) at->second = register_once(device, host_.bytes());
  } catch (const Error& error) {
    log(LogLevel::warn, error.what());
  }
  return at->second != nullptr;
}

bool MappedSlab::is_alone() const noexcept { return ipc::header_of(book_->object().data()).openers.load() <= 1; }

}  // namespace drover::tensor
