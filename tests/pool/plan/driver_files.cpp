// A pool queries the GPUs, after which the driver keeps files open: these are no leftovers of a test.
#include <utility>

#include <gtest/gtest.h>

#include "drover/device/info.hpp"
#include "drover/pool/worker_plan.hpp"
#include "support/backends.hpp"

namespace drover::pool {
namespace {

// Makes the driver open its files before the first test.
class DriverFiles : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& /*test*/) override {
    if (std::exchange(is_done_, true)) return;
    static_cast<void>(test::reason_to_skip(BackendKind::cuda));
    static_cast<void>(look_at_machine());
  }
  bool is_done_ = false;
};

const bool is_listening = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new DriverFiles);
  return true;
}();

}  // namespace
}  // namespace drover::pool
