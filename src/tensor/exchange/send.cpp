#include "drover/tensor/send.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <unordered_map>
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

constexpr std::uint32_t kManyMagic = 0x4e4e'5444;  // "DTNN"

// The beginning of a record of many tensors; `blocks` BlockRecords and `tensors` ViewRecords follow.
struct ManyHead {
  std::uint32_t magic = kManyMagic;
  std::uint16_t version = kRecordVersion;
  std::uint16_t unused = 0;
  std::uint32_t blocks = 0;
  std::uint32_t tensors = 0;
};

// When the contents of a block are ready.
struct BlockRecord {
  std::uint64_t points = 0;  // number of valid entries in `ready`
  std::array<ipc::TimelinePoint, kMostPoints> ready;
};

// A tensor in one of the blocks.
struct ViewRecord {
  std::uint64_t block = 0;  // its index
  TensorLayout layout;
};
static_assert(std::has_unique_object_representations_v<ManyHead> &&
              std::has_unique_object_representations_v<BlockRecord> &&
              std::has_unique_object_representations_v<ViewRecord>);

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

template <class Part>
void append(std::vector<std::byte>& to, const Part& part) {
  const auto bytes = std::as_bytes(std::span(&part, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// Reads the parts of a record one after the other. Requires: the length was checked.
class Parts {
 public:
  explicit Parts(std::span<const std::byte> record) : rest_(record) {}
  template <class Part>
  Part next() {
    Part part;
    std::memcpy(&part, rest_.data(), sizeof(part));
    rest_ = rest_.subspan(sizeof(part));
    return part;
  }

 private:
  std::span<const std::byte> rest_;
};

ManyHead parse_head(std::span<const std::byte> record, std::size_t leases) {
  if (record.size() < sizeof(ManyHead)) throw_corrupt_record("has the wrong length");
  const auto head = Parts(record).next<ManyHead>();
  if (head.magic != kManyMagic) throw_corrupt_record("has the wrong magic number");
  if (head.version != kRecordVersion) throw_corrupt_record("has an unknown version");
  const std::uint64_t bytes =
      sizeof(ManyHead) + head.blocks * sizeof(BlockRecord) + head.tensors * sizeof(ViewRecord);
  if (record.size() != bytes) throw_corrupt_record("has the wrong length");
  if (leases != head.blocks) throw_corrupt_record("has another number of blocks than its message has leases");
  return head;
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

PackedTensors pack_all(std::span<const Tensor> tensors) {
  PackedTensors packed;
  std::unordered_map<const tensor::TensorStorage*, std::uint64_t> indices;
  std::vector<tensor::TensorStorage*> storages;
  std::vector<ViewRecord> views;
  views.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    tensor::TensorStorage* const storage = tensor::TensorAccess::storage(tensor).get();
    const auto [at, is_new] = indices.try_emplace(storage, storages.size());
    if (is_new) storages.push_back(storage);
    views.push_back({.block = at->second, .layout = tensor.layout()});
  }
  packed.record.reserve(sizeof(ManyHead) + storages.size() * sizeof(BlockRecord) + views.size() * sizeof(ViewRecord));
  packed.leases.reserve(storages.size());
  append(packed.record, ManyHead{.blocks = static_cast<std::uint32_t>(storages.size()),
                                 .tensors = static_cast<std::uint32_t>(views.size())});
  for (tensor::TensorStorage* const storage : storages) {
    const auto points = storage->points(kMostPoints);
    BlockRecord block{.points = points.size(), .ready = {}};
    std::ranges::copy(points, block.ready.begin());
    append(packed.record, block);
    packed.leases.push_back(storage->block().share());
  }
  const auto bytes = std::as_bytes(std::span(views));
  packed.record.insert(packed.record.end(), bytes.begin(), bytes.end());
  return packed;
}

std::vector<Tensor> unpack_all(const Memory& memory, std::span<const std::byte> record, std::span<Lease> leases) {
  const ManyHead head = parse_head(record, leases.size());
  Parts parts(record.subspan(sizeof(ManyHead)));
  std::vector<std::vector<ipc::TimelinePoint>> ready;
  std::vector<std::uint64_t> sizes;
  for (const Lease& lease : leases) {
    require(lease.is_open(), "cannot unpack tensors with an empty lease", "unpack each lease once");
    const auto block = parts.next<BlockRecord>();
    if (block.points > kMostPoints) throw_corrupt_record("has too many points");
    const auto begin = block.ready.begin();
    ready.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(block.points));
    tensor::TensorStorage::check(memory, lease, ready.back());
    sizes.push_back(lease.bytes());
  }
  std::vector<ViewRecord> views(head.tensors);
  for (ViewRecord& view : views) {
    view = parts.next<ViewRecord>();
    if (view.block >= leases.size()) throw_corrupt_record("names a block that it does not have");
    if (!view.layout.is_valid()) throw_corrupt_record("has an invalid layout");
    if (view.layout.extent_bytes().end > sizes[view.block]) throw_corrupt_record("reaches outside its memory");
  }
  std::vector<std::shared_ptr<tensor::TensorStorage>> storages;
  storages.reserve(leases.size());
  for (std::size_t i = 0; i < leases.size(); ++i) {
    storages.push_back(std::make_shared<tensor::TensorStorage>(memory, std::move(leases[i]), std::move(ready[i])));
  }
  std::vector<Tensor> tensors;
  tensors.reserve(views.size());
  for (const ViewRecord& view : views) {
    tensors.push_back(tensor::TensorAccess::make(storages[view.block], view.layout));
  }
  return tensors;
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
