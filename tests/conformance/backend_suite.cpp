#include "conformance/backend_suite.hpp"

namespace drover::test {

std::string backend_name(const testing::TestParamInfo<BackendKind>& info) {
  return std::string(to_string(info.param));
}

void BackendSuite::SetUp() {
  if (const auto reason = reason_to_skip(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
}

void BackendSuite::TearDown() {
  if (IsSkipped()) return;
  EXPECT_EQ(backend().live(), LiveResources{}) << "the test left device resources behind";
}

BackendSuite::RegisteredMemory BackendSuite::registered(std::size_t bytes) {
  RegisteredMemory made{.memory = Mapping::shared(make_memory_file("drover-test", bytes), bytes), .registration = {}};
  made.registration = device().register_host(made.memory.bytes());
  return made;
}

std::vector<std::uint32_t> BackendSuite::numbers(std::size_t count, std::uint32_t first) {
  std::vector<std::uint32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<std::uint32_t> BackendSuite::read(const DeviceMemory& memory, std::size_t count) {
  std::vector<std::uint32_t> values(count, 0xdeadbeef);
  device().download(values.data(), memory.ptr(), count * sizeof(std::uint32_t));
  return values;
}

}  // namespace drover::test
