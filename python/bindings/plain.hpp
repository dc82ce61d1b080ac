// python/bindings/plain.hpp: objects that pickle alone can send.
#pragma once

#include "support.hpp"

namespace drover::python {

/// Whether an object consists of numbers, str, bytes, None, and tuples, lists and dicts of those, up to a depth and
/// size: no part of it can need a reducer, so it is pickled without one. The only definition of a plain object.
[[nodiscard]] bool is_plain(nb::handle object);

/// `pickle.dumps(object, 5)`.
[[nodiscard]] nb::object pickled(nb::handle object);
/// `pickle.loads(bytes)`, without a copy if there are many.
[[nodiscard]] nb::object unpickled(std::span<const std::byte> bytes);
/// Bytes to pass to one Python call: a copy if they are few, otherwise a view that must not outlive them.
[[nodiscard]] nb::object view_or_copy(std::span<const std::byte> bytes);

}  // namespace drover::python
