// .npy files: a parsed array fits in the file, and parses to the same array when written again.
#include "drover/base/error.hpp"
#include "drover/tensor/npy.hpp"
#include "drover/tensor/tensor_layout.hpp"
#include "fuzz/fuzz_input.hpp"

#include <vector>

namespace {

using namespace drover;

void use(std::span<const std::byte> file, const NpyHeader& header) {
  fuzz::check(header.layout.is_valid());
  fuzz::check(header.data_offset + header.layout.extent_bytes().end <= file.size());
  fuzz::check(header.layout.extent_bytes().end == header.layout.bytes());
  const auto data = file.subspan(header.data_offset);
  fuzz::check(format_tensor(header.layout, data).size() < 100'000);

  // In row-major order, then through a file.
  const auto whole = TensorLayout::contiguous(header.layout.dtype(), header.layout.shape());
  std::vector<std::byte> copy(whole.bytes());
  copy_strided(copy, whole, data, header.layout);
  const auto text = npy_header(whole);
  std::vector<std::byte> again(text.size() + copy.size());
  std::ranges::copy(std::as_bytes(std::span(text)), again.begin());
  std::ranges::copy(copy, again.begin() + static_cast<std::ptrdiff_t>(text.size()));
  const auto second = parse_npy(again);
  fuzz::check(second.layout == whole && second.data_offset == text.size());
  fuzz::check(format_tensor(header.layout, data) == format_tensor(whole, copy));
}

void read(std::span<const std::byte> file) {
  NpyHeader header;
  try {
    header = parse_npy(file);
  } catch (const Error& error) {
    fuzz::check(error.code() == Errc::corrupt || error.code() == Errc::unsupported);
    return;
  }
  use(file, header);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto dress = input.take<std::uint8_t>();
  if (dress < 64) {
    read(input.rest());
    return 0;
  }
  // With a valid prefix the parser reaches the dictionary; the input decides how much data follows.
  const auto rest = input.rest();
  const std::size_t text = std::min<std::size_t>(rest.size(), 255);
  std::vector<std::byte> file;
  for (const unsigned byte : {0x93U, 0x4eU, 0x55U, 0x4dU, 0x50U, 0x59U, 1U, 0U}) file.push_back(std::byte(byte));
  file.push_back(static_cast<std::byte>(text));
  file.push_back(std::byte{0});
  file.insert(file.end(), rest.begin(), rest.end());
  file.resize(file.size() + std::size_t{dress} * 16, std::byte{0x3f});
  read(file);
  return 0;
}
