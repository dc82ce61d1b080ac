// drover/tensor/npy.hpp: tensors in NumPy's .npy files.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "drover/tensor/tensor_layout.hpp"

namespace drover {

/// The header of a .npy file.
struct NpyHeader {
  TensorLayout layout;          ///< of the data from `data_offset`; may have Fortran strides
  std::size_t data_offset = 0;  ///< where the data begin in the file
};

/// Parses the header of a whole file in memory, format 1.0, 2.0 or 3.0. Ignores bytes after the data. Trusts nothing
/// in the file: throws `Errc::corrupt` if it is not such a file or is truncated, `Errc::unsupported` for structures,
/// objects, strings, big-endian numbers, and more than `kMaxRank` dimensions.
[[nodiscard]] NpyHeader parse_npy(std::span<const std::byte> file);

/// The header (format 1.0) for a contiguous layout; a multiple of 64 bytes. Throws `Errc::invalid_argument` if the
/// layout is not contiguous, `Errc::unsupported` for bfloat16, which the format lacks.
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
  /// The same, writable.
  [[nodiscard]] std::span<std::byte> data() noexcept { return {data_.get(), size()}; }

 private:
  // 0 after a move.
  [[nodiscard]] std::size_t size() const noexcept { return data_ == nullptr ? 0 : layout_.extent_bytes().end; }

  TensorLayout layout_;
  std::unique_ptr<std::byte[]> data_;
};

/// Reads a file. Blocks. Throws as `parse_npy`, and `Errc::not_found` if there is none, `Errc::invalid_argument` if
/// it is a directory or a device, `Errc::out_of_memory` if it does not fit in memory.
[[nodiscard]] NpyFile read_npy(const std::string& path);

/// Writes the elements of a layout in row-major order to a file. Blocks until it is on disk. Atomic: writes a
/// temporary file in the same directory, then renames it, which replaces a previous file or link. Copies the elements
/// first if they are not contiguous, which takes as much memory again. Throws as `npy_header`,
/// `Errc::invalid_argument` if the layout exceeds `memory` or `path` is a directory, `Errc::limit_reached` if the
/// disk is full, `Errc::not_found` if the directory does not exist.
void write_npy(const std::string& path, const TensorLayout& layout, std::span<const std::byte> memory);

}  // namespace drover
