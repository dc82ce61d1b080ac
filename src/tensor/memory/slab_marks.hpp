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
  file,    ///< host memory: a file that another library made, which is not sealed
};

/// Throws `Errc::not_found` for a device that this process does not see.
void require_device(const Place& place);
/// The marks of a slab at a place.
[[nodiscard]] ipc::SlabMarks marks_for(const Place& place, SlabForm form = SlabForm::memory);
/// The marks of a slab in a file of another library, of which it uses so many bytes.
[[nodiscard]] ipc::SlabMarks marks_for_file(std::uint64_t bytes);
/// The bytes of such a file. Requires: its form is `file`.
[[nodiscard]] std::uint64_t file_bytes_from(const ipc::SlabMarks& marks) noexcept;
/// The place of a slab with these marks, with this process's device numbers. Throws `Errc::corrupt` for invalid
/// marks, `Errc::not_found` if the device is not visible here.
[[nodiscard]] Place place_from(const ipc::SlabMarks& marks);
/// The form of its file.
[[nodiscard]] SlabForm form_from(const ipc::SlabMarks& marks) noexcept;

}  // namespace drover::tensor
