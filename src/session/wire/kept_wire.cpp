#include "session/wire/kept_wire.hpp"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "drover/base/error.hpp"

namespace drover::session {
namespace {

// Name, description, record and leases follow, in this order.
struct WireKept {
  std::uint32_t name_bytes;
  std::uint32_t description_bytes;
  std::uint32_t record_bytes;
  std::uint32_t leases;
  std::uint64_t info_bytes;
  std::uint64_t info_leases;
  std::int64_t since;
};

struct WireLease {
  std::uint64_t generation;
  std::uint64_t offset;
  std::uint32_t slab;
  std::uint32_t index;
  std::uint64_t lease_generation;
};

// No padding, which would leak memory contents.
static_assert(std::has_unique_object_representations_v<WireKept> && sizeof(WireKept) == 40);
static_assert(std::has_unique_object_representations_v<WireLease> && sizeof(WireLease) == 32);

[[noreturn]] void throw_corrupt(const char* what) {
  throw Error(Errc::corrupt, std::string("a control message about a kept entry ") + what,
              "let all processes of a session use the same drover");
}

template <class Wire>
void append(std::string& bytes, const Wire& wire) {
  bytes.append(reinterpret_cast<const char*>(&wire), sizeof(wire));
}

WireLease write_lease(const ipc::SentLease& sent) {
  return {.generation = sent.slab.generation,
          .offset = sent.slab.offset,
          .slab = sent.slab.slab,
          .index = sent.lease.index,
          .lease_generation = sent.lease.generation};
}

// Consumes bytes from the front.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}

  std::span<const std::byte> take(std::size_t size) {
    if (size > rest_.size()) throw_corrupt("is too short");
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  template <class Wire>
  Wire take() {
    Wire wire{};
    std::memcpy(&wire, take(sizeof(wire)).data(), sizeof(wire));
    return wire;
  }
  std::string take_text(std::size_t size) {
    const auto bytes = take(size);
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!ipc::is_printable(text)) throw_corrupt("has control characters");
    return text;
  }
  ipc::SentLease take_lease() {
    const auto wire = take<WireLease>();
    return {
        .slab = {.kind = ObjectKind::slab, .slab = wire.slab, .offset = wire.offset, .generation = wire.generation},
        .lease = {.index = wire.index, .generation = static_cast<std::uint32_t>(wire.lease_generation)}};
  }
  [[nodiscard]] bool is_empty() const noexcept { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace

std::string encode_kept(const ipc::KeptEntry& entry) {
  std::string bytes;
  append(bytes, WireKept{.name_bytes = static_cast<std::uint32_t>(entry.info.name.size()),
                         .description_bytes = static_cast<std::uint32_t>(entry.info.description.size()),
                         .record_bytes = static_cast<std::uint32_t>(entry.record.size()),
                         .leases = static_cast<std::uint32_t>(entry.leases.size()),
                         .info_bytes = entry.info.bytes,
                         .info_leases = entry.info.leases,
                         .since = entry.info.since.time_since_epoch().count()});
  bytes += entry.info.name;
  bytes += entry.info.description;
  bytes.append(reinterpret_cast<const char*>(entry.record.data()), entry.record.size());
  for (const ipc::SentLease& lease : entry.leases) append(bytes, write_lease(lease));
  return bytes;
}

ipc::KeptEntry parse_kept(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  const auto head = reader.take<WireKept>();
  if (head.name_bytes > kMostKeptNameBytes || head.description_bytes > kMostKeptDescriptionBytes ||
      head.record_bytes > kMostKeptRecordBytes || head.leases > kMostKeptLeases) {
    throw_corrupt("is beyond the limits");
  }
  ipc::KeptEntry entry;
  entry.info.name = reader.take_text(head.name_bytes);
  entry.info.description = reader.take_text(head.description_bytes);
  entry.info.bytes = head.info_bytes;
  entry.info.leases = static_cast<std::uint32_t>(head.info_leases);
  entry.info.since = std::chrono::sys_seconds(std::chrono::seconds(head.since));
  const auto record = reader.take(head.record_bytes);
  entry.record.assign(record.begin(), record.end());
  for (std::uint32_t index = 0; index < head.leases; ++index) entry.leases.push_back(reader.take_lease());
  if (!reader.is_empty()) throw_corrupt("is too long");
  return entry;
}

}  // namespace drover::session
