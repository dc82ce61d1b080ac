// Control messages between the keeper and participants or visitors, in both directions.
#include "drover/base/error.hpp"
#include "fuzz/fuzz_input.hpp"
#include "session/wire/protocol.hpp"

namespace {

using namespace drover;

// A message that is written again parses to the same message.
template <class Parse>
void read_both_ways(std::span<const std::byte> bytes, Parse parse) {
  try {
    const std::string once = encode(parse(bytes));
    const std::string twice = encode(parse(std::as_bytes(std::span(once))));
    fuzz::check(once == twice);
  } catch (const Error& error) {
    fuzz::check(error.code() == Errc::corrupt);
  }
}

// With the right length and a valid prefix, the parser gets further.
std::string dressed(std::span<const std::byte> bytes, const std::string& model) {
  std::string text = model;
  constexpr std::size_t kKept = 8;  // magic, version and type
  for (std::size_t i = 0; i < bytes.size() && kKept + i < text.size(); ++i) {
    text[kKept + i] = static_cast<char>(bytes[i]);
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto shape = input.take<std::uint8_t>();
  if (shape < 64) {
    read_both_ways(input.rest(), session::parse_request);
    read_both_ways(input.rest(), session::parse_reply);
    return 0;
  }
  const auto type = static_cast<session::RequestType>(1 + shape % static_cast<int>(session::kLastRequestType));
  const ipc::KeptEntry kept{
      .info = {.name = "n", .description = "d"}, .record = {std::byte{1}}, .leases = {ipc::SentLease{}}};
  if (shape % 2 == 0) {
    const std::string text = dressed(input.rest(), encode(session::Request{.type = type, .kept = kept}));
    read_both_ways(std::as_bytes(std::span(text)), session::parse_request);
  } else {
    const std::string text = dressed(input.rest(), encode(session::Reply{.type = type, .kept = kept}));
    read_both_ways(std::as_bytes(std::span(text)), session::parse_reply);
  }
  return 0;
}
