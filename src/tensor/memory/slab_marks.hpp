// tensor/memory/slab_marks.hpp: what the keeper remembers of a slab, so that others find out what its file is.
#pragma once

#include <cstdint>

#include "drover/tensor/place.hpp"
#include "ipc/ledger/slab_layout.hpp"

namespace drover {

/// What the file of a slab is.
enum class SlabForm : std::uint8_t {
  memory,  ///< its memory: a memory file, or what Slab::export_fd gave
  handle,  ///< an IPC handle, which names memory that another library allocated
};

/// Throws `Errc::not_found` for a device that this process does not see.
void require_device(const Place& place);
/// The marks of a slab there.
[[nodiscard]] SlabMarks marks_for(const Place& place, SlabForm form = SlabForm::memory);
/// Where a slab with these marks lies, as this process numbers its devices. Throws `Errc::corrupt` for marks that
/// cannot be, `Errc::not_found` if the device is not visible here.
[[nodiscard]] Place place_from(const SlabMarks& marks);
/// What its file is.
[[nodiscard]] SlabForm form_from(const SlabMarks& marks) noexcept;

}  // namespace drover
