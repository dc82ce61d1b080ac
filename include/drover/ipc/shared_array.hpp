// drover/ipc/shared_array.hpp: memory that all participants read and write, with a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "drover/ipc/membership.hpp"
#include "drover/ipc/rlock.hpp"
#include "drover/ipc/shared_object.hpp"

namespace drover {
namespace detail {

/// What `SharedArray` is for every type.
class ArrayBytes {
 public:
  ArrayBytes(const std::shared_ptr<Membership>& membership, std::size_t count, std::size_t element_size);
  ArrayBytes(const std::shared_ptr<Membership>& membership, const ObjectHandle& handle, std::size_t element_size);

  [[nodiscard]] std::byte* data() const noexcept { return object_.layout(); }
  [[nodiscard]] std::size_t count() const noexcept { return object_.spec().parameters[0]; }
  [[nodiscard]] RLock& lock() noexcept { return lock_; }
  [[nodiscard]] const SharedObject& object() const noexcept { return object_; }

 private:
  ArrayBytes(const std::shared_ptr<Membership>& membership, RLock lock, std::size_t count, std::size_t element_size);

  SharedObject object_;
  RLock lock_;
};

}  // namespace detail

/// A fixed number of elements in shared memory, zero at first, and a lock for those who want one. Reading and writing
/// is plain memory access: without the lock, or atomics of the caller's own, there is no order between participants.
/// If the holder of the lock dies, the next to acquire it is told that the contents may be half changed.
template <class T>
  requires std::is_trivially_copyable_v<T>
class SharedArray {
  static_assert(alignof(T) <= 64);

 public:
  /// Makes one, and its lock. Throws `Errc::invalid_argument` for no elements or more bytes than can be counted.
  SharedArray(const std::shared_ptr<Membership>& membership, std::size_t count)
      : bytes_(membership, count, sizeof(T)) {}
  /// Opens one; throws `Errc::invalid_argument` if its elements are of another size.
  SharedArray(const std::shared_ptr<Membership>& membership, const ObjectHandle& handle)
      : bytes_(membership, handle, sizeof(T)) {}

  /// The elements, while this is open.
  [[nodiscard]] std::span<T> span() noexcept { return {reinterpret_cast<T*>(bytes_.data()), size()}; }
  /// The elements, while this is open.
  [[nodiscard]] std::span<const T> span() const noexcept {
    return {reinterpret_cast<const T*>(bytes_.data()), size()};
  }
  /// One element. Requires: index < size().
  [[nodiscard]] T& operator[](std::size_t index) noexcept { return span()[index]; }
  /// One element. Requires: index < size().
  [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return span()[index]; }
  /// How many elements.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.count(); }
  /// Its lock: `HeldLock held(array.lock());`.
  [[nodiscard]] RLock& lock() noexcept { return bytes_.lock(); }

  /// The name by which others open it, and its lock with it.
  [[nodiscard]] const ObjectHandle& handle() const noexcept { return bytes_.object().handle(); }

 private:
  detail::ArrayBytes bytes_;
};

}  // namespace drover
