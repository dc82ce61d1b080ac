#include "session/wire/protocol.hpp"

#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/expect_error.hpp"

namespace drover::session {
namespace {

using namespace std::chrono_literals;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Where the fields lie; the layout is fixed, so that a test may spoil one of them.
constexpr std::size_t kMagicAt = 0;
constexpr std::size_t kVersionAt = 4;
constexpr std::size_t kTypeAt = 6;
constexpr std::size_t kSpecKindAt = 16;
constexpr std::size_t kRequestHandleKindAt = 72;
constexpr std::size_t kRequestNameAt = 104;
constexpr std::size_t kFailureAt = 16;
constexpr std::size_t kOwnerAt = 20;
constexpr std::size_t kReplyTextAt = 152;

template <class Value>
std::string spoilt(std::string bytes, std::size_t place, Value value) {
  std::memcpy(bytes.data() + place, &value, sizeof(value));
  return bytes;
}

void expect_corrupt_request(const std::string& bytes, const std::string& part) {
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(parse_request(bytes_of(bytes))); }, {part});
}

void expect_corrupt_reply(const std::string& bytes, const std::string& part) {
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(parse_reply(bytes_of(bytes))); }, {part});
}

Request round_trip(const Request& request) { return parse_request(bytes_of(encode(request))); }
Reply round_trip(const Reply& reply) { return parse_reply(bytes_of(encode(reply))); }

