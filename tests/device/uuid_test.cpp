#include "drover/device/info.hpp"

#include <gtest/gtest.h>

namespace drover::device {

constexpr const char* kText = "GPU-00112233-4455-6677-8899-aabbccddeeff";

TEST(Uuid, text_round_trips) {
  const auto uuid = parse_uuid(kText);
  ASSERT_TRUE(uuid);
  EXPECT_EQ(uuid->bytes[0], 0x00);
  EXPECT_EQ(uuid->bytes[15], 0xff);
  EXPECT_EQ(to_string(*uuid), kText);
}

TEST(Uuid, prefix_is_optional_and_capitals_are_accepted) {
  EXPECT_EQ(parse_uuid("00112233-4455-6677-8899-aabbccddeeff"), parse_uuid(kText));
  EXPECT_EQ(parse_uuid("MIG-00112233-4455-6677-8899-AABBCCDDEEFF"), parse_uuid(kText));
}

TEST(Uuid, anything_else_is_rejected) {
  for (const char* const text :
       {"", "GPU-", "00112233-4455-6677-8899-aabbccddeef", "00112233-4455-6677-8899-aabbccddeeff0",
        "0011223304455-6677-8899-aabbccddeeff", "g0112233-4455-6677-8899-aabbccddeeff",
        "+0112233-4455-6677-8899-aabbccddeeff", "00112233-4455-6677-8899-aabbccddee-f"}) {
    EXPECT_FALSE(parse_uuid(text)) << text;
  }
}

TEST(Uuid, text_of_a_device_has_the_prefix_that_cuda_accepts) {
  DeviceInfo info;
  info.uuid = *parse_uuid(kText);
  EXPECT_EQ(uuid_text(info), kText);
  info.is_mig_instance = true;
  EXPECT_EQ(uuid_text(info), "MIG-00112233-4455-6677-8899-aabbccddeeff");
}

}  // namespace drover::device
