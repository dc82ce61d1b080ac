// python/bindings/arrays.hpp: the arrays of a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "drover/tensor/dlpack.hpp"
#include "exchange_api.hpp"
#include "support.hpp"

namespace drover::python {

/// Which arrays on the host are tensors of a message; all others are pickled by their library.
struct HostRules {
  bool by_reference = false;      ///< whether the message shares arrays, which those of the host do in another way
  std::uint64_t least_bytes = 0;  ///< smaller arrays are copied into the pickle, except for those in shared memory
};

/// Collects the arrays of a message while it is pickled. Then imports them all at once, so that they are copied by
/// few copies into few blocks. Guarded by the GIL.
class Arrays {
 public:
  /// Each returns the index of the array in the result of `take`. Arrays stay unchanged until then.
  std::size_t add(nb::handle array);
  /// For arrays of torch. nullopt for one without elements, that a drover tensor cannot describe, or that is to be
  /// sent in another way by these rules.
  std::optional<std::size_t> add_if_tensor(nb::handle array, const ExchangeApi& api, const HostRules& rules);
  /// Same as `import_array` of the module.
  std::size_t add_capsule(nb::handle capsule, std::optional<std::uintptr_t> stream,
                          const std::optional<std::vector<std::int64_t>>& strides, bool is_known);
  std::size_t add_tensor(const Tensor& tensor);
  std::size_t add_buffer(nb::handle buffer);

  [[nodiscard]] std::size_t size() const noexcept { return requests_.size() + tensors_.size(); }
  /// Imports all arrays, and forgets them.
  [[nodiscard]] std::vector<Tensor> take(const PySession& session, bool by_reference);
  void clear() noexcept;

 private:
  std::size_t add(ImportRequest request);
  std::size_t add(nb::handle array, const ExchangeApi& api, DlpackArray described);
  [[nodiscard]] std::optional<std::uintptr_t> stream_of(const ExchangeApi& api, const Place& place);

  // The stream of a library at a place, asked once for a message.
  struct CurrentStream {
    const ExchangeApi* api;
    Place place;
    std::optional<std::uintptr_t> stream;
  };

  std::vector<ImportRequest> requests_;
  std::vector<std::pair<std::size_t, Tensor>> tensors_;  // those that need no import, and their indices, in order
  std::vector<CurrentStream> streams_;
};

/// The array of a library that a tensor is. Its current stream waits for work on the tensor.
[[nodiscard]] nb::object to_array(const Tensor& tensor, const ExchangeApi& api);

/// Takes the array out of a DLPack capsule. Whatever comes of it, the capsule is consumed.
[[nodiscard]] DlpackArray consume_capsule(nb::handle capsule);

}  // namespace drover::python
