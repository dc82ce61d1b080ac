// device/own.hpp: the checked cast from an interface to a backend's own type.
#pragma once

#include <source_location>

#include "drover/base/error.hpp"

namespace drover::device {

/// Casts `object` to the backend's own type. Throws `Errc::invalid_argument` if another backend created it.
template <class Own, class Interface>
[[nodiscard]] Own& own(Interface& object, std::source_location where = std::source_location::current()) {
  auto* const cast = dynamic_cast<Own*>(&object);
  require(cast != nullptr, "an object of one backend was passed to another backend",
          "use streams, events, kernels and slabs only with the backend that created them", where);
  return *cast;
}

}  // namespace drover::device
