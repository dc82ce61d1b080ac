#include "drover/tensor/serialize.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <msgpack/pack.hpp>
#include <msgpack/sbuffer.hpp>
#include <msgpack/unpack.hpp>

#include "drover/base/error.hpp"
#include "tensor/layout/copy_strided.hpp"

namespace drover {
namespace {

constexpr std::string_view kSerializeMagic =
    "\x89"
    "DROVER\n";
// Bytes before the header: magic, version, length of the header.
constexpr std::size_t kSerializeFrame = 16;
// The longest header that the limits allow, with what MessagePack adds.
constexpr std::size_t kMostSerializedHeader = 64 + kMostSerializedArrays * (kMostSerializedName + 192);
// All data end before this, so that no computation overflows.
constexpr std::uint64_t kMostSerializedBytes = std::uint64_t{1} << 62U;

// The next multiple of the alignment. Requires: at most `kMostSerializedBytes`.
constexpr std::uint64_t aligned(std::uint64_t bytes) noexcept {
  return (bytes + kSerializeAlignment - 1) / kSerializeAlignment * kSerializeAlignment;
}

namespace key {
constexpr std::string_view kOrder = "order";
constexpr std::string_view kAlignment = "alignment";
constexpr std::string_view kArrays = "arrays";
constexpr std::string_view kName = "name";
constexpr std::string_view kDType = "dtype";
constexpr std::string_view kShape = "shape";
constexpr std::string_view kOffset = "offset";
constexpr std::string_view kBytes = "bytes";
}  // namespace key

constexpr std::string_view kLittle = "little";

static_assert(std::endian::native == std::endian::little, "elements are written in memory order");

using Packer = msgpack::packer<msgpack::sbuffer>;

// The layout of the result.
struct Plan {
  msgpack::sbuffer header;
  std::vector<std::uint64_t> offsets;  // of each array, relative to `data_begin`
  std::uint64_t data_begin = 0;
  std::uint64_t bytes = 0;
};

void refuse_if(bool is_wrong, const std::string& what, const char* remedy) {
  if (is_wrong) throw Error(Errc::invalid_argument, what, remedy);
}

void check(std::span<const NamedArray> arrays) {
  refuse_if(arrays.size() > kMostSerializedArrays,
            fmt::format("{} arrays exceed the maximum of {} that are serialized together", arrays.size(),
                        kMostSerializedArrays),
            "write them in several parts");
  std::set<std::string_view> names;
  for (const auto& array : arrays) {
    refuse_if(array.name.size() > kMostSerializedName,
              fmt::format("the name of an array has {} bytes, and the maximum is {}", array.name.size(),
                          kMostSerializedName),
              "use a shorter name");
    refuse_if(!names.insert(array.name).second, fmt::format("two arrays are both named '{}'", array.name),
              "give each array a unique name");
    tensor::check_memory(array.layout, array.memory.size());
  }
}

void pack_text(Packer& packer, std::string_view text) {
  packer.pack_str(static_cast<std::uint32_t>(text.size()));
  packer.pack_str_body(text.data(), static_cast<std::uint32_t>(text.size()));
}

void pack_number(Packer& packer, std::string_view name, std::uint64_t number) {
  pack_text(packer, name);
  packer.pack_uint64(number);
}

void pack_array(Packer& packer, const NamedArray& array, std::uint64_t offset) {
  packer.pack_map(5);
  pack_text(packer, key::kName);
  pack_text(packer, array.name);
  pack_text(packer, key::kDType);
  pack_text(packer, to_string(array.layout.dtype()));
  pack_text(packer, key::kShape);
  packer.pack_array(static_cast<std::uint32_t>(array.layout.rank()));
  for (const std::int64_t size : array.layout.shape()) packer.pack_uint64(static_cast<std::uint64_t>(size));
  pack_number(packer, key::kOffset, offset);
  pack_number(packer, key::kBytes, array.layout.bytes());
}

Plan plan(std::span<const NamedArray> arrays) {
  check(arrays);
  Plan plan;
  Packer packer(plan.header);
  packer.pack_map(3);
  pack_text(packer, key::kOrder);
  pack_text(packer, kLittle);
  pack_number(packer, key::kAlignment, kSerializeAlignment);
  pack_text(packer, key::kArrays);
  packer.pack_array(static_cast<std::uint32_t>(arrays.size()));
  std::uint64_t end = 0;
  for (const auto& array : arrays) {
    plan.offsets.push_back(aligned(end));
    pack_array(packer, array, plan.offsets.back());
    end = plan.offsets.back() + array.layout.bytes();
    refuse_if(end > kMostSerializedBytes, "the arrays to serialize have more than 2^62 bytes",
              "write the array that was expanded, not its expanded view");
  }
  plan.data_begin = aligned(kSerializeFrame + plan.header.size());
  plan.bytes = plan.data_begin + end;
  return plan;
}

void put_number(std::span<std::byte> to, std::size_t number) {
  for (auto& byte : to) {
    byte = static_cast<std::byte>(number & 0xffU);
    number >>= 8U;
  }
}

void write(std::span<std::byte> to, const Plan& plan, std::span<const NamedArray> arrays) {
  const auto data = to.subspan(plan.data_begin);
  std::ranges::fill(to.first(plan.data_begin), std::byte{0});
  std::memcpy(to.data(), kSerializeMagic.data(), kSerializeMagic.size());
  put_number(to.subspan(8, 4), kSerializeVersion);
  put_number(to.subspan(12, 4), plan.header.size());
  std::memcpy(to.data() + kSerializeFrame, plan.header.data(), plan.header.size());
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto& [name, layout, memory] = arrays[i];
    const std::uint64_t begin = plan.offsets[i];
    std::ranges::fill(data.subspan(end, begin - end), std::byte{0});
    end = begin + layout.bytes();
    copy_strided(data.subspan(begin, layout.bytes()), TensorLayout::contiguous(layout.dtype(), layout.shape()),
                 memory, layout);
  }
}

using msgpack::type::object_type;

constexpr const char* kSerializeAgain = "write the arrays again with serialize";

[[noreturn]] void throw_corrupt_bytes(const std::string& what) {
  throw Error(Errc::corrupt, "serialized arrays " + what, kSerializeAgain);
}

[[noreturn]] void throw_truncated(std::uint64_t has, std::uint64_t wanted) {
  throw Error(Errc::corrupt, fmt::format("serialized arrays are truncated: {} bytes of at least {}", has, wanted),
              "copy or read them again, completely");
}

std::uint32_t number_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 4; i-- > 0;) number = (number << 8U) | std::to_integer<std::uint32_t>(bytes[at + i]);
  return number;
}

