#include "device/cuda/visible_devices.hpp"

#include <gtest/gtest.h>

namespace drover::device::cuda {
namespace {

std::vector<DeviceInfo> four_gpus() {
  std::vector<DeviceInfo> present(4);
  for (std::size_t i = 0; i < present.size(); ++i) {
    present[i].uuid.bytes = {static_cast<std::uint8_t>(0x10 * (i + 1)), 0xab};
  }
  return present;
}

using Order = std::vector<std::size_t>;
using Texts = std::vector<std::string>;

struct Case {
  std::optional<std::string> setting;
  Order order;
  Texts unmatched;
};

}  // namespace

TEST(VisibleDevices, setting_is_interpreted_as_by_cuda) {
  const std::vector<Case> cases = {
      {std::nullopt, {0, 1, 2, 3}, {}},
      {"", {}, {}},
      {"-1", {}, {"-1"}},
      {"2,0", {2, 0}, {}},
      {" 1 , 3 ", {1, 3}, {}},
      {"0,7,1", {0}, {"7", "1"}},
      {"0,-1,1", {0}, {"-1", "1"}},
      {"1,2,1,0", {}, {"1", "0"}},
      {"GPU-20", {1}, {}},
      {"GPU-30ab0000-0000-0000-0000-000000000000,0", {2, 0}, {}},
      {"GPU-9,0", {}, {"GPU-9", "0"}},
      {"GPU-", {}, {"GPU-"}},
      {"all", {}, {"all"}},
      {"1x", {1}, {}},
      {"x1", {}, {"x1"}},
      {"MIG-10", {}, {"MIG-10"}},
  };
  for (const auto& [setting, order, unmatched] : cases) {
    const auto visible = apply_visible_devices(setting, four_gpus());
    EXPECT_EQ(visible.order, order) << setting.value_or("(unset)");
    EXPECT_EQ(visible.unmatched, unmatched) << setting.value_or("(unset)");
  }
}

TEST(VisibleDevices, process_sees_one_mig_instance_at_most) {
  auto present = four_gpus();
  present[1].is_mig_instance = true;
  present[2].is_mig_instance = true;
  EXPECT_EQ(apply_visible_devices(std::nullopt, present).order, Order{1});
  EXPECT_EQ(apply_visible_devices("MIG-30,MIG-20", present).order, Order{2});
  EXPECT_EQ(apply_visible_devices("0,3", present).order, (Order{0, 3}));
}

}  // namespace drover::device::cuda
