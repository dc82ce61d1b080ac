#include "drover/ipc/value.hpp"

#include <cstring>
#include <new>
#include <optional>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/sync/value_layout.hpp"

namespace drover {
namespace {

using Bytes = detail::ValueBytes::Bytes;

ipc::ValueLayout& value_at(std::byte* layout) { return *reinterpret_cast<ipc::ValueLayout*>(layout); }

std::size_t words_for(std::size_t size) { return (size + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t); }

// Acquire and release: a reader of a word from a later write then also reads a later version.
Bytes read_copy(const ipc::ValueLayout::Copy& copy, std::size_t words) {
  Bytes bytes{};
  for (std::size_t index = 0; index < words; ++index) {
    const std::uint64_t word = copy.at(index).load(std::memory_order_acquire);
    std::memcpy(bytes.data() + index * sizeof(word), &word, sizeof(word));
  }
  return bytes;
}

void write_copy(ipc::ValueLayout::Copy& copy, const Bytes& bytes, std::size_t words) {
  for (std::size_t index = 0; index < words; ++index) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + index * sizeof(word), sizeof(word));
    copy.at(index).store(word, std::memory_order_release);
  }
}

Bytes read_locked(const ipc::ValueLayout& layout, std::size_t words) {
  return read_copy(layout.copies.at(layout.version.load() % 2), words);
}

void write_locked(ipc::ValueLayout& layout, const Bytes& bytes, std::size_t words) {
  const std::uint64_t version = layout.version.load();
  write_copy(layout.copies.at((version + 1) % 2), bytes, words);
  layout.version.store(version + 1);
}

std::optional<Bytes> try_read(const ipc::ValueLayout& layout, std::size_t words) {
  const std::uint64_t version = layout.version.load();
  const Bytes bytes = read_copy(layout.copies.at(version % 2), words);
  if (layout.version.load() != version) return std::nullopt;
  return bytes;
}

}  // namespace

const ipc::ObjectKindInfo ipc::value_kind = {
    .layout_bytes =
        [](const ObjectSpec& spec) {
          require(spec.parameters[0] >= 1 && spec.parameters[0] <= detail::ValueBytes::kMost,
                  "a shared value must have 1 to 64 bytes", "use a SharedArray for more");
          return sizeof(ipc::ValueLayout);
        },
    .format = [](std::byte* layout, const ObjectSpec&) { new (layout) ipc::ValueLayout{}; },
    .recover = [](std::byte* layout, const ObjectSpec&, Owner dead) { recover(value_at(layout).lock, dead); },
    .wake_all = [](std::byte* layout, const ObjectSpec&) { wake_all(value_at(layout).lock); }};

namespace detail {

ValueBytes::ValueBytes(std::shared_ptr<Membership> membership, std::size_t size)
    : object_(std::move(membership), ObjectSpec{.kind = ObjectKind::value, .parameters = {size}}),
      words_(words_for(size)) {}

ValueBytes::ValueBytes(std::shared_ptr<Membership> membership, const ObjectHandle& handle, std::size_t size)
    : object_(std::move(membership), handle, ObjectKind::value), words_(words_for(size)) {
  const std::uint64_t actual = object_.spec().parameters[0];
  if (actual == size) return;
  throw Error(Errc::invalid_argument,
              fmt::format("the shared value {} has {} bytes, not {}", handle.to_string(), actual, size),
              "open it with the type that it was made with");
}

ipc::ValueLayout& ValueBytes::layout() const { return value_at(object_.layout()); }

Bytes ValueBytes::load() const {
  static_cast<void>(object_.self());  // throws in a forked child
  for (;;) {  // without the lock, which a dead writer may hold; each retry means that another write was committed
    if (const auto bytes = try_read(layout(), words_)) return *bytes;
  }
}

void ValueBytes::store(const Bytes& value) {
  const ipc::CellGuard guard(layout().lock, object_.membership());
  write_locked(layout(), value, words_);
}

void ValueBytes::update(Change change, void* context) {
  const ipc::CellGuard guard(layout().lock, object_.membership());
  Bytes value = read_locked(layout(), words_);
  change(context, value);
  static_cast<void>(object_.self());  // throws in a child forked by `change`: the lock is its parent's
  write_locked(layout(), value, words_);
}

}  // namespace detail
}  // namespace drover
