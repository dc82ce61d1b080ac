// tensor/memory/slab_marks.hpp: what the keeper stores about a slab, so that other processes can open its file.
#pragma once

#include <cstdint>

#include "drover/tensor/memory.hpp"
#include "ipc/ledger/slab_layout.hpp"

namespace drover::tensor {

/// What the file of a slab is.
enum class SlabForm : std::uint8_t {
  memory,  ///< the memory itself: a memory file, or the result of Slab::export_fd
  handle,  ///< an IPC handle, which names memory that another library allocated
};

/// Throws `Errc::not_found` for a device that this process does not see.
void require_device(const Place& place);
/// The marks of a slab at a place.
[[nodiscard]] ipc::SlabMarks marks_for(const Place& place, SlabForm form = SlabForm::memory);
/// The place of a slab with these marks, with this process's device numbers. Throws `Errc::corrupt` for invalid
/// marks, `Errc::not_found` if the device is not visible here.
[[nodiscard]] Place place_from(const ipc::SlabMarks& marks);
/// The form of its file.
[[nodiscard]] SlabForm form_from(const ipc::SlabMarks& marks) noexcept;

}  // namespace drover::tensor
