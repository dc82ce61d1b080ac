// drover/base/mapping.hpp: the owner of mapped memory, and the memory files that processes share.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "drover/base/fd.hpp"

namespace drover {

/// Owns one `mmap`ed range and unmaps it. Move-only; may be empty. If the range is shared, other processes can change
/// its bytes at any time.
class Mapping {
 public:
  /// Owns nothing.
  Mapping() noexcept = default;
  /// Leaves `other` empty.
  Mapping(Mapping&& other) noexcept;
  /// Unmaps the current range, then leaves `other` empty.
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }

  /// Private zeroed memory of `bytes`, page aligned. Throws `Errc::out_of_memory`. Requires: bytes > 0.
  [[nodiscard]] static Mapping anonymous(std::size_t bytes);
  /// The first `bytes` of `file`, readable, writable and shared; the descriptor may be closed afterwards.
  /// Throws `Errc::corrupt` if the file is shorter, since touching the rest would be SIGBUS.
  [[nodiscard]] static Mapping shared(const Fd& file, std::size_t bytes);

  /// First byte; nullptr if empty.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// Length in bytes; 0 if empty.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// The whole range.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  /// Unmaps now.
  void reset() noexcept;

 private:
  Mapping(std::byte* data, std::size_t size) noexcept : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Faults in the pages of mapped memory now, which saves a microsecond or two at the first touch of each. Best
/// effort: if the kernel refuses (Linux before 5.14, too little memory), pages are faulted in when touched.
void make_present(std::span<std::byte> memory) noexcept;

/// Creates a memory file of exactly `bytes`, sealed against growing and shrinking, so that no peer can turn another's
/// access into SIGBUS. It has no name in any file system: the kernel frees it with its last descriptor and mapping.
/// `label` shows in /proc. Requires: bytes > 0, label under 200 characters.
[[nodiscard]] Fd make_memory_file(const std::string& label, std::size_t bytes);

/// Checks that `file` is a memory file with these seals and returns its size; throws `Errc::corrupt` otherwise. For
/// descriptors received from another process.
[[nodiscard]] std::size_t check_memory_file(const Fd& file);

}  // namespace drover
