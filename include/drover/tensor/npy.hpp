// drover/tensor/npy.hpp: tensors in files of NumPy's format .npy.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "drover/tensor/tensor_layout.hpp"

namespace drover {

/// What the beginning of a .npy file says.
struct NpyHeader {
  TensorLayout layout;          ///< of the data, whose first byte is byte 0; strides of Fortran order where it has it
  std::size_t data_offset = 0;  ///< where in the file the data begin
};

/// Reads the header of a whole file in memory, format 1.0, 2.0 or 3.0. Bytes behind the data are let be. Nothing in
/// the file is trusted: `Errc::corrupt` if it is no such file or is cut off, `Errc::unsupported` for what drover has
/// no type for: structures, objects, texts, big-endian numbers, more than `kMaxRank` dimensions.
[[nodiscard]] NpyHeader parse_npy(std::span<const std::byte> file);

/// The header (format 1.0) of a file whose data are the elements row after row; a multiple of 64 bytes.
/// Throws `Errc::invalid_argument` if the layout is not contiguous, `Errc::unsupported` for bfloat16, which the
/// format does not know.
[[nodiscard]] std::string npy_header(const TensorLayout& layout);

/// A tensor that was read from a file. Move-only; owns its memory.
class NpyFile {
 public:
  /// Takes over `data`, of `layout.extent_bytes().end` bytes.
  NpyFile(const TensorLayout& layout, std::unique_ptr<std::byte[]> data) noexcept
      : layout_(layout), data_(std::move(data)) {}

  /// Type and shape of the data.
  [[nodiscard]] const TensorLayout& layout() const noexcept { return layout_; }
  /// The elements, aligned for any type; valid as long as this is.
  [[nodiscard]] std::span<const std::byte> data() const noexcept { return {data_.get(), size()}; }
  /// As above, to write.
  [[nodiscard]] std::span<std::byte> data() noexcept { return {data_.get(), size()}; }

 private:
  // 0 once it was moved from.
  [[nodiscard]] std::size_t size() const noexcept { return data_ == nullptr ? 0 : layout_.extent_bytes().end; }

  TensorLayout layout_;
  std::unique_ptr<std::byte[]> data_;
};

/// Reads a file. Blocks. Throws as `parse_npy`, and `Errc::not_found` if there is none, `Errc::invalid_argument` if
/// it is a folder or a device, `Errc::out_of_memory` if it does not fit.
[[nodiscard]] NpyFile read_npy(const std::string& path);

/// Writes the elements of `memory` that `layout` names, row after row, to a file. Blocks until it is on the disk. The
/// file is there whole or not at all: it is written under another name in the same folder and then takes the place of
/// what was there, a link included. Elements that do not lie row after row are copied first, which takes as much
/// memory again. Throws as `npy_header`, `Errc::invalid_argument` if the layout reaches outside `memory` or `path` is
/// a folder, `Errc::limit_reached` if the disk is full, `Errc::not_found` if there is no such folder.
void write_npy(const std::string& path, const TensorLayout& layout, std::span<const std::byte> memory);

}  // namespace drover
