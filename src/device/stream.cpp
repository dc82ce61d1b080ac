#include "drover/device/stream.hpp"

namespace drover {

void Stream::copy_all(std::span<const DeviceCopy> copies) {
  for (const DeviceCopy& each : copies) copy(each.to, each.from, each.bytes);
}

}  // namespace drover
