#include "tensor/exchange/dlpack_types.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::detail {
namespace {

struct Row {
  DType dtype;
  std::uint8_t code;
  std::uint8_t bits;
};

constexpr std::array kRows = {
    Row{DType::boolean, dlpack::kDLBool, 8},         Row{DType::int8, dlpack::kDLInt, 8},
    Row{DType::int16, dlpack::kDLInt, 16},           Row{DType::int32, dlpack::kDLInt, 32},
    Row{DType::int64, dlpack::kDLInt, 64},           Row{DType::uint8, dlpack::kDLUInt, 8},
    Row{DType::uint16, dlpack::kDLUInt, 16},         Row{DType::uint32, dlpack::kDLUInt, 32},
    Row{DType::uint64, dlpack::kDLUInt, 64},         Row{DType::float16, dlpack::kDLFloat, 16},
    Row{DType::bfloat16, dlpack::kDLBfloat, 16},     Row{DType::float32, dlpack::kDLFloat, 32},
    Row{DType::float64, dlpack::kDLFloat, 64},       Row{DType::complex64, dlpack::kDLComplex, 64},
    Row{DType::complex128, dlpack::kDLComplex, 128},
};
static_assert(kRows.size() == kAllDTypes.size());

// By code. The first seven are followed by their bits in a name; "" is none.
constexpr std::array<std::string_view, 18> kCodeNames = {
    "int",
    "uint",
    "float",
    "opaque",
    "bfloat",
    "complex",
    "bool",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
};
constexpr std::uint8_t kCodesWithBits = 7;

std::string name_of(const dlpack::DLDataType& type) {
  std::string name = type.code < kCodeNames.size() ? std::string(kCodeNames.at(type.code))
                                                   : fmt::format("code {} with bits ", type.code);
  if (type.code < kCodesWithBits || type.code >= kCodeNames.size()) name += std::to_string(type.bits);
  if (type.lanes != 1) name += fmt::format(" in vectors of {}", type.lanes);
  return name;
}

}  // namespace

dlpack::DLDataType dlpack_type(DType dtype) {
  const auto* const row = std::ranges::find(kRows, dtype, &Row::dtype);
  if (row == kRows.end()) throw Error(Errc::internal, "a type of elements is unknown to DLPack", "report this");
  return {.code = row->code, .bits = row->bits, .lanes = 1};
}

DType dtype_from(const dlpack::DLDataType& type) {
  const auto* const row =
      std::ranges::find_if(kRows, [&](const Row& each) { return each.code == type.code && each.bits == type.bits; });
  if (row != kRows.end() && type.lanes == 1) return row->dtype;
  throw Error(Errc::unsupported, fmt::format("a DLPack array has elements of type {}", name_of(type)),
              "convert it to a type of DType first, or view its bytes as uint8");
}

}  // namespace drover::detail
