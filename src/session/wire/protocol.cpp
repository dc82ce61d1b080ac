#include "session/wire/protocol.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include "session/wire/kept_wire.hpp"

namespace drover::session {
namespace {

constexpr std::array kTypeNames = {"hello",   "join",  "create",   "open",   "close",    "invite",
                                   "deposit", "fetch", "withdraw", "list",   "describe", "leave",
                                   "end",     "file",  "keep",     "recall", "drop",     "kept"};
static_assert(kTypeNames.size() == static_cast<std::size_t>(kLastRequestType));

struct WireHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t type;
  std::uint64_t sequence;
};

struct WireSpec {
  std::uint64_t kind;
  std::array<std::uint64_t, 6> parameters;
};

struct WireHandle {
  std::uint32_t kind;
  std::uint32_t slab;
  std::uint64_t offset;
  std::uint64_t generation;
};

struct WireRequest {
  WireHeader header;
  WireSpec spec;
  WireHandle handle;
  std::uint64_t number;
  std::array<char, kMostNameBytes + 1> name;
};

struct WireReply {
  WireHeader header;
  std::uint32_t failure;  // 0, or 1 + index of the code in kAllErrc
  std::uint32_t owner;
  std::uint64_t number;
  WireSpec spec;
  WireHandle handle;
  std::array<std::uint64_t, 5> counts;
  std::array<char, 512> text;
  std::array<char, 256> remedy;
};

// No padding, which would leak memory contents.
static_assert(std::has_unique_object_representations_v<WireRequest> && sizeof(WireRequest) == 168);
static_assert(std::has_unique_object_representations_v<WireReply> && sizeof(WireReply) == 920);

[[noreturn]] void throw_corrupt(const std::string& what) {
  throw Error(Errc::corrupt, "a control message of a session " + what,
              "let all processes of a session use the same drover");
}

[[noreturn]] void throw_wrong_length(std::size_t found, std::size_t expected) {
  throw_corrupt(fmt::format("has {} bytes where {} are expected", found, expected));
}

// The fixed part.
template <class Wire>
Wire read_wire(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Wire)) throw_wrong_length(bytes.size(), sizeof(Wire));
  Wire wire{};
  std::memcpy(&wire, bytes.data(), sizeof(wire));
  return wire;
}

RequestType read_type(const WireHeader& header) {
  if (header.magic != kProtocolMagic) throw_corrupt("does not begin as one");
  if (header.version != kProtocolVersion) {
    throw_corrupt(fmt::format("has version {}; this drover speaks version {}", header.version, kProtocolVersion));
  }
  if (header.type < 1 || header.type > kTypeNames.size()) {
    throw_corrupt(fmt::format("has the unknown type {}", header.type));
  }
  return static_cast<RequestType>(header.type);
}

ObjectKind read_kind(std::uint64_t number) {
  const auto kind = static_cast<ObjectKind>(number);
  if (number > 0xffff || to_string(kind) == "unknown object") {
    throw_corrupt(fmt::format("names the unknown kind of object {}", number));
  }
  return kind;
}

ObjectSpec read_spec(const WireSpec& wire) { return {.kind = read_kind(wire.kind), .parameters = wire.parameters}; }

ObjectHandle read_handle(const WireHandle& wire) {
  return {.kind = read_kind(wire.kind), .slab = wire.slab, .offset = wire.offset, .generation = wire.generation};
}

WireSpec write_spec(const ObjectSpec& spec) {
  return {.kind = static_cast<std::uint64_t>(spec.kind), .parameters = spec.parameters};
}

WireHandle write_handle(const ObjectHandle& handle) {
  return {.kind = static_cast<std::uint32_t>(handle.kind),
          .slab = handle.slab,
          .offset = handle.offset,
          .generation = handle.generation};
}

template <std::size_t Size>
std::string read_text(const std::array<char, Size>& text) {
  const auto end = std::find(text.begin(), text.end(), '\0');
  if (end == text.end()) throw_corrupt("has a text without an end");
  return {text.begin(), end};
}

template <std::size_t Size>
void write_text(std::array<char, Size>& into, const std::string& text) {
  std::copy_n(text.begin(), std::min(text.size(), Size - 1), into.begin());
}

template <class Wire>
std::string as_bytes(const Wire& wire) {
  return {reinterpret_cast<const char*>(&wire), sizeof(wire)};
}

WireHeader write_header(RequestType type, std::uint64_t sequence) {
  return {.magic = kProtocolMagic,
          .version = kProtocolVersion,
          .type = static_cast<std::uint16_t>(type),
          .sequence = sequence};
}

bool names_object(RequestType type) {
  return type == RequestType::open || type == RequestType::close || type == RequestType::file;
}

bool carries_object(RequestType type) { return type == RequestType::create || type == RequestType::open; }

bool asks_about_kept(RequestType type) { return type >= RequestType::keep; }

