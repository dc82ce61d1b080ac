#include "exchange_api.hpp"

#include <algorithm>
#include <vector>

#include "drover/base/error.hpp"

namespace drover::python {
namespace {

constexpr const char* kAttribute = "__dlpack_c_exchange_api__";
constexpr const char* kCapsule = "dlpack_exchange_api";

struct Known {
  nb::object type;  // held, so that no other type gets its address
  const ExchangeApi* api;
};

const ExchangeApi* table_of(nb::handle type) {
  const nb::object capsule = nb::getattr(type, kAttribute, nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), kCapsule) == 0) return nullptr;
  const auto* const api = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule));
  const bool is_usable = api->version.major == dlpack::kVersion.major && api->to_object != nullptr &&
                         api->describe != nullptr && api->current_stream != nullptr;
  return is_usable ? api : nullptr;
}

}  // namespace

// A program has few types of arrays. Guarded by the GIL.
const ExchangeApi* ExchangeApi::find(nb::handle type) {
  static auto& known = *new std::vector<Known>();
  const auto at = std::ranges::find_if(known, [&](const Known& each) { return each.type.is(type); });
  if (at != known.end()) return at->api;
  known.push_back({.type = nb::borrow(type), .api = table_of(type)});
  return known.back().api;
}

std::optional<std::uintptr_t> ExchangeApi::stream_at(const Place& place) const {
  const dlpack::DLDevice device = to_dlpack(place);
  if (device.device_type != dlpack::kDLCUDA) return std::nullopt;
  void* stream = nullptr;
  if (current_stream(device.device_type, device.device_id, &stream) != 0) throw nb::python_error();
  return reinterpret_cast<std::uintptr_t>(stream);
}

std::optional<DlpackStream> ExchangeApi::dlpack_stream_at(const Place& place) const {
  constexpr DlpackStream kLegacyStream = 1;
  const auto stream = stream_at(place);
  if (!stream) return std::nullopt;
  return *stream == 0 ? kLegacyStream : static_cast<DlpackStream>(*stream);
}

}  // namespace drover::python