// The bytes of the header. Checks the version first: newer versions may have another form from here on.
std::span<const std::byte> header_of(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto beginning = text.substr(0, kSerializeMagic.size());
  if (beginning.empty() || !kSerializeMagic.starts_with(beginning)) {
    throw_corrupt_bytes("do not begin with their magic bytes");
  }
  if (bytes.size() < kSerializeFrame) throw_truncated(bytes.size(), kSerializeFrame);
  const std::uint32_t version = number_at(bytes, 8);
  if (version == 0) throw_corrupt_bytes("have version 0");
  if (version > kSerializeVersion) {
    throw Error(Errc::unsupported,
                fmt::format("serialized arrays have version {}, and {} is known here", version, kSerializeVersion),
                "read them with the drover that wrote them, or a later one");
  }
  const std::size_t length = number_at(bytes, 12);
  if (length > kMostSerializedHeader) throw_corrupt_bytes(fmt::format("have a header of {} bytes", length));
  if (bytes.size() < kSerializeFrame + length) throw_truncated(bytes.size(), kSerializeFrame + length);
  return bytes.subspan(kSerializeFrame, length);
}

// Strings stay in place. Limits bound what is allocated for the elements of an array or a map, and the size of the
// header bounds how many of those there are.
msgpack::object_handle unpack(std::span<const std::byte> header) {
  constexpr std::size_t kKeys = 5;
  constexpr std::size_t kDepth = 4;
  const msgpack::unpack_limit limit(kMostSerializedArrays, kKeys, kMostSerializedName, 0, 0, kDepth);
  const auto stay = [](object_type, std::size_t, void*) { return true; };
  std::size_t end = 0;
  try {
    auto handle =
        msgpack::unpack(reinterpret_cast<const char*>(header.data()), header.size(), end, stay, nullptr, limit);
    if (end != header.size()) throw_corrupt_bytes("have extra bytes after their header");
    return handle;
  } catch (const msgpack::unpack_error& error) {
    throw_corrupt_bytes(fmt::format("have a broken header: {}", error.what()));
  }
}

// The typed access of msgpack converts and copies.
// NOLINTBEGIN(cppcoreguidelines-pro-type-union-access): each checks the type first

std::string_view text_of(const msgpack::object& value, std::string_view what) {
  if (value.type != object_type::STR)
    throw_corrupt_bytes(fmt::format("have an entry '{}' that is not a string", what));
  return {value.via.str.ptr, value.via.str.size};
}

std::uint64_t number_of(const msgpack::object& value, std::string_view what) {
  if (value.type != object_type::POSITIVE_INTEGER)
    throw_corrupt_bytes(fmt::format("have an entry '{}' that is not a number of 0 or more", what));
  return value.via.u64;
}

std::span<const msgpack::object> list_of(const msgpack::object& value, std::string_view what) {
  if (value.type != object_type::ARRAY)
    throw_corrupt_bytes(fmt::format("have an entry '{}' that is not a list", what));
  return {value.via.array.ptr, value.via.array.size};
}

// A map of exactly `count` entries. Callers look up as many different keys, so none is a duplicate or unknown.
class Fields {
 public:
  Fields(const msgpack::object& value, std::size_t count) {
    if (value.type != object_type::MAP || value.via.map.size != count) {
      throw_corrupt_bytes(fmt::format("have a header that lacks a map of {} entries", count));
    }
    entries_ = {value.via.map.ptr, value.via.map.size};
  }
  [[nodiscard]] const msgpack::object& at(std::string_view name) const {
    const auto found = std::ranges::find_if(entries_, [&](const auto& entry) {
      return entry.key.type == object_type::STR && text_of(entry.key, "key") == name;
    });
    if (found == entries_.end()) throw_corrupt_bytes(fmt::format("lack the entry '{}'", name));
    return found->val;
  }

