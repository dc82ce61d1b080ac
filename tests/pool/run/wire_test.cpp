// Messages between an application and its workers.
#include "pool/run/wire.hpp"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/ipc/queue.hpp"
#include "drover/tensor/send.hpp"
#include "pool/values/codec_support.hpp"
#include "support/expect_error.hpp"

namespace drover::pool {
namespace {

using test::bytes_of;
using test::expect_error;

class Wire : public ::testing::Test {
 protected:
  // The message of the writer, passed through a queue.
  Message passed() { return passed(writer_.bytes()); }
  Message passed(std::span<const std::byte> bytes) {
    EXPECT_EQ(queue_.put(bytes, writer_.leases()), PutResult::put);
    Message message;
    EXPECT_EQ(queue_.get(message), GetResult::got);
    return message;
  }
  // Blocks in use by any process.
  [[nodiscard]] std::uint64_t blocks() const {
    std::uint64_t count = 0;
    for (const auto& slab : own_.memory().usage()) count += slab.blocks;
    return count;
  }
  Tensor numbers(std::int64_t count) { return arange(own_.memory(), DType::int64, 0, count); }

  test::OwnMemory own_;
  Queue queue_{own_.member()};
  WireWriter writer_;
};

TEST_F(Wire, headers_bytes_and_tensors_are_read_as_written) {
  const std::size_t at = writer_.add(BatchHeader{.sequence = 1, .count = 0});
  writer_.add(TaskHeader{.number = 7, .task = 3, .bytes = 5, .tensors = 2});
  writer_.append(bytes_of("hello"));
  writer_.append(std::vector<Tensor>{numbers(5), numbers(3)});
  writer_.set(at, BatchHeader{.sequence = 9, .count = 1});
  EXPECT_EQ(writer_.bytes().size() % 8, 0U);

  Message message = passed();
  EXPECT_EQ(WireReader::peek<BatchHeader>(message).sequence, 9U);
  WireReader reader(message);
  EXPECT_EQ(reader.header<BatchHeader>().count, 1U);
  const auto task = reader.header<TaskHeader>();
  EXPECT_EQ(task.number, 7U);
  EXPECT_EQ(task.task, 3U);
  const auto bytes = reader.bytes(task.bytes);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "hello");
  const auto tensors = reader.tensors(task.tensors, own_.memory());
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(sum(tensors[0]), 10);
  EXPECT_EQ(sum(tensors[1]), 3);
  expect_error(Errc::corrupt, [&] { static_cast<void>(reader.bytes(1)); });
  EXPECT_TRUE(reader.bytes(0).empty());
}

TEST_F(Wire, several_lists_of_tensors_are_read_one_after_the_other) {
  const Tensor both = numbers(4);
  writer_.append(std::vector<Tensor>{both, numbers(5), both});
  writer_.append(std::vector<Tensor>{numbers(3)});
  EXPECT_EQ(writer_.leases().size(), 3U) << "tensors of one block share its lease";
  Message message = passed();
  WireReader reader(message);
  EXPECT_EQ(sum(reader.tensors(3, own_.memory()).back()), 6);
  EXPECT_TRUE(reader.tensors(0, own_.memory()).empty());
  EXPECT_EQ(sum(reader.tensors(1, own_.memory()).front()), 3);
}

TEST_F(Wire, a_thousand_tensors_are_read_in_order) {
  std::vector<Tensor> sent;
  for (std::int64_t i = 0; i < 1000; ++i) sent.push_back(numbers(i % 7 + 1));
  writer_.append(sent);
  sent.clear();
  {
    Message message = passed();
    writer_.clear();
    WireReader reader(message);
    const auto got = reader.tensors(1000, own_.memory());
    ASSERT_EQ(got.size(), 1000U);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].element_count(), static_cast<std::int64_t>(i % 7 + 1)) << i;
    }
  }
  EXPECT_EQ(blocks(), 0U);
}

TEST_F(Wire, a_writer_can_be_reused) {
  writer_.append(bytes_of("old"));
  writer_.append(std::vector<Tensor>{numbers(4)});
  writer_.clear();
  EXPECT_TRUE(writer_.bytes().empty() && writer_.leases().empty());
  writer_.append(bytes_of("12345678"));
  writer_.append(bytes_of("9"));
  EXPECT_EQ(writer_.bytes().size(), 16U);
  writer_.cut(8);
  EXPECT_EQ(writer_.bytes().size(), 8U);
}

TEST_F(Wire, nothing_is_written_of_tensors_that_cannot_be_sent) {
  writer_.append(bytes_of("abc"));
  const std::vector<Tensor> tensors{numbers(2), Tensor()};
  expect_error(Errc::invalid_argument, [&] { writer_.append(tensors); });
  EXPECT_EQ(writer_.bytes().size(), 8U);
  EXPECT_TRUE(writer_.leases().empty());
}

TEST_F(Wire, a_truncated_message_is_corrupt) {
  writer_.add(ResultHeader{.number = 1, .bytes = 100});
  Message cut = passed(writer_.bytes().first(8));
  expect_error(Errc::corrupt, [&] { static_cast<void>(WireReader::peek<ResultHeader>(cut)); }, {"truncated"});
  WireReader cut_reader(cut);
  expect_error(Errc::corrupt, [&] { static_cast<void>(cut_reader.header<ResultHeader>()); });
  Message message = passed();
  WireReader reader(message);
  const auto header = reader.header<ResultHeader>();
  expect_error(Errc::corrupt, [&] { static_cast<void>(reader.bytes(header.bytes)); });
  constexpr auto kHuge = std::numeric_limits<std::size_t>::max();
  for (const std::size_t count : {kHuge, kHuge - 6, kHuge / 224}) {
    expect_error(Errc::corrupt, [&] { static_cast<void>(reader.bytes(count)); });
    expect_error(Errc::corrupt, [&] { static_cast<void>(reader.tensors(count, own_.memory())); });
  }
}

TEST_F(Wire, tensors_without_records_are_corrupt_and_released) {
  {
    writer_.append(std::vector<Tensor>{numbers(2), numbers(2)});
    Message message = passed(writer_.bytes().first(200));
    writer_.clear();
    ASSERT_EQ(message.leases().size(), 2U);
    EXPECT_EQ(blocks(), 2U);
    WireReader reader(message);
    expect_error(Errc::corrupt, [&] { static_cast<void>(reader.tensors(2, own_.memory())); });
    EXPECT_EQ(blocks(), 0U) << "the reader still holds them";
  }
  EXPECT_EQ(blocks(), 0U);
}

}  // namespace
}  // namespace drover::pool
