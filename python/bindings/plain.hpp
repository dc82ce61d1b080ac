// python/bindings/plain.hpp: objects that pickle alone can send.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "drover/tensor/memory.hpp"
#include "drover/tensor/tensor.hpp"
#include "support.hpp"

namespace drover::python {

/// The size of all str and bytes in a plain object; nullopt for others. A plain object consists of numbers, str,
/// bytes, None, and tuples, lists and dicts of those, up to a depth and size: no part of it can need a reducer, so it
/// is pickled without one. The only definition of a plain object.
[[nodiscard]] std::optional<std::size_t> plain_size(nb::handle object);

/// An object as bytes and tensors for `loads` of drover/_objects.py.
struct Pickled {
  nb::object payload;
  std::vector<Tensor> tensors;
  bool is_plain = false;  ///< whether `unpickled` alone can read the payload
};
/// Pickles an object: a plain one as it is, others by `dumps` of drover/_objects.py. A large pickle lies in shared
/// memory, so that it is copied there once and read in place.
[[nodiscard]] Pickled to_message(nb::handle object, const Memory& memory, const nb::object& dumps);
/// `pickle.loads(bytes)`, without a copy if there are many.
[[nodiscard]] nb::object unpickled(std::span<const std::byte> bytes);
/// Bytes to pass to one Python call: a copy if they are few, otherwise a view that must not outlive them.
[[nodiscard]] nb::object view_or_copy(std::span<const std::byte> bytes);

}  // namespace drover::python
