#include "drover/tensor/send.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/ipc/lease.hpp"
#include "tensor/memory/memory_state.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

constexpr std::uint32_t kRecordMagic = 0x534e'5444;  // "DTNS"
constexpr std::uint16_t kRecordVersion = 1;
constexpr std::size_t kMostPoints = 4;

// A tensor as it travels in a message. Has no padding.
struct Record {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint16_t points = 0;  // number of valid entries in `ready`
  TensorLayout layout;
  std::array<ipc::TimelinePoint, kMostPoints> ready;
  std::uint64_t unused = 0;
};
static_assert(sizeof(Record) == kTensorRecordBytes && std::has_unique_object_representations_v<Record>);

[[noreturn]] void throw_corrupt_record(const char* what) {
  throw Error(
      Errc::corrupt, fmt::format("the record of a tensor {}", what),
      "use the same version of drover in all processes of a session, and write to its queues only through drover");
}

Record parse(std::span<const std::byte> bytes, std::uint64_t memory_bytes) {
  if (bytes.size() != kTensorRecordBytes) throw_corrupt_record("has the wrong length");
  Record record;
  std::memcpy(&record, bytes.data(), sizeof(record));
  if (record.magic != kRecordMagic) throw_corrupt_record("has the wrong magic number");
  if (record.version != kRecordVersion) throw_corrupt_record("has an unknown version");
  if (!record.layout.is_valid()) throw_corrupt_record("has an invalid layout");
  if (record.layout.extent_bytes().end > memory_bytes) throw_corrupt_record("reaches outside its memory");
  if (record.points > kMostPoints) throw_corrupt_record("has too many points");
  return record;
}

bool is_tensor(const Message& message) {
  return message.leases().size() == 1 && message.bytes().size() == kTensorRecordBytes;
}

Tensor unpack_message(const Memory& memory, Message& message) {
  if (!is_tensor(message)) {
    throw Error(Errc::invalid_argument,
                fmt::format("expected a tensor, got a message of {} bytes with {} leases", message.bytes().size(),
                            message.leases().size()),
                "send only tensors there, or receive with Queue::get");
  }
  auto leases = message.take_leases();
  return unpack(memory, message.bytes(), std::move(leases.front()));
}

// Closes the tensor only if it was put.
template <class Put>
PutResult put_and_close(Tensor& tensor, const Put& put) {
  const PutResult result = put(tensor);
  if (result == PutResult::put) tensor = Tensor();
  return result;
}

}  // namespace

PackedTensor pack(const Tensor& tensor) {
  tensor::TensorStorage& storage = *tensor::TensorAccess::storage(tensor);
  const auto points = storage.points(kMostPoints);
  Record record{.magic = kRecordMagic,
                .version = kRecordVersion,
                .points = static_cast<std::uint16_t>(points.size()),
                .layout = tensor.layout(),
                .ready = {},
                .unused = 0};
  std::ranges::copy(points, record.ready.begin());
  return {.record = std::bit_cast<std::array<std::byte, kTensorRecordBytes>>(record),
          .lease = storage.block().share()};
}

Tensor unpack(const Memory& memory, std::span<const std::byte> record, Lease&& lease) {
  require(lease.is_open(), "cannot unpack a tensor with an empty lease", "unpack each lease once");
  const Record parsed = parse(record, lease.bytes());
  std::vector<ipc::TimelinePoint> points(parsed.ready.begin(), parsed.ready.begin() + parsed.points);
  tensor::TensorStorage::check(memory, lease, points);
  auto storage = std::make_shared<tensor::TensorStorage>(memory, std::move(lease), std::move(points));
  return tensor::TensorAccess::make(std::move(storage), parsed.layout);
}

PutResult put(Queue& queue, const Tensor& tensor, Deadline deadline) {
  PackedTensor packed = pack(tensor);
  return queue.put(packed.record, std::span(&packed.lease, 1), deadline);
}

// NOLINTNEXTLINE(cppcoreguidelines-rvalue-reference-param-not-moved): it is moved only if it was put
PutResult put(Queue& queue, Tensor&& tensor, Deadline deadline) {
  return put_and_close(tensor, [&](const Tensor& sent) { return put(queue, sent, deadline); });
}

GetResult get(Queue& queue, const Memory& memory, Tensor& into, Deadline deadline) {
  Message message;
  const GetResult result = queue.get(message, deadline);
  if (result == GetResult::got) into = unpack_message(memory, message);
  return result;
}

PutResult send(Pipe& pipe, const Tensor& tensor, Deadline deadline) {
  PackedTensor packed = pack(tensor);
  return pipe.send(packed.record, std::span(&packed.lease, 1), deadline);
}

// NOLINTNEXTLINE(cppcoreguidelines-rvalue-reference-param-not-moved): it is moved only if it was put
PutResult send(Pipe& pipe, Tensor&& tensor, Deadline deadline) {
  return put_and_close(tensor, [&](const Tensor& sent) { return send(pipe, sent, deadline); });
}

GetResult receive(Pipe& pipe, const Memory& memory, Tensor& into, Deadline deadline) {
  Message message;
  const GetResult result = pipe.receive(message, deadline);
  if (result == GetResult::got) into = unpack_message(memory, message);
  return result;
}

// Waits: the owner of a pending timeline could be gone when the tensor is recalled.
void keep(std::string_view name, const Tensor& tensor) {
  if (tensor::TensorAccess::storage(tensor)->dies_with_its_process()) {
    throw Error(
        Errc::unsupported,
        fmt::format("'{}' cannot be kept: its memory belongs to another library and dies with its process", name),
        "keep tensor.copy()");
  }
  tensor.synchronize();
  PackedTensor packed = pack(tensor);
  const auto description = fmt::format("{} at {}", to_string(tensor.layout()), to_string(tensor.place()));
  tensor::TensorAccess::membership(tensor.memory())
      .keep(name, packed.record, description.substr(0, kMostKeptDescriptionBytes), std::span(&packed.lease, 1));
}

Tensor recall(const Memory& memory, std::string_view name) {
  Recalled recalled = tensor::TensorAccess::membership(memory).recall(name);
  if (recalled.leases.size() != 1 || recalled.record.size() != kTensorRecordBytes) {
    throw Error(Errc::invalid_argument, fmt::format("the object kept under '{}' is not a tensor", name),
                "recall it with Membership::recall, or drop it");
  }
  return unpack(memory, recalled.record, std::move(recalled.leases.front()));
}

}  // namespace drover
