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

#include "drover/base/error.hpp"
#include "tensor/exchange/serialize_format.hpp"
#include "tensor/layout/memory_check.hpp"

namespace drover {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are written as they lie in memory");

using detail::aligned;
using Packer = msgpack::packer<msgpack::sbuffer>;

// Where everything will lie.
struct Plan {
  msgpack::sbuffer header;
  std::vector<std::uint64_t> offsets;  // of each array, from `data_begin`
  std::uint64_t data_begin = 0;
  std::uint64_t bytes = 0;
};

void refuse_if(bool is_wrong, const std::string& what, const char* remedy) {
  if (is_wrong) throw Error(Errc::invalid_argument, what, remedy);
}

void check(std::span<const NamedArray> arrays) {
  refuse_if(arrays.size() > kMostSerializedArrays,
            fmt::format("{} arrays are to be serialized, of {} at most", arrays.size(), kMostSerializedArrays),
            "write them in several parts");
  std::set<std::string_view> names;
  for (const auto& array : arrays) {
    refuse_if(array.name.size() > kMostSerializedName,
              fmt::format("the name of an array has {} bytes, of {} at most", array.name.size(), kMostSerializedName),
              "give it a shorter name");
    refuse_if(!names.insert(array.name).second,
              fmt::format("two arrays that are written together are named '{}'", array.name),
              "give each a name of its own");
    detail::check_memory(array.layout, array.memory.size());
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
  pack_text(packer, detail::key::kName);
  pack_text(packer, array.name);
  pack_text(packer, detail::key::kDType);
  pack_text(packer, to_string(array.layout.dtype()));
  pack_text(packer, detail::key::kShape);
  packer.pack_array(static_cast<std::uint32_t>(array.layout.rank()));
  for (const std::int64_t size : array.layout.shape()) packer.pack_uint64(static_cast<std::uint64_t>(size));
  pack_number(packer, detail::key::kOffset, offset);
  pack_number(packer, detail::key::kBytes, array.layout.bytes());
}

Plan plan(std::span<const NamedArray> arrays) {
  check(arrays);
  Plan plan;
  Packer packer(plan.header);
  packer.pack_map(3);
  pack_text(packer, detail::key::kOrder);
  pack_text(packer, detail::kLittle);
  pack_number(packer, detail::key::kAlignment, kSerializeAlignment);
  pack_text(packer, detail::key::kArrays);
  packer.pack_array(static_cast<std::uint32_t>(arrays.size()));
  std::uint64_t end = 0;
  for (const auto& array : arrays) {
    plan.offsets.push_back(aligned(end));
    pack_array(packer, array, plan.offsets.back());
    end = plan.offsets.back() + array.layout.bytes();
    refuse_if(end > detail::kMostSerializedBytes, "arrays that are to be serialized have more than 2^62 bytes",
              "write what an expanded layout repeats only once");
  }
  plan.data_begin = aligned(detail::kSerializeFrame + plan.header.size());
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
  std::memcpy(to.data(), detail::kSerializeMagic.data(), detail::kSerializeMagic.size());
  put_number(to.subspan(8, 4), kSerializeVersion);
  put_number(to.subspan(12, 4), plan.header.size());
  std::memcpy(to.data() + detail::kSerializeFrame, plan.header.data(), plan.header.size());
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

}  // namespace

std::size_t serialized_bytes(std::span<const NamedArray> arrays) { return plan(arrays).bytes; }

std::size_t serialize(std::span<std::byte> to, std::span<const NamedArray> arrays) {
  const Plan layout = plan(arrays);
  refuse_if(to.size() < layout.bytes,
            fmt::format("serialized arrays need {} bytes, and there is room for {}", layout.bytes, to.size()),
            "ask serialized_bytes how much room they need");
  write(to.first(layout.bytes), layout, arrays);
  return layout.bytes;
}

std::vector<std::byte> serialize(std::span<const NamedArray> arrays) {
  const Plan layout = plan(arrays);
  std::vector<std::byte> bytes;
  try {
    bytes.resize(layout.bytes);
  } catch (const std::bad_alloc&) {
    throw Error(Errc::out_of_memory, fmt::format("there are no {} bytes for serialized arrays", layout.bytes),
                "serialize fewer arrays at once, or into memory of a file");
  }
  write(bytes, layout, arrays);
  return bytes;
}

}  // namespace drover
