#include "drover/ipc/value.hpp"

#include <array>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/object/nested_handle.hpp"
#include "ipc/object/object_kind.hpp"

namespace drover {
namespace {

constexpr std::size_t kMostBytes = std::numeric_limits<std::size_t>::max() / 4;

constexpr std::size_t kCount = 0;  // indices of the spec's parameters
constexpr std::size_t kElementSize = 1;
constexpr std::size_t kLock = 2;
static_assert(kLock + ipc::kHandleParameters <= std::tuple_size_v<decltype(ObjectSpec::parameters)>);

std::size_t array_bytes(const ObjectSpec& spec) {
  const std::uint64_t elements = spec.parameters[kCount];
  const std::uint64_t each = spec.parameters[kElementSize];
  if (elements > 0 && each > 0 && elements <= kMostBytes / each) return elements * each;
  throw Error(Errc::invalid_argument,
              fmt::format("cannot make a shared array of {} elements of {} bytes", elements, each),
              "use at least one element, and no more than memory can hold");
}

ObjectSpec spec_with(std::size_t elements, std::size_t each, const RLock& its_lock) {
  ObjectSpec spec{.kind = ObjectKind::array, .parameters = {elements, each}};
  ipc::put_handle(spec, kLock, its_lock.handle());
  return spec;
}

}  // namespace

// Its lock is an object of its own.
const ipc::ObjectKindInfo ipc::array_kind = {.layout_bytes = array_bytes,
                                             .format = [](std::byte*, const ObjectSpec&) {},
                                             .recover = [](std::byte*, const ObjectSpec&, Owner) {},
                                             .wake_all = [](std::byte*, const ObjectSpec&) {}};

namespace detail {

ArrayBytes::ArrayBytes(const std::shared_ptr<Membership>& membership, RLock lock, std::size_t count,
                       std::size_t element_size)
    // NOLINTNEXTLINE(readability-suspicious-call-argument): elements, then the size of each
    : object_(membership, spec_with(count, element_size, lock)), lock_(std::move(lock)) {}

ArrayBytes::ArrayBytes(const std::shared_ptr<Membership>& membership, std::size_t count, std::size_t element_size)
    : ArrayBytes(membership, RLock(membership), count, element_size) {}

ArrayBytes::ArrayBytes(const std::shared_ptr<Membership>& membership, const ObjectHandle& handle,
                       std::size_t element_size)
    : object_(membership, handle, ObjectKind::array), lock_(membership, ipc::get_handle(object_.spec(), kLock)) {
  const std::uint64_t actual = object_.spec().parameters[kElementSize];
  if (actual == element_size) return;
  throw Error(Errc::invalid_argument,
              fmt::format("the elements of the shared array {} have {} bytes, not {}", handle.to_string(), actual,
                          element_size),
              "open it with the type that it was made with");
}

}  // namespace detail
}  // namespace drover
