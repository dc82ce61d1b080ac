#include "support/fault_seam.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "base/sys.hpp"

namespace drover::test {
namespace {

// Guards the list and the counters of every seam in it.
std::mutex& seams_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::vector<FaultSeam*>& seams() {
  static std::vector<FaultSeam*> living;
  return living;
}

}  // namespace

FaultSeam::FaultSeam(std::string call, int error, FaultOptions options)
    : call_(std::move(call)), error_(error), options_(options) {
  const std::scoped_lock lock(seams_mutex());
  seams().push_back(this);
  sys::set_fault(&FaultSeam::decide);
}

FaultSeam::~FaultSeam() {
  const std::scoped_lock lock(seams_mutex());
  std::erase(seams(), this);
  if (seams().empty()) sys::set_fault(nullptr);
}

int FaultSeam::calls() const {
  const std::scoped_lock lock(seams_mutex());
  return calls_;
}

int FaultSeam::strikes() const {
  const std::scoped_lock lock(seams_mutex());
  return strikes_;
}

int FaultSeam::decide(const char* call) noexcept {
  const std::scoped_lock lock(seams_mutex());
  for (FaultSeam* const seam : seams()) {
    if (seam->call_ != call) continue;
    ++seam->calls_;
    if (seam->calls_ < seam->options_.nth || seam->strikes_ >= seam->options_.times) continue;
    ++seam->strikes_;
    return seam->error_;
  }
  return 0;
}

}  // namespace drover::test