// With all its fields.
ipc::KeptEntry sample_kept() {
  const ipc::SentLease lease{
      .slab = {.kind = ObjectKind::slab, .slab = 3, .offset = 1ULL << 40U, .generation = 1ULL << 50U},
      .lease = {.index = 4000000000, .generation = 67}};
  return {.info = {.name = "weights",
                   .description = "für später",
                   .bytes = 1ULL << 41U,
                   .leases = 2,
                   .since = std::chrono::sys_seconds(1'700'000'000s)},
          .record = {std::byte{0}, std::byte{255}, std::byte{10}},
          .leases = {lease, {}}};
}

void expect_same(const ipc::KeptEntry& one, const ipc::KeptEntry& other) {
  EXPECT_EQ(one.info, other.info);
  EXPECT_EQ(one.record, other.record);
  ASSERT_EQ(one.leases.size(), other.leases.size());
  EXPECT_EQ(one.leases.front(), other.leases.front());
}

TEST(Protocol, what_is_kept_travels_with_the_types_that_speak_of_it) {
  for (const auto type : {RequestType::keep, RequestType::recall, RequestType::drop, RequestType::kept}) {
    const Request back = round_trip(Request{.type = type, .sequence = 9, .kept = sample_kept()});
    EXPECT_EQ(back.sequence, 9U);
    expect_same(back.kept, sample_kept());
  }
  for (const auto type : {RequestType::recall, RequestType::kept}) {
    expect_same(round_trip(Reply{.type = type, .kept = sample_kept()}).kept, sample_kept());
    const Reply failed = round_trip(Reply{.type = type, .failure = Errc::not_found, .kept = sample_kept()});
    EXPECT_TRUE(failed.kept.info.name.empty());
  }
  EXPECT_EQ(encode(Request{.type = RequestType::join, .kept = sample_kept()}).size(), request_bytes);
  EXPECT_EQ(encode(Reply{.type = RequestType::keep, .kept = sample_kept()}).size(), reply_bytes);
}

TEST(Protocol, longest_that_can_be_kept_is_the_longest_request) {
  ipc::KeptEntry most{.info = {.name = std::string(kMostKeptNameBytes, 'n')}, .record = {}, .leases = {}};
  most.info.description = std::string(kMostKeptDescriptionBytes, 'd');
  most.record.resize(kMostKeptRecordBytes);
  most.leases.resize(kMostKeptLeases);
  const Request request{.type = RequestType::keep, .kept = most};
  EXPECT_EQ(encode(request).size(), most_request_bytes);
  EXPECT_EQ(round_trip(request).kept.leases.size(), kMostKeptLeases);
}

TEST(Protocol, spoilt_entry_is_corrupt) {
  const std::string bytes = encode(Request{.type = RequestType::keep, .kept = sample_kept()});
  expect_corrupt_request(bytes + "x", "is too long");
  for (std::size_t cut = request_bytes; cut < bytes.size(); ++cut) {
    expect_corrupt_request(bytes.substr(0, cut), "is too short");
  }
  const std::array limits = {kMostKeptNameBytes, kMostKeptDescriptionBytes, kMostKeptRecordBytes, kMostKeptLeases};
  for (std::size_t field = 0; field < limits.size(); ++field) {
    const std::size_t at = request_bytes + 4 * field;
    expect_corrupt_request(spoilt(bytes, at, static_cast<std::uint32_t>(limits.at(field) + 1)), "beyond the limits");
    expect_corrupt_request(spoilt(bytes, at, ~0U), "beyond the limits");
  }
  expect_corrupt_request(spoilt(bytes, request_bytes + 40, '\n'), "control characters");
  expect_corrupt_request(spoilt(bytes, request_bytes + 48, '\x7f'), "control characters");
}

TEST(Protocol, request_comes_back_with_the_fields_of_its_type) {
  const ObjectHandle handle{.kind = ObjectKind::lock, .slab = 7, .offset = 4096, .generation = 99};
  for (const auto type : {RequestType::open, RequestType::close, RequestType::file}) {
    const Request request = round_trip(Request{.type = type, .sequence = 5, .handle = handle});
    EXPECT_EQ(request.type, type);
    EXPECT_EQ(request.sequence, 5U);
    EXPECT_EQ(request.handle, handle);
  }
  const Request create = round_trip(Request{
      .type = RequestType::create, .spec = {.kind = ObjectKind::event, .parameters = {1, 2, 3, 4, 5, ~0ULL}}});
  EXPECT_EQ(create.spec.kind, ObjectKind::event);
  EXPECT_EQ(create.spec.parameters, (std::array<std::uint64_t, 6>{1, 2, 3, 4, 5, ~0ULL}));
  const Request deposit = round_trip(Request{.type = RequestType::deposit, .number = 1ULL << 40U, .name = "weights"});
  EXPECT_EQ(deposit.number, 1ULL << 40U);
  EXPECT_EQ(deposit.name, "weights");
}

TEST(Protocol, reply_comes_back_whole) {
  Reply reply{.type = RequestType::open, .sequence = 8, .text = "a text", .remedy = "a remedy"};
  reply.owner = kMaxParticipants;
  reply.number = 3;
  reply.spec = {.kind = ObjectKind::barrier, .parameters = {4}};
  reply.handle = {.kind = ObjectKind::barrier, .slab = 1, .offset = 64, .generation = 2};
  reply.counts = {.objects = 1, .object_bytes = 2, .slabs = 3, .slab_bytes = 4, .idle_limit_s = 5};
  const Reply back = round_trip(reply);
  EXPECT_EQ(back.type, reply.type);
  EXPECT_EQ(back.sequence, 8U);
  EXPECT_FALSE(back.failure);
  EXPECT_EQ(back.text, "a text");
  EXPECT_EQ(back.remedy, "a remedy");
  EXPECT_EQ(back.owner, kMaxParticipants);
  EXPECT_EQ(back.number, 3U);
  EXPECT_EQ(back.spec.kind, ObjectKind::barrier);
  EXPECT_EQ(back.handle, reply.handle);
  EXPECT_EQ(back.counts.idle_limit_s, 5U);
}

TEST(Protocol, every_error_code_travels) {
  for (const Errc code : kAllErrc) {
    const Error error(code, "what failed", "what helps");
    const Reply back = round_trip(failure_reply({.type = RequestType::fetch, .sequence = 4}, error));
    EXPECT_EQ(back.failure, code);
    EXPECT_EQ(back.type, RequestType::fetch);
    EXPECT_EQ(back.sequence, 4U);
    EXPECT_EQ(back.text, "what failed");
    EXPECT_EQ(back.remedy, "what helps");
  }
}

TEST(Protocol, texts_that_are_too_long_are_cut_and_end) {
  EXPECT_EQ(round_trip(Request{.type = RequestType::join, .name = std::string(500, 'n')}).name,
            std::string(kMostNameBytes, 'n'));
  const Reply back = round_trip(Reply{.type = RequestType::join, .text = std::string(5000, 't')});
  EXPECT_EQ(back.text, std::string(511, 't'));
}

TEST(Protocol, every_type_has_a_name_and_some_have_no_reply) {
  EXPECT_STREQ(to_string(RequestType::hello), "hello");
  EXPECT_STREQ(to_string(RequestType::end), "end");
  EXPECT_STREQ(to_string(RequestType::file), "file");
  EXPECT_STREQ(to_string(kLastRequestType), "kept");
  EXPECT_STREQ(to_string(static_cast<RequestType>(999)), "unknown");
  EXPECT_TRUE(has_reply(RequestType::open));
  EXPECT_TRUE(has_reply(RequestType::file));
  EXPECT_FALSE(has_reply(RequestType::close));
}

TEST(Protocol, message_of_another_length_is_corrupt) {
  const std::string request = encode(Request{});
  const std::string reply = encode(Reply{});
  EXPECT_EQ(request.size(), request_bytes);
  EXPECT_EQ(reply.size(), reply_bytes);
  expect_corrupt_request("", "has 0 bytes");
  expect_corrupt_request(request.substr(1), "bytes where");
  expect_corrupt_request(request + "x", "bytes where");
  expect_corrupt_reply(reply.substr(1), "bytes where");
  expect_corrupt_reply(request, "bytes where");
}

TEST(Protocol, foreign_header_is_corrupt) {
  const std::string request = encode(Request{});
  expect_corrupt_request(spoilt(request, kMagicAt, std::uint32_t{0}), "does not begin as one");
  expect_corrupt_request(spoilt(request, kVersionAt, std::uint16_t{1}), "version 1");
  expect_corrupt_request(spoilt(request, kTypeAt, std::uint16_t{0}), "unknown type 0");
  expect_corrupt_request(spoilt(request, kTypeAt, std::uint16_t{19}), "unknown type 19");
  expect_corrupt_reply(spoilt(encode(Reply{}), kMagicAt, std::uint32_t{1}), "does not begin as one");
}

TEST(Protocol, impossible_fields_are_corrupt) {
  expect_corrupt_request(spoilt(encode(Request{.type = RequestType::create}), kSpecKindAt, std::uint64_t{0}),
                         "unknown kind of object 0");
  expect_corrupt_request(spoilt(encode(Request{.type = RequestType::create}), kSpecKindAt, std::uint64_t{0x10001}),
                         "unknown kind of object 65537");
  expect_corrupt_request(spoilt(encode(Request{.type = RequestType::open}), kRequestHandleKindAt, std::uint32_t{77}),
                         "unknown kind of object 77");
  expect_corrupt_request(spoilt(encode(Request{.type = RequestType::file}), kRequestHandleKindAt, std::uint32_t{78}),
                         "unknown kind of object 78");
  std::string endless = encode(Request{});
  std::fill(endless.begin() + kRequestNameAt, endless.end(), 'x');
  expect_corrupt_request(endless, "text without an end");
  expect_corrupt_request(encode(Request{.name = "\033[31mred"}), "control characters");
  expect_corrupt_reply(spoilt(encode(Reply{}), kFailureAt, std::uint32_t{kAllErrc.size() + 1}), "unknown error code");
  expect_corrupt_reply(spoilt(encode(Reply{}), kOwnerAt, std::uint32_t{kMaxParticipants + 1}),
                       "impossible participant");
  std::string reply = encode(Reply{});
  std::fill(reply.begin() + kReplyTextAt, reply.end(), 'x');
  expect_corrupt_reply(reply, "text without an end");
}

// What is not of its type is not looked at: a new field of one type cannot break another.
TEST(Protocol, fields_of_other_types_are_ignored) {
  const std::string join = spoilt(encode(Request{.name = "me"}), kSpecKindAt, std::uint64_t{0});
  EXPECT_EQ(parse_request(bytes_of(join)).name, "me");
}

// A fuzzer does this better; this keeps the promise where no fuzzer runs.
TEST(Protocol, random_damage_is_parsed_or_corrupt_and_nothing_else) {
  std::mt19937 random(1);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same damage every time
  const std::vector<std::string> requests = {encode(Request{.type = RequestType::create}),
                                             encode(Request{.type = RequestType::open, .name = "name"}),
                                             encode(Request{.type = RequestType::keep, .kept = sample_kept()})};
  const std::vector<std::string> replies = {encode(Reply{.type = RequestType::open}), encode(Reply{}),
                                            encode(Reply{.type = RequestType::recall, .kept = sample_kept()})};
  int parsed = 0;
  for (int round = 0; round < 20000; ++round) {
    const bool is_request = round % 2 == 0;
    std::string bytes = (is_request ? requests : replies).at(random() % 3);
    const int damages = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < damages; ++i) bytes.at(random() % bytes.size()) = static_cast<char>(random());
    try {
      if (is_request) {
        static_cast<void>(parse_request(bytes_of(bytes)));
      } else {
        static_cast<void>(parse_reply(bytes_of(bytes)));
      }
      ++parsed;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::corrupt) << error.what();
    }
  }
  EXPECT_GT(parsed, 0);
}

TEST(Protocol, display_names_are_short_and_harmless) {
  EXPECT_TRUE(is_display_name("trainer 3"));
  EXPECT_TRUE(is_display_name("Zuschauer für später"));
  EXPECT_TRUE(is_display_name(std::string(kMostNameBytes, 'x')));
  EXPECT_FALSE(is_display_name(""));
  EXPECT_FALSE(is_display_name(std::string(kMostNameBytes + 1, 'x')));
  EXPECT_FALSE(is_display_name("two\nlines"));
  EXPECT_FALSE(is_display_name("\x7f"));
}

}  // namespace
}  // namespace drover::session
