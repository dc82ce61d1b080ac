// python/bindings/exchange_api.hpp: the C functions by which libraries exchange arrays (DLPack 1.2 and newer).
#pragma once

#include <cstdint>
#include <optional>

#include "drover/tensor/dlpack.hpp"
#include "support.hpp"

namespace drover::python {

/// The table that a type of arrays has as `__dlpack_c_exchange_api__`. Much faster than capsules, for libraries that
/// have it. Functions return 0, or -1 with a Python exception.
struct ExchangeApi {
  dlpack::DLPackVersion version;
  ExchangeApi* previous = nullptr;
  int (*allocate)(dlpack::DLTensor*, dlpack::DLManagedTensorVersioned**, void*,
                  void (*)(void*, const char*, const char*)) = nullptr;
  int (*from_object)(void* object, dlpack::DLManagedTensorVersioned** made) = nullptr;
  int (*to_object)(dlpack::DLManagedTensorVersioned* array, void** object) = nullptr;
  int (*describe)(void* object, dlpack::DLTensor* into) = nullptr;
  int (*current_stream)(dlpack::DLDeviceType type, std::int32_t device, void** stream) = nullptr;

  /// The table of a type; null if it has none that this version can use.
  [[nodiscard]] static const ExchangeApi* find(nb::handle type);
  /// The stream on which the library works at a place; nullopt on the host.
  [[nodiscard]] std::optional<std::uintptr_t> stream_at(const Place& place) const;
  /// The same, by the name that DLPack gives it.
  [[nodiscard]] std::optional<DlpackStream> dlpack_stream_at(const Place& place) const;
};

}  // namespace drover::python
