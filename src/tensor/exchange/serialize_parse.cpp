#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <msgpack/unpack.hpp>

#include "drover/base/error.hpp"
#include "tensor/exchange/serialize_format.hpp"

namespace drover {
namespace {

namespace key = detail::key;
using msgpack::type::object_type;

constexpr const char* kWriteAgain = "write the arrays again, with serialize";

[[noreturn]] void throw_corrupt(const std::string& what) {
  throw Error(Errc::corrupt, "serialized arrays " + what, kWriteAgain);
}

[[noreturn]] void throw_cut_off(std::uint64_t has, std::uint64_t wanted) {
  throw Error(Errc::corrupt, fmt::format("serialized arrays are cut off: {} bytes of at least {}", has, wanted),
              "copy or read them again, to their end");
}

std::uint32_t number_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 4; i-- > 0;) number = (number << 8U) | std::to_integer<std::uint32_t>(bytes[at + i]);
  return number;
}

// The bytes of the header. The version comes first: what lies behind a newer one may look different.
std::span<const std::byte> header_of(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto beginning = text.substr(0, detail::kSerializeMagic.size());
  if (beginning.empty() || !detail::kSerializeMagic.starts_with(beginning)) {
    throw_corrupt("do not begin as they must");
  }
  if (bytes.size() < detail::kSerializeFrame) throw_cut_off(bytes.size(), detail::kSerializeFrame);
  const std::uint32_t version = number_at(bytes, 8);
  if (version == 0) throw_corrupt("have version 0");
  if (version > kSerializeVersion) {
    throw Error(Errc::unsupported,
                fmt::format("serialized arrays have version {}, and {} is known here", version, kSerializeVersion),
                "read them with the drover that wrote them, or a later one");
  }
  const std::size_t length = number_at(bytes, 12);
  if (length > detail::kMostSerializedHeader) throw_corrupt(fmt::format("have a header of {} bytes", length));
  if (bytes.size() < detail::kSerializeFrame + length) throw_cut_off(bytes.size(), detail::kSerializeFrame + length);
  return bytes.subspan(detail::kSerializeFrame, length);
}

// Texts stay where they are. Room for the elements of an array or a map is made only up to the limits, and the bytes
// of the header bound how many of them there are.
msgpack::object_handle unpack(std::span<const std::byte> header) {
  constexpr std::size_t kKeys = 5;
  constexpr std::size_t kDepth = 4;
  const msgpack::unpack_limit limit(kMostSerializedArrays, kKeys, kMostSerializedName, 0, 0, kDepth);
  const auto stay = [](object_type, std::size_t, void*) { return true; };
  std::size_t end = 0;
  try {
    auto handle =
        msgpack::unpack(reinterpret_cast<const char*>(header.data()), header.size(), end, stay, nullptr, limit);
    if (end != header.size()) throw_corrupt("have something behind their header");
    return handle;
  } catch (const msgpack::unpack_error& error) {
    throw_corrupt(fmt::format("have a header that is broken: {}", error.what()));
  }
}

// The library's own typed access converts and copies.
// NOLINTBEGIN(cppcoreguidelines-pro-type-union-access): each looks at the type first

std::string_view text_of(const msgpack::object& value, std::string_view what) {
  if (value.type != object_type::STR) throw_corrupt(fmt::format("have a {} that is no text", what));
  return {value.via.str.ptr, value.via.str.size};
}

std::uint64_t number_of(const msgpack::object& value, std::string_view what) {
  if (value.type != object_type::POSITIVE_INTEGER)
    throw_corrupt(fmt::format("have a {} that is no number from 0", what));
  return value.via.u64;
}

std::span<const msgpack::object> list_of(const msgpack::object& value, std::string_view what) {
  if (value.type != object_type::ARRAY) throw_corrupt(fmt::format("have a {} that is no list", what));
  return {value.via.array.ptr, value.via.array.size};
}

