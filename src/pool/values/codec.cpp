#include "drover/pool/codec.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <msgpack/pack.hpp>

#include "drover/base/error.hpp"

namespace drover {
namespace {

// Leaves room for one more number and its marker.
constexpr std::uint64_t kMostBytes = std::numeric_limits<std::uint32_t>::max() - 16;
constexpr std::int8_t kTensorExtension = 1;  // holds the index of the tensor in the task, in 4 bytes
constexpr std::size_t kIndexBytes = 4;

// First bytes of values: https://github.com/msgpack/msgpack/blob/master/spec.md
constexpr std::uint8_t kNil = 0xc0;
constexpr std::uint8_t kFalse = 0xc2;
constexpr std::uint8_t kTrue = 0xc3;
constexpr std::uint8_t kBin8 = 0xc4;
constexpr std::uint8_t kFloat32 = 0xca;
constexpr std::uint8_t kFloat64 = 0xcb;
constexpr std::uint8_t kUint8 = 0xcc;
constexpr std::uint8_t kInt8 = 0xd0;
constexpr std::uint8_t kFixExt1 = 0xd4;
constexpr std::uint8_t kFixExt4 = 0xd6;
constexpr std::uint8_t kStr8 = 0xd9;
constexpr std::uint8_t kArray16 = 0xdc;
constexpr std::uint8_t kMap16 = 0xde;
constexpr std::uint8_t kFixMap = 0x80;
constexpr std::uint8_t kFixArray = 0x90;
constexpr std::uint8_t kFixStr = 0xa0;
constexpr std::uint8_t kNegative = 0xe0;

// The output of the library's packer.
struct Sink {
  std::string& bytes;
  void write(const char* data, std::size_t size) { bytes.append(data, size); }
};

void check_size(std::size_t size) {
  if (size < kMostBytes) return;
  throw Error(Errc::limit_reached,
              fmt::format("an argument or result of a task has {} bytes, more than the limit of 4 GiB", size),
              "pass large data as a drover::Tensor, which is not copied");
}

template <class Write>
void pack(std::string& bytes, const Write& write) {
  check_size(bytes.size());
  Sink sink{bytes};
  msgpack::packer<Sink> packer(sink);
  write(packer);
}

}  // namespace

void Encoder::write(bool value) {
  pack(bytes_, [&](auto& to) { value ? to.pack_true() : to.pack_false(); });
}
void Encoder::write(std::int64_t value) {
  pack(bytes_, [&](auto& to) { to.pack_int64(value); });
}
void Encoder::write(std::uint64_t value) {
  pack(bytes_, [&](auto& to) { to.pack_uint64(value); });
}
// Not by the library, which turns whole numbers into integers and loses the sign of -0.0.
void Encoder::write(double value) {
  check_size(bytes_.size());
  const auto bits = std::bit_cast<std::uint64_t>(value);
  bytes_.push_back(static_cast<char>(kFloat64));
  for (int shift = 56; shift >= 0; shift -= 8)
    bytes_.push_back(static_cast<char>(bits >> static_cast<unsigned>(shift)));
}
void Encoder::write_nothing() {
  pack(bytes_, [](auto& to) { to.pack_nil(); });
}

void Encoder::write(std::string_view value) {
  check_size(bytes_.size() + value.size());
  const auto size = static_cast<std::uint32_t>(value.size());
  pack(bytes_, [&](auto& to) {
    to.pack_str(size).pack_str_body(value.data(), size);  // NOLINT(bugprone-suspicious-stringview-data-usage)
  });
}

void Encoder::write_bytes(std::span<const std::byte> bytes) {
  check_size(bytes_.size() + bytes.size());
  const auto size = static_cast<std::uint32_t>(bytes.size());
  pack(bytes_, [&](auto& to) { to.pack_bin(size).pack_bin_body(reinterpret_cast<const char*>(bytes.data()), size); });
}

void Encoder::begin_list(std::size_t count) {
  check_size(count);
  pack(bytes_, [&](auto& to) { to.pack_array(static_cast<std::uint32_t>(count)); });
}

void Encoder::begin_map(std::size_t count) {
  check_size(count);
  pack(bytes_, [&](auto& to) { to.pack_map(static_cast<std::uint32_t>(count)); });
}

void Encoder::write(const Tensor& tensor) {
  require(tensor.is_open(), "an argument or result of a task is a tensor without memory",
          "make it with zeros, arange or empty first; a tensor that was sent away has no memory");
  if (tensors_.size() == kMostTaskTensors) {
    throw Error(Errc::limit_reached, fmt::format("a task or result has more than {} tensors", kMostTaskTensors),
                "join them into fewer, larger tensors, or split the task");
  }
  const auto index = static_cast<std::uint32_t>(tensors_.size());
  std::array<char, kIndexBytes> digits{};
  for (std::size_t i = 0; i < kIndexBytes; ++i)
    digits.at(i) = static_cast<char>(index >> (8U * (kIndexBytes - 1 - i)));
  tensors_.push_back(tensor);
  pack(bytes_,
       [&](auto& to) { to.pack_ext(kIndexBytes, kTensorExtension).pack_ext_body(digits.data(), kIndexBytes); });
}

void Decoder::check(bool holds) {
  if (!holds) {
    throw Error(Errc::corrupt, "the bytes of a task's arguments or result do not match its types",
                "application and workers must be the same program");
  }
}

std::span<const std::byte> Decoder::cut(std::uint64_t count) {
  check(count <= rest_.size());
  const auto head = rest_.first(count);
  rest_ = rest_.subspan(count);
  return head;
}

std::uint8_t Decoder::next() { return std::to_integer<std::uint8_t>(cut(1).front()); }

std::uint64_t Decoder::read_big_endian(std::size_t bytes) {
  std::uint64_t value = 0;
  for (const std::byte byte : cut(bytes)) value = (value << 8U) | std::to_integer<std::uint64_t>(byte);
  return value;
}

// `wide` is the marker of the kind's shortest length field: text and bytes have three sizes of it, lists and maps
// two.
std::uint64_t Decoder::read_length(std::uint8_t first, std::uint8_t fixed, std::uint8_t fixed_most,
                                   std::uint8_t wide) {
  if (fixed_most > 0 && first >= fixed && first <= fixed + fixed_most) return first - fixed;
  const bool has_bytes = wide == kStr8 || wide == kBin8;
  const unsigned step = static_cast<unsigned>(first) - wide + (has_bytes ? 0 : 1);
  check(first >= wide && step <= 2);
  return read_big_endian(std::size_t{1} << step);
}

bool Decoder::read_bool() {
  const auto first = next();
  check(first == kTrue || first == kFalse);
  return first == kTrue;
}

bool Decoder::read_nothing() {
  if (rest_.empty() || std::to_integer<std::uint8_t>(rest_.front()) != kNil) return false;
  static_cast<void>(next());
  return true;
}

std::int64_t Decoder::read_signed() {
  const auto first = next();
  if (first < kFixMap || first >= kNegative) return static_cast<std::int8_t>(first);
  if (first >= kUint8 && first < kInt8) {
    const std::uint64_t value = read_big_endian(std::size_t{1} << (first - kUint8));
    check(value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
    return static_cast<std::int64_t>(value);
  }
  check(first >= kInt8 && first < kFixExt1);
  const unsigned bytes = 1U << (first - kInt8);
  const unsigned shift = 64 - (8 * bytes);
  return static_cast<std::int64_t>(read_big_endian(bytes) << shift) >> shift;  // fills the sign
}

std::uint64_t Decoder::read_unsigned() {
  check(!rest_.empty());
  const auto first = std::to_integer<std::uint8_t>(rest_.front());
  if (first >= kUint8 && first < kInt8) {
    static_cast<void>(next());
    return read_big_endian(std::size_t{1} << (first - kUint8));
  }
  const std::int64_t value = read_signed();
  check(value >= 0);
  return static_cast<std::uint64_t>(value);
}

double Decoder::read_real() {
  check(!rest_.empty());
  const auto first = std::to_integer<std::uint8_t>(rest_.front());
  if (first >= kUint8 && first < kInt8) return static_cast<double>(read_unsigned());
  if (first != kFloat32 && first != kFloat64) return static_cast<double>(read_signed());
  static_cast<void>(next());
  if (first == kFloat64) return std::bit_cast<double>(read_big_endian(sizeof(double)));
  return std::bit_cast<float>(static_cast<std::uint32_t>(read_big_endian(sizeof(float))));
}

std::string_view Decoder::read_text() {
  constexpr std::uint8_t kMostFixed = 31;
  const auto text =
      cut(read_length(next(), kFixStr, kMostFixed, kStr8));  // NOLINT(readability-suspicious-call-argument)
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

std::span<const std::byte> Decoder::read_bytes() { return cut(read_length(next(), 0, 0, kBin8)); }

// Rejects a count that the input cannot hold, so that callers do not reserve memory for it.
std::size_t Decoder::read_list() {
  constexpr std::uint8_t kMostFixed = 15;
  const auto count =
      read_length(next(), kFixArray, kMostFixed, kArray16);  // NOLINT(readability-suspicious-call-argument)
  check(count <= rest_.size());
  return count;
}

std::size_t Decoder::read_map() {
  constexpr std::uint8_t kMostFixed = 15;
  const auto count =
      read_length(next(), kFixMap, kMostFixed, kMap16);  // NOLINT(readability-suspicious-call-argument)
  check(count <= rest_.size() / 2);
  return count;
}

Tensor Decoder::read_tensor() {
  check(next() == kFixExt4 && next() == kTensorExtension);
  const std::uint64_t index = read_big_endian(kIndexBytes);
  check(index < tensors_.size());
  return tensors_[index];
}

void detail::copy_numbers(std::span<const std::byte> from, std::span<std::byte> to) {
  Decoder::check(from.size() == to.size());
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace drover
