#include "drover/tensor/send.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
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
constexpr std::uint16_t kRecordVersion = 2;
constexpr std::size_t kMostPoints = 4;

// The beginning of a record; `blocks` BlockRecords and `tensors` ViewRecords follow. No part has padding.
struct RecordHead {
  std::uint32_t magic = kRecordMagic;
  std::uint16_t version = kRecordVersion;
  std::uint16_t unused = 0;
  std::uint32_t blocks = 0;
  std::uint32_t tensors = 0;
};

// When the contents of a block are ready.
struct BlockRecord {
  std::uint64_t points = 0;  // number of valid entries in `ready`
  std::array<ipc::TimelinePoint, kMostPoints> ready;

  friend bool operator==(const BlockRecord&, const BlockRecord&) = default;
};

// A tensor in one of the blocks.
struct ViewRecord {
  std::uint64_t block = 0;  // its index
  TensorLayout layout;
};
static_assert(std::has_unique_object_representations_v<RecordHead> &&
              std::has_unique_object_representations_v<BlockRecord> &&
              std::has_unique_object_representations_v<ViewRecord>);

constexpr std::uint64_t record_bytes(std::uint64_t blocks, std::uint64_t tensors) noexcept {
  return sizeof(RecordHead) + blocks * sizeof(BlockRecord) + tensors * sizeof(ViewRecord);
}