// A map that has exactly so many entries; since each key that is asked for must be there, none is there twice and
// none is unknown.
class Fields {
 public:
  Fields(const msgpack::object& value, std::size_t count) {
    if (value.type != object_type::MAP || value.via.map.size != count) {
      throw_corrupt(fmt::format("have a header without a map of {} entries where one must be", count));
    }
    entries_ = {value.via.map.ptr, value.via.map.size};
  }
  [[nodiscard]] const msgpack::object& at(std::string_view name) const {
    const auto found = std::ranges::find_if(entries_, [&](const auto& entry) {
      return entry.key.type == object_type::STR && text_of(entry.key, "key") == name;
    });
    if (found == entries_.end()) throw_corrupt(fmt::format("lack the entry '{}'", name));
    return found->val;
  }

 private:
  std::span<const msgpack::object_kv> entries_;
};

// NOLINTEND(cppcoreguidelines-pro-type-union-access)

TensorLayout layout_of(const Fields& fields) {
  const auto sizes = list_of(fields.at(key::kShape), key::kShape);
  if (sizes.size() > kMaxRank)
    throw_corrupt(fmt::format("have {} dimensions, of {} at most", sizes.size(), kMaxRank));
  std::vector<std::int64_t> shape;
  for (const auto& size : sizes) {
    const std::uint64_t number = number_of(size, "size");
    if (number > detail::kMostSerializedBytes) throw_corrupt(fmt::format("have a size of {}", number));
    shape.push_back(static_cast<std::int64_t>(number));
  }
  const auto dtype = text_of(fields.at(key::kDType), key::kDType);
  try {
    return TensorLayout::contiguous(parse_dtype(dtype), shape);
  } catch (const Error& error) {
    throw_corrupt("cannot be what they say: " + error.message());
  }
}

// Reads the arrays one after the other, as they lie.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> data) : data_(data) {}

  NamedArray read(const msgpack::object& entry) {
    const Fields fields(entry, 5);
    NamedArray array{.name = std::string(text_of(fields.at(key::kName), key::kName)), .layout = layout_of(fields)};
    const std::uint64_t offset = number_of(fields.at(key::kOffset), key::kOffset);
    const std::uint64_t bytes = number_of(fields.at(key::kBytes), key::kBytes);
    if (bytes != array.layout.bytes()) {
      throw_corrupt(fmt::format("say {} bytes of {}", bytes, to_string(array.layout)));
    }
    if (offset % kSerializeAlignment != 0 || offset < end_ || offset > detail::kMostSerializedBytes) {
      throw_corrupt(fmt::format("have data at {}, which is no place for them", offset));
    }
    if (offset > data_.size() || bytes > data_.size() - offset) throw_cut_off(data_.size(), offset + bytes);
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
  if (order != detail::kLittle) throw_corrupt("have an unknown order of bytes");
  if (number_of(fields.at(key::kAlignment), key::kAlignment) != kSerializeAlignment) {
    throw_corrupt("have another alignment than 64");
  }
}

}  // namespace

std::vector<NamedArray> parse_serialized(std::span<const std::byte> bytes) {
  const auto header = header_of(bytes);
  const auto handle = unpack(header);
  const Fields fields(handle.get(), 3);
  check_order(fields);
  const auto entries = list_of(fields.at(key::kArrays), key::kArrays);
  const std::uint64_t begin = detail::aligned(detail::kSerializeFrame + header.size());
  Reader reader(bytes.subspan(std::min<std::size_t>(begin, bytes.size())));
  std::vector<NamedArray> arrays;
  arrays.reserve(entries.size());  // so that names stay where they are
  std::set<std::string_view> names;
  for (const auto& entry : entries) {
    arrays.push_back(reader.read(entry));
    if (!names.insert(arrays.back().name).second) throw_corrupt("have two arrays of one name");
  }
  return arrays;
}

}  // namespace drover
