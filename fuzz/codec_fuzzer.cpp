// Arguments and results of tasks, and the messages that carry them: parsed, described and opened.
#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "drover/base/error.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/pool/codec.hpp"
#include "drover/tensor/memory.hpp"
#include "fuzz/fuzz_input.hpp"
#include "fuzz/spoiled_objects.hpp"
#include "pool/run/wire.hpp"

namespace {

using namespace drover;

struct Inner {
  std::optional<std::optional<std::int16_t>> maybe;
  std::array<float, 2> pair{};
};
struct Outer {
  std::string name;
  std::map<std::string, std::vector<Inner>> inner;
  std::vector<double> numbers;
  std::tuple<bool, std::uint64_t> tuple;
};

// A value that is written again parses to the same value.
template <class Type>
void read_both_ways(std::span<const std::byte> bytes) {
  try {
    Decoder from(bytes);
    Encoder once;
    Codec<Type>::write(once, Codec<Type>::read(from));
    Decoder again(std::as_bytes(std::span(once.bytes())));
    Encoder twice;
    Codec<Type>::write(twice, Codec<Type>::read(again));
    fuzz::check(again.is_done() && once.bytes() == twice.bytes());
  } catch (const Error& error) {
    fuzz::check(error.code() == Errc::corrupt);
  }
}

void describe(std::span<const std::byte> bytes, std::size_t most) {
  constexpr std::size_t kEnding = 3;
  fuzz::check(describe_values(bytes, {}, most).size() <= most + kEnding);
}

// A message as a worker parses it, without leases, so that any tensor is one too many.
void read_batch(std::span<const std::byte> bytes) {
  auto objects = std::make_shared<fuzz::SpoiledObjects>(Owner{1});
  Queue queue(objects, QueueOptions{.capacity = 2, .bytes = 16 * 1024});
  fuzz::check(queue.try_put(bytes) == PutResult::put);
  Message message;
  fuzz::check(queue.try_get(message) == GetResult::got);
  try {
    const Memory memory(objects);
    pool::WireReader reader(message);
    const auto batch = reader.header<pool::BatchHeader>();
    for (std::uint32_t i = 0; i < batch.count; ++i) {
      const auto task = reader.header<pool::TaskHeader>();
      const auto arguments = reader.bytes(task.bytes);
      fuzz::check(arguments.size() == task.bytes);
      describe(arguments, 100);
      fuzz::check(reader.tensors(task.tensors, memory).size() == task.tensors);
    }
  } catch (const Error& error) {
    fuzz::check(error.code() == Errc::corrupt);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto choice = input.take<std::uint8_t>();
  const auto bytes = input.rest();
  switch (choice % 6) {
    case 0: read_both_ways<Outer>(bytes); break;
    case 1: read_both_ways<std::vector<Inner>>(bytes); break;
    case 2: read_both_ways<std::map<std::int8_t, std::vector<std::string>>>(bytes); break;
    case 3: read_both_ways<std::tuple<float, std::vector<std::byte>, std::uint32_t>>(bytes); break;
    case 4: read_batch(bytes); break;
    default: describe(bytes, choice); break;
  }
  return 0;
}