template <class Part>
void append(std::vector<std::byte>& to, const Part& part) {
  const auto bytes = std::as_bytes(std::span(&part, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

[[noreturn]] void throw_corrupt_record(const char* what) {
  throw Error(
      Errc::corrupt, fmt::format("the record of a tensor {}", what),
      "use the same version of drover in all processes of a session, and write to its queues only through drover");
}

// A record, checked as a whole before the first of its leases is taken.
class CheckedRecord {
 public:
  CheckedRecord(std::span<const std::byte> record, std::span<const Lease> leases) : record_(record) {
    if (record.size() < sizeof(RecordHead)) throw_corrupt_record("has the wrong length");
    head_ = at<RecordHead>(0);
    if (head_.magic != kRecordMagic) throw_corrupt_record("has the wrong magic number");
    if (head_.version != kRecordVersion) throw_corrupt_record("has an unknown version");
    if (record.size() != record_bytes(head_.blocks, head_.tensors)) throw_corrupt_record("has the wrong length");
    if (leases.size() != head_.blocks)
      throw_corrupt_record("has another number of blocks than its message has leases");
    for (std::size_t i = 0; i < leases.size(); ++i) {
      require(leases[i].is_open(), "cannot unpack a tensor with an empty lease", "unpack each lease once");
      if (block(i).points > kMostPoints) throw_corrupt_record("has too many points");
    }
    for (std::size_t i = 0; i < tensors(); ++i) {
      const ViewRecord tensor = view(i);
      if (tensor.block >= leases.size()) throw_corrupt_record("names a block that it has not");
      if (!tensor.layout.is_valid()) throw_corrupt_record("has an invalid layout");
      if (tensor.layout.extent_bytes().end > leases[tensor.block].bytes())
        throw_corrupt_record("reaches outside its memory");
    }
  }

  [[nodiscard]] BlockRecord block(std::size_t index) const { return at<BlockRecord>(record_bytes(index, 0)); }
  [[nodiscard]] std::size_t tensors() const noexcept { return head_.tensors; }
  [[nodiscard]] ViewRecord view(std::size_t tensor) const {
    return at<ViewRecord>(record_bytes(head_.blocks, tensor));
  }

 private:
  template <class Part>
  [[nodiscard]] Part at(std::size_t offset) const {
    Part part;
    std::memcpy(&part, record_.data() + offset, sizeof(part));
    return part;
  }

  std::span<const std::byte> record_;
  RecordHead head_;
};

// What each block waits for. Most blocks of a message wait for the same points, which are checked once.
std::vector<std::vector<ipc::TimelinePoint>> pending_points(const Memory& memory, const CheckedRecord& record,
                                                            std::size_t blocks) {
  std::vector<std::vector<ipc::TimelinePoint>> all(blocks);
  BlockRecord before;
  for (std::size_t i = 0; i < blocks; ++i) {
    const BlockRecord block = record.block(i);
    all[i] = i > 0 && block == before
                 ? all[i - 1]
                 : tensor::TensorStorage::pending(memory, std::span(block.ready).first(block.points));
    before = block;
  }
  return all;
}

bool is_tensor(std::size_t leases, std::span<const std::byte> record) noexcept {
  return leases == 1 && record.size() == record_bytes(1, 1);
}

Tensor unpack_message(const Memory& memory, Message& message) {
  if (!is_tensor(message.leases().size(), message.bytes())) {
    throw Error(Errc::invalid_argument,
                fmt::format("expected a tensor, got a message of {} bytes with {} leases", message.bytes().size(),
                            message.leases().size()),
                "send only tensors there, or receive with Queue::get");
  }
  auto leases = message.take_leases();
  return std::move(unpack_all(memory, message.bytes(), leases).front());
}

// What is kept under a name. A record of several tensors may be too large for an entry, so it lies in a block of its
// own, the index: the first of several leases, which the entry's record describes.
struct KeptTensors {
  PackedTensors packed;
  std::string description;
};

std::string describe_place(const Tensor& tensor) {
  return fmt::format("{} at {}", to_string(tensor.layout()), to_string(tensor.place()));
}

KeptTensors pack_one(const Tensor& tensor) {
  return {.packed = pack_all({&tensor, 1}), .description = describe_place(tensor)};
}

KeptTensors pack_with_index(std::string_view name, const Memory& memory, std::span<const Tensor> tensors) {
  PackedTensors all = pack_all(tensors);
  if (all.leases.size() >= kMostKeptLeases) {
    throw Error(Errc::limit_reached,
                fmt::format("cannot keep {} tensors in {} blocks under '{}': the limit is {} blocks", tensors.size(),
                            all.leases.size(), name, kMostKeptLeases - 1),
                "keep them under several names");
  }
  const Tensor index = from_values<std::uint8_t>(
      memory, {reinterpret_cast<const std::uint8_t*>(all.record.data()), all.record.size()});
  KeptTensors kept{.packed = pack_all({&index, 1}), .description = {}};
  std::ranges::move(all.leases, std::back_inserter(kept.packed.leases));
  kept.description = fmt::format("{} tensors, first {}", tensors.size(), describe_place(tensors.front()));
  return kept;
}

void require_outlives_its_process(std::string_view name, const Tensor& tensor) {
  if (!tensor::TensorAccess::storage(tensor)->dies_with_its_process()) return;
  throw Error(
      Errc::unsupported,
      fmt::format("'{}' cannot be kept: its memory belongs to another library and dies with its process", name),
      "keep tensor.copy()");
}

// Closes the tensor only if it was put.
template <class Put>
PutResult put_and_close(Tensor& tensor, const Put& put) {
  const PutResult result = put(tensor);
  if (result == PutResult::put) tensor = Tensor();
  return result;
}

}  // namespace

PackedTensors pack_all(std::span<const Tensor> tensors) {
  PackedTensors packed;
  std::unordered_map<const tensor::TensorStorage*, std::uint64_t> indices(tensors.size());
  std::vector<tensor::TensorStorage*> storages;
  std::vector<ViewRecord> views;
  views.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    tensor::TensorStorage* const storage = tensor::TensorAccess::storage(tensor).get();
    const auto [at, is_new] = indices.try_emplace(storage, storages.size());
    if (is_new) storages.push_back(storage);
    views.push_back({.block = at->second, .layout = tensor.layout()});
  }
  packed.record.reserve(record_bytes(storages.size(), views.size()));
  packed.leases.reserve(storages.size());
  append(packed.record, RecordHead{.blocks = static_cast<std::uint32_t>(storages.size()),
                                   .tensors = static_cast<std::uint32_t>(views.size())});
  tensor::KnownPoints known;
  for (tensor::TensorStorage* const storage : storages) {
    const auto points = storage->points(kMostPoints, known);
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
  const CheckedRecord checked(record, leases);
  tensor::TensorAccess::release_retired(memory);
  for (const Lease& lease : leases) {
    require(ipc::OpenLedger::is_of(lease, tensor::TensorAccess::membership(memory)),
            "cannot unpack a tensor of another session",
            "unpack it with a Memory of the session whose queue it came from");
  }
  auto origins = pending_points(memory, checked, leases.size());
  std::vector<std::shared_ptr<tensor::TensorStorage>> storages;
  storages.reserve(leases.size());
  for (std::size_t i = 0; i < leases.size(); ++i) {
    storages.push_back(std::make_shared<tensor::TensorStorage>(memory, std::move(leases[i]), std::move(origins[i])));
  }
  std::vector<Tensor> tensors;
  tensors.reserve(checked.tensors());
  for (std::size_t i = 0; i < checked.tensors(); ++i) {
    const ViewRecord view = checked.view(i);
    tensors.push_back(tensor::TensorAccess::make(storages[view.block], view.layout));
  }
  return tensors;
}

PutResult put(Queue& queue, const Tensor& tensor, Deadline deadline) {
  PackedTensors packed = pack_all({&tensor, 1});
  return queue.put(packed.record, packed.leases, deadline);
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
  PackedTensors packed = pack_all({&tensor, 1});
  return pipe.send(packed.record, packed.leases, deadline);
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

void keep(std::string_view name, const Tensor& tensor) { keep_all(name, {&tensor, 1}); }

// Waits: the owners of pending timelines could be gone when the tensors are recalled.
void keep_all(std::string_view name, std::span<const Tensor> tensors) {
  require(!tensors.empty(), "there is no tensor to keep", "keep one or more");
  for (const Tensor& tensor : tensors) {
    require_outlives_its_process(name, tensor);
    tensor.synchronize();
  }
  const Memory memory = tensors.front().memory();
  KeptTensors kept = tensors.size() == 1 ? pack_one(tensors.front()) : pack_with_index(name, memory, tensors);
  tensor::TensorAccess::membership(memory).keep(
      name, kept.packed.record, kept.description.substr(0, kMostKeptDescriptionBytes), kept.packed.leases);
}

Tensor recall(const Memory& memory, std::string_view name) {
  Recalled recalled = tensor::TensorAccess::membership(memory).recall(name);
  if (!is_tensor(recalled.leases.size(), recalled.record)) {
    throw Error(Errc::invalid_argument, fmt::format("the object kept under '{}' is not a tensor", name),
                "recall it with recall_all or Membership::recall, or drop it");
  }
  return std::move(unpack_all(memory, recalled.record, recalled.leases).front());
}

std::vector<Tensor> recall_all(const Memory& memory, std::string_view name) {
  Recalled recalled = tensor::TensorAccess::membership(memory).recall(name);
  if (recalled.leases.empty() || recalled.record.size() != record_bytes(1, 1)) {
    throw Error(Errc::invalid_argument, fmt::format("the object kept under '{}' is not made of tensors", name),
                "recall it with Membership::recall, or drop it");
  }
  const std::span leases(recalled.leases);
  auto first = unpack_all(memory, recalled.record, leases.first(1));
  if (leases.size() == 1) return first;
  const auto index = first.front().element_bytes();
  const std::vector<std::byte> record(index.begin(),
                                      index.end());  // which nobody changes while it is checked and used
  return unpack_all(memory, record, leases.subspan(1));
}

}  // namespace drover
