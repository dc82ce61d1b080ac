#include "drover/tensor/npy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/base/error.hpp"
#include "tensor/exchange/npy_dictionary.hpp"
#include "tensor/exchange/npy_format.hpp"

namespace drover {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are written as they lie in memory");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;
constexpr const char* kWriteAgain = "write the file again, with numpy.save or write_npy";

struct Code {
  DType dtype;
  std::string_view text;  // kind and bytes
};

constexpr std::array kCodes = {
    Code{DType::boolean, "b1"},   Code{DType::int8, "i1"},        Code{DType::int16, "i2"},
    Code{DType::int32, "i4"},     Code{DType::int64, "i8"},       Code{DType::uint8, "u1"},
    Code{DType::uint16, "u2"},    Code{DType::uint32, "u4"},      Code{DType::uint64, "u8"},
    Code{DType::float16, "f2"},   Code{DType::float32, "f4"},     Code{DType::float64, "f8"},
    Code{DType::complex64, "c8"}, Code{DType::complex128, "c16"},
};

// Printable, for messages: files may hold anything.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 40;
  std::string result(text.substr(0, kMost));
  std::ranges::replace_if(result, [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  return result;
}

DType type_of(std::string_view descr) {
  constexpr std::string_view kOrders = "<>|=";
  const bool has_order = !descr.empty() && kOrders.find(descr.front()) != std::string_view::npos;
  const char order = has_order ? descr.front() : '=';
  const auto* const code = std::ranges::find(kCodes, descr.substr(has_order ? 1 : 0), &Code::text);
  if (code == kCodes.end()) {
    throw Error(Errc::unsupported, fmt::format("a .npy file holds elements of type '{}'", shown(descr)),
                "save it as numbers that drover knows: array.astype('float32'), or another type of DType");
  }
  if (size_of(code->dtype) > 1 && order == '>') {
    throw Error(Errc::unsupported, fmt::format("a .npy file holds big-endian elements of type '{}'", shown(descr)),
                "save it in the order of this machine: array.astype(array.dtype.newbyteorder('='))");
  }
  if (size_of(code->dtype) > 1 && order == '|') {
    throw Error(Errc::corrupt, fmt::format("a .npy file has type '{}', which lacks its byte order", shown(descr)),
                kWriteAgain);
  }
  return code->dtype;
}

TensorLayout layout_of(const detail::NpyDictionary& dictionary) {
  const DType dtype = type_of(dictionary.descr);
  auto shape = dictionary.shape;
  if (shape.size() > kMaxRank) {
    throw Error(Errc::unsupported,
                fmt::format("a .npy file has {} dimensions, and a tensor {} at most", shape.size(), kMaxRank),
                "join dimensions before saving: array.reshape");
  }
  try {
    if (!dictionary.is_fortran) return TensorLayout::contiguous(dtype, shape);
    std::ranges::reverse(shape);
    std::vector<std::int64_t> order;
    for (std::size_t i = shape.size(); i-- > 0;) order.push_back(static_cast<std::int64_t>(i));
    return TensorLayout::contiguous(dtype, shape).permute(order);
  } catch (const Error& error) {
    throw Error(Errc::corrupt, "a .npy file cannot be as large as it says: " + error.message(), kWriteAgain);
  }
}

std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) number = (number << 8U) | std::to_integer<std::uint64_t>(bytes[i]);
  return number;
}

[[noreturn]] void throw_cut_off(std::uint64_t has, std::uint64_t wanted) {
  throw Error(Errc::corrupt, fmt::format("a .npy file is cut off: it has {} bytes of at least {}", has, wanted),
              "copy or write the file again, to its end");
}

struct Frame {
  std::size_t begin;   // of the dictionary
  std::size_t length;  // of the dictionary
};

Frame frame_of(std::span<const std::byte> beginning, std::uint64_t file_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(beginning.data()), beginning.size());
  if (!kMagic.starts_with(text.substr(0, kMagic.size())) || text.empty()) {
    throw Error(Errc::corrupt, text.empty() ? "a .npy file is empty" : "a file does not begin as .npy files do",
                kWriteAgain);
  }
  if (beginning.size() < 8) throw_cut_off(file_bytes, 8);
  const auto major = std::to_integer<unsigned>(beginning[6]);
  const auto minor = std::to_integer<unsigned>(beginning[7]);
  if (major < 1 || major > 3 || minor != 0) {
    throw Error(Errc::unsupported, fmt::format("a .npy file has format {}.{}", major, minor),
                "save it with numpy.save, which writes 1.0 to 3.0");
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t begin = 8 + length_bytes;
  if (beginning.size() < begin) throw_cut_off(file_bytes, begin);
  const std::uint64_t length = little_endian(beginning.subspan(8, length_bytes));
  if (length > detail::kMostNpyHeaderBytes - begin) {
    throw Error(Errc::unsupported, fmt::format("a .npy file has a header of {} bytes", length),
                "save plain arrays; only structures need such headers");
  }
  if (beginning.size() < begin + length) throw_cut_off(file_bytes, begin + length);
  return {.begin = begin, .length = static_cast<std::size_t>(length)};
}

}  // namespace

NpyHeader detail::parse_npy_beginning(std::span<const std::byte> beginning, std::uint64_t file_bytes) {
  const Frame frame = frame_of(beginning, file_bytes);
  const auto text = beginning.subspan(frame.begin, frame.length);
  const auto dictionary = parse_npy_dictionary({reinterpret_cast<const char*>(text.data()), text.size()});
  const NpyHeader header{.layout = layout_of(dictionary), .data_offset = frame.begin + frame.length};
  const std::uint64_t wanted = header.data_offset + header.layout.bytes();
  if (file_bytes < wanted) throw_cut_off(file_bytes, wanted);
  return header;
}

NpyHeader parse_npy(std::span<const std::byte> file) { return detail::parse_npy_beginning(file, file.size()); }

std::string npy_header(const TensorLayout& layout) {
  const auto* const code = std::ranges::find(kCodes, layout.dtype(), &Code::dtype);
  if (code == kCodes.end()) {
    throw Error(Errc::unsupported,
                fmt::format("{} cannot be in a .npy file, which has no such type", to_string(layout.dtype())),
                "convert it to float32 first");
  }
  if (!layout.is_contiguous()) {
    throw Error(Errc::invalid_argument, fmt::format("{} does not lie row after row", to_string(layout)),
                "copy it to a contiguous layout first, as write_npy does");
  }
  const auto shape = layout.shape();
  auto text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
                          size_of(layout.dtype()) == 1 ? '|' : '<', code->text, fmt::join(shape, ", "),
                          shape.size() == 1 ? "," : "");
  constexpr std::size_t kFrame = 10;
  const std::size_t whole = (kFrame + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.append(whole - kFrame - text.size() - 1, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xffU), static_cast<char>(text.size() >> 8U)};
  return header + text;
}

}  // namespace drover
