#include "device/host/address_table.hpp"

#include <gtest/gtest.h>

namespace drover::device::host {

TEST(AddressTable, range_is_found_until_removed) {
  AddressTable table;
  ASSERT_TRUE(table.add(1000, 100));
  EXPECT_TRUE(table.contains(1000, 100));
  EXPECT_TRUE(table.contains(1050, 50));
  EXPECT_TRUE(table.contains(1099, 1));
  table.remove(1000);
  EXPECT_FALSE(table.contains(1000, 1));
}

TEST(AddressTable, range_beyond_either_end_is_not_contained) {
  AddressTable table;
  ASSERT_TRUE(table.add(1000, 100));
  EXPECT_FALSE(table.contains(999, 2));
  EXPECT_FALSE(table.contains(1050, 51));
  EXPECT_FALSE(table.contains(1101, 1));
  EXPECT_FALSE(table.contains(1050, SIZE_MAX)) << "an overflow must not count as inside";
}

TEST(AddressTable, adjacent_ranges_are_not_merged) {
  AddressTable table;
  ASSERT_TRUE(table.add(1000, 100));
  ASSERT_TRUE(table.add(1100, 100));
  EXPECT_FALSE(table.contains(1050, 100)) << "an access must not span two pieces of memory";
}

TEST(AddressTable, overlap_is_rejected_and_changes_nothing) {
  AddressTable table;
  ASSERT_TRUE(table.add(1000, 100));
  for (const std::uint64_t begin : {950U, 1000U, 1050U, 1099U}) EXPECT_FALSE(table.add(begin, 60)) << begin;
  EXPECT_TRUE(table.add(940, 60));
  EXPECT_TRUE(table.add(1100, 1));
  EXPECT_TRUE(table.contains(1000, 100));
}

TEST(AddressTable, range_around_an_address_is_found_with_its_note) {
  AddressTable table;
  ASSERT_TRUE(table.add(1000, 100, {.kind = RangeNote::Kind::slab, .device = 3, .file = 7}));
  for (const std::uint64_t inside : {1000U, 1050U, 1099U}) {
    const auto found = table.find(inside);
    ASSERT_TRUE(found) << inside;
    EXPECT_EQ(found->begin, 1000U);
    EXPECT_EQ(found->bytes, 100U);
    EXPECT_EQ(found->note.kind, RangeNote::Kind::slab);
    EXPECT_EQ(found->note.device, 3);
    EXPECT_EQ(found->note.file, 7);
  }
  for (const std::uint64_t outside : {0U, 999U, 1100U}) EXPECT_FALSE(table.find(outside)) << outside;
}

TEST(AddressTable, numbers_are_unique) {
  AddressTable table;
  ASSERT_TRUE(table.add(1000, 100));
  const auto first = table.find(1000)->note.number;
  table.remove(1000);
  ASSERT_TRUE(table.add(1000, 100));
  EXPECT_NE(table.find(1000)->note.number, first);
}

}  // namespace drover::device::host
