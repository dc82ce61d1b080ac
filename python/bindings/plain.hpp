// python/bindings/plain.hpp: objects that pickle alone can send, without a look at what is in them.
#pragma once

#include "support.hpp"

namespace drover::python {

/// Whether it is made of numbers, text, short bytes, None, and tuples, lists and dicts of them, and is not too deep:
/// nothing that would travel by value or by handle.
[[nodiscard]] bool is_plain(nb::handle object);

/// `pickle.dumps(object, 5)`.
[[nodiscard]] nb::object pickled(nb::handle object);
/// `pickle.loads(bytes)`; many bytes are not copied.
[[nodiscard]] nb::object unpickled(std::span<const std::byte> bytes);
/// Bytes for one call of Python: a copy if they are few, else a view that must not outlive them.
[[nodiscard]] nb::object lent(std::span<const std::byte> bytes);

}  // namespace drover::python