 private:
  std::span<const msgpack::object_kv> entries_;
};

// NOLINTEND(cppcoreguidelines-pro-type-union-access)

TensorLayout layout_of(const Fields& fields) {
  const auto sizes = list_of(fields.at(key::kShape), key::kShape);
  if (sizes.size() > kMaxRank)
    throw_corrupt_bytes(fmt::format("have {} dimensions, and the maximum is {}", sizes.size(), kMaxRank));
  std::vector<std::int64_t> shape;
  for (const auto& size : sizes) {
    const std::uint64_t number = number_of(size, "size");
    if (number > kMostSerializedBytes) throw_corrupt_bytes(fmt::format("have a size of {}", number));
    shape.push_back(static_cast<std::int64_t>(number));
  }
  const auto dtype = text_of(fields.at(key::kDType), key::kDType);
  try {
    return TensorLayout::contiguous(parse_dtype(dtype), shape);
  } catch (const Error& error) {
    throw_corrupt_bytes("have an impossible layout: " + error.message());
  }
}

// Reads the arrays in the order of their data.
class ArrayReader {
 public:
  explicit ArrayReader(std::span<const std::byte> data) : data_(data) {}

  NamedArray read(const msgpack::object& entry) {
    const Fields fields(entry, 5);
    NamedArray array{.name = std::string(text_of(fields.at(key::kName), key::kName)), .layout = layout_of(fields)};
    const std::uint64_t offset = number_of(fields.at(key::kOffset), key::kOffset);
    const std::uint64_t bytes = number_of(fields.at(key::kBytes), key::kBytes);
    if (bytes != array.layout.bytes()) {
      throw_corrupt_bytes(fmt::format("claim {} bytes for {}", bytes, to_string(array.layout)));
    }
    if (offset % kSerializeAlignment != 0 || offset < end_ || offset > kMostSerializedBytes) {
      throw_corrupt_bytes(fmt::format("have data at the invalid offset {}", offset));
    }
    if (offset > data_.size() || bytes > data_.size() - offset) throw_truncated(data_.size(), offset + bytes);
    end_ = offset + bytes;
    array.memory = data_.subspan(offset, bytes);
    return array;
  }

 private:
  std::span<const std::byte> data_;
  std::uint64_t end_ = 0;
};

void check_order(const Fields& fields) {
  const auto order = text_of(fields.at(key::kOrder), key::kOrder);
  if (order == "big") {
    throw Error(Errc::unsupported, "serialized arrays are big-endian", "write them on a little-endian machine");
  }
  if (order != kLittle) throw_corrupt_bytes("have an unknown byte order");
  if (number_of(fields.at(key::kAlignment), key::kAlignment) != kSerializeAlignment) {
    throw_corrupt_bytes("have an alignment other than 64");
  }
}

}  // namespace

std::size_t serialized_bytes(std::span<const NamedArray> arrays) { return plan(arrays).bytes; }

std::size_t serialize(std::span<std::byte> to, std::span<const NamedArray> arrays) {
  const Plan layout = plan(arrays);
  refuse_if(to.size() < layout.bytes,
            fmt::format("serialized arrays need {} bytes, and the buffer has room for {}", layout.bytes, to.size()),
            "size the buffer with serialized_bytes");
  write(to.first(layout.bytes), layout, arrays);
  return layout.bytes;
}

std::vector<std::byte> serialize(std::span<const NamedArray> arrays) {
  const Plan layout = plan(arrays);
  std::vector<std::byte> bytes;
  try {
    bytes.resize(layout.bytes);
  } catch (const std::bad_alloc&) {
    throw Error(Errc::out_of_memory, fmt::format("out of memory for {} bytes of serialized arrays", layout.bytes),
                "serialize fewer arrays at once, or into a mapped file");
  }
  write(bytes, layout, arrays);
  return bytes;
}

std::vector<NamedArray> parse_serialized(std::span<const std::byte> bytes) {
  const auto header = header_of(bytes);
  const auto handle = unpack(header);
  const Fields fields(handle.get(), 3);
  check_order(fields);
  const auto entries = list_of(fields.at(key::kArrays), key::kArrays);
  const std::uint64_t begin = aligned(kSerializeFrame + header.size());
  ArrayReader reader(bytes.subspan(std::min<std::size_t>(begin, bytes.size())));
  std::vector<NamedArray> arrays;
  arrays.reserve(entries.size());  // names must not move: `names` views them
  std::set<std::string_view> names;
  for (const auto& entry : entries) {
    arrays.push_back(reader.read(entry));
    if (!names.insert(arrays.back().name).second) throw_corrupt_bytes("have two arrays of the same name");
  }
  return arrays;
}

}  // namespace drover