bool answers_with_kept(const Reply& reply) {
  return !reply.failure && (reply.type == RequestType::recall || reply.type == RequestType::kept);
}

// The variable part.
template <class Wire>
ipc::KeptEntry read_kept(std::span<const std::byte> bytes, bool has_kept) {
  if (has_kept) return parse_kept(bytes.subspan(sizeof(Wire)));
  if (bytes.size() != sizeof(Wire)) throw_wrong_length(bytes.size(), sizeof(Wire));
  return {};
}

std::optional<Errc> read_failure(std::uint32_t number) {
  if (number == 0) return std::nullopt;
  if (number > kAllErrc.size()) throw_corrupt(fmt::format("has the unknown error code {}", number));
  return kAllErrc.at(number - 1);
}

std::uint32_t write_failure(const std::optional<Errc>& failure) {
  if (!failure) return 0;
  return static_cast<std::uint32_t>(std::ranges::find(kAllErrc, *failure) - kAllErrc.begin()) + 1;
}

}  // namespace

const std::size_t request_bytes = sizeof(WireRequest);
const std::size_t reply_bytes = sizeof(WireReply);
const std::size_t most_request_bytes = sizeof(WireRequest) + kMostKeptBytes;

bool has_reply(RequestType type) noexcept { return type != RequestType::close; }

const char* to_string(RequestType type) noexcept {
  const auto place = static_cast<std::size_t>(type) - 1;
  return place < kTypeNames.size() ? kTypeNames[place] : "unknown";
}

std::string encode(const Request& request) {
  WireRequest wire{};
  wire.header = write_header(request.type, request.sequence);
  if (request.type == RequestType::create) wire.spec = write_spec(request.spec);
  if (names_object(request.type)) wire.handle = write_handle(request.handle);
  wire.number = request.number;
  write_text(wire.name, request.name);
  return as_bytes(wire) + (asks_about_kept(request.type) ? encode_kept(request.kept) : "");
}

Request parse_request(std::span<const std::byte> bytes) {
  const auto wire = read_wire<WireRequest>(bytes);
  Request request{.type = read_type(wire.header), .sequence = wire.header.sequence, .spec = {}, .handle = {}};
  if (request.type == RequestType::create) request.spec = read_spec(wire.spec);
  if (names_object(request.type)) request.handle = read_handle(wire.handle);
  request.number = wire.number;
  request.name = read_text(wire.name);
  if (!ipc::is_printable(request.name)) throw_corrupt("has control characters in a name");
  request.kept = read_kept<WireRequest>(bytes, asks_about_kept(request.type));
  return request;
}

std::string encode(const Reply& reply) {
  WireReply wire{};
  wire.header = write_header(reply.type, reply.sequence);
  wire.failure = write_failure(reply.failure);
  wire.owner = reply.owner;
  wire.number = reply.number;
  if (carries_object(reply.type) && !reply.failure) {
    wire.spec = write_spec(reply.spec);
    wire.handle = write_handle(reply.handle);
  }
  const SessionCounts& counts = reply.counts;
  wire.counts = {counts.objects, counts.object_bytes, counts.slabs, counts.slab_bytes, counts.idle_limit_s};
  write_text(wire.text, reply.text);
  write_text(wire.remedy, reply.remedy);
  return as_bytes(wire) + (answers_with_kept(reply) ? encode_kept(reply.kept) : "");
}

Reply parse_reply(std::span<const std::byte> bytes) {
  const auto wire = read_wire<WireReply>(bytes);
  Reply reply{.type = read_type(wire.header), .sequence = wire.header.sequence};
  reply.failure = read_failure(wire.failure);
  if (wire.owner > kMaxParticipants) throw_corrupt(fmt::format("has the impossible participant {}", wire.owner));
  reply.owner = static_cast<Owner>(wire.owner);
  reply.number = wire.number;
  if (carries_object(reply.type) && !reply.failure) {
    reply.spec = read_spec(wire.spec);
    reply.handle = read_handle(wire.handle);
  }
  reply.counts = {.objects = wire.counts[0],
                  .object_bytes = wire.counts[1],
                  .slabs = wire.counts[2],
                  .slab_bytes = wire.counts[3],
                  .idle_limit_s = wire.counts[4]};
  reply.text = read_text(wire.text);
  reply.remedy = read_text(wire.remedy);
  reply.kept = read_kept<WireReply>(bytes, answers_with_kept(reply));
  return reply;
}

Reply failure_reply(const Request& request, const Error& error) {
  return {.type = request.type,
          .sequence = request.sequence,
          .failure = error.code(),
          .text = error.message(),
          .remedy = error.remedy(),
          .kept = {}};
}

bool is_display_name(const std::string& text) noexcept {
  return !text.empty() && text.size() <= kMostNameBytes && ipc::is_printable(text);
}

}  // namespace drover::session
