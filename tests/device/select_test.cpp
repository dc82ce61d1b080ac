// The backend is chosen once per process, so each case runs in a separate process.
#include "drover/device/backend.hpp"

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"
#include "support/scoped_environment.hpp"

namespace drover::test {

DROVER_PEER_BODY(report_selection) {
  try {
    const Selection& selection = select_backend();
    EXPECT_EQ(&selection.backend, &select_backend().backend);
    peer.channel().send(std::string(to_string(selection.backend.kind())) + ": " + selection.reason);
  } catch (const Error& error) {
    peer.channel().send(std::string("error: ") + error.what());
  }
}

namespace {

std::string selection_with(const char* backend, const char* libcuda) {
  const ScopedEnvironment asked("DROVER_BACKEND",
                                backend == nullptr ? std::nullopt : std::optional<std::string>(backend));
  const ScopedEnvironment library("DROVER_LIBCUDA",
                                  libcuda == nullptr ? std::nullopt : std::optional<std::string>(libcuda));
  PeerGroup peer("report_selection", {.mode = PeerMode::processes, .size = 1});
  peer.start();
  const std::string text = peer.receive_text(0);
  peer.expect_success();
  return text;
}

}  // namespace

TEST(Select, host_is_used_if_requested) {
  EXPECT_EQ(selection_with("host", nullptr), "host: DROVER_BACKEND=host asks for emulated devices");
}

TEST(Select, machine_without_a_driver_gets_emulated_devices_and_the_reason) {
  const auto text = selection_with(nullptr, "libnone.so.1");
  EXPECT_TRUE(text.starts_with("host: emulated devices, because")) << text;
  EXPECT_NE(text.find("libnone.so.1"), std::string::npos) << text;
  EXPECT_EQ(selection_with("auto", "libnone.so.1"), text);
}

TEST(Select, cuda_requested_without_a_gpu_is_an_error_with_a_remedy) {
  const auto text = selection_with("cuda", "libnone.so.1");
  EXPECT_TRUE(text.starts_with("error: NVIDIA's driver library could not be loaded")) << text;
  EXPECT_NE(text.find("driver_missing"), std::string::npos) << text;
  EXPECT_NE(text.find("DROVER_BACKEND=host"), std::string::npos) << text;
}

TEST(Select, unknown_backend_is_an_error_that_lists_the_known_ones) {
  const auto text = selection_with("opencl", nullptr);
  EXPECT_NE(text.find("DROVER_BACKEND=opencl"), std::string::npos) << text;
  EXPECT_NE(text.find("auto, host or cuda"), std::string::npos) << text;
}

TEST(Select, library_that_is_not_a_driver_is_too_old) {
  const auto text = selection_with("cuda", "libm.so.6");
  EXPECT_NE(text.find("driver_mismatch"), std::string::npos) << text;
  EXPECT_NE(text.find("cuGetProcAddress_v2"), std::string::npos) << text;
}

TEST(Select, host_is_always_available) {
  const auto available = available_backends();
  ASSERT_FALSE(available.empty());
  EXPECT_EQ(available.front()->kind(), BackendKind::host);
}

}  // namespace drover::test
