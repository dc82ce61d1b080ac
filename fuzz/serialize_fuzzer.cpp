// Serialized arrays: parsed arrays lie within the bytes, and parse to the same arrays when written again.
#include "drover/base/error.hpp"
#include "drover/tensor/serialize.hpp"
#include "drover/tensor/tensor_layout.hpp"
#include "fuzz/fuzz_input.hpp"

#include <vector>

namespace {

using namespace drover;

void check_equal(const NamedArray& one, const NamedArray& other) {
  fuzz::check(one.name == other.name && one.layout == other.layout);
  fuzz::check(std::ranges::equal(one.memory, other.memory));
}

void use(std::span<const std::byte> bytes, const std::vector<NamedArray>& arrays) {
  for (const auto& array : arrays) {
    fuzz::check(array.layout.is_valid() && array.layout.is_contiguous());
    fuzz::check(array.layout.bytes() == array.memory.size());
    fuzz::check(array.memory.data() >= bytes.data());
    fuzz::check(array.memory.data() + array.memory.size() <= bytes.data() + bytes.size());
    fuzz::check(static_cast<std::size_t>(array.memory.data() - bytes.data()) % kSerializeAlignment == 0 ||
                array.memory.empty());
    fuzz::check(format_tensor(array.layout, array.memory).size() < 100'000);
  }
  const auto again = serialize(arrays);
  const auto second = parse_serialized(again);
  fuzz::check(second.size() == arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) check_equal(arrays[i], second[i]);
  fuzz::check(serialize(second) == again);
}

void read(std::span<const std::byte> bytes) {
  std::vector<NamedArray> arrays;
  try {
    arrays = parse_serialized(bytes);
  } catch (const Error& error) {
    fuzz::check(error.code() == Errc::corrupt || error.code() == Errc::unsupported);
    return;
  }
  use(bytes, arrays);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto dress = input.take<std::uint8_t>();
  if (dress < 64) {
    read(input.rest());
    return 0;
  }
  // With a valid prefix the parser reaches the header; the input decides how much data follows.
  const auto header = input.rest();
  std::vector<std::byte> bytes;
  for (const unsigned byte : {0x89U, 0x44U, 0x52U, 0x4fU, 0x56U, 0x45U, 0x52U, 0x0aU, 1U, 0U, 0U, 0U}) {
    bytes.push_back(std::byte(byte));
  }
  for (unsigned shift = 0; shift < 32; shift += 8) bytes.push_back(std::byte((header.size() >> shift) & 0xffU));
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.resize((bytes.size() + 63) / 64 * 64 + std::size_t{dress} * 4, std::byte{0x3f});
  read(bytes);
  return 0;
}
