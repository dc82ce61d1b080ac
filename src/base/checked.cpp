#include "drover/base/checked.hpp"

#include "drover/base/error.hpp"

namespace drover::detail {

void fail_empty() {
  throw Error(Errc::invalid_argument, "this object is empty: it was moved from, or never had anything",
              "use the object to which it was moved, or assign to it first");
}

}  // namespace drover::detail
