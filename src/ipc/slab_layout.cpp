#include "ipc/slab_layout.hpp"

#include "ipc/object_layout.hpp"

namespace drover {

const ObjectKindInfo slab_kind = {.layout_bytes = [](const ObjectSpec&) { return kCacheLine; },
                                  .format = [](std::byte*, const ObjectSpec&) {},
                                  .recover = [](std::byte*, const ObjectSpec&, Owner) {},
                                  .wake_all = [](std::byte*, const ObjectSpec&) {},
                                  .is_needed = [](std::byte*, const ObjectSpec&) { return false; },
                                  .has_file = true};

}  // namespace drover
