#include "drover/device/capture_notice.hpp"

#include <atomic>

namespace drover {
namespace {

std::atomic<int> notices{0};

}  // namespace

CaptureNotice::CaptureNotice() noexcept { ++notices; }
CaptureNotice::~CaptureNotice() { --notices; }

bool CaptureNotice::exists() noexcept { return notices > 0; }

}  // namespace drover
