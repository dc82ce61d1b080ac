#include "drover/tensor/memory.hpp"

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "support/expect_error.hpp"

namespace drover::tensor {
namespace {

TEST(Place, text_parses_back) {
  for (const char* const text : {"cpu", "cuda:0", "host:1", "cuda:12"})
    EXPECT_EQ(to_string(Place::parse(text)), text);
  EXPECT_EQ(Place::parse("cpu"), Place::cpu());
  EXPECT_EQ(Place::parse("host:3"), Place::device(BackendKind::host, 3));
}

TEST(Place, host_memory_is_a_single_place) {
  EXPECT_EQ((Place{.is_device = false, .backend = BackendKind::cuda, .index = 3}), Place::cpu());
  EXPECT_NE(Place::cpu(), Place::parse("host:0"));
  EXPECT_LT(Place::parse("cuda:0"), Place::parse("cuda:1"));
}

TEST(Place, invalid_text_throws_and_lists_the_choices) {
  for (const char* const text : {"", "gpu", "cuda", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:-0", "cpu:0", ":0",
                                 "cuda: 1", "cuda:99999999999999999999"}) {
    test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(Place::parse(text)); },
                       {"is not a place", "cpu, cuda:0 or host:0"});
  }
}

}  // namespace
}  // namespace drover::tensor
