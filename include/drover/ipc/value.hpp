// drover/ipc/value.hpp: small values and arrays in shared memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "drover/ipc/lock.hpp"
#include "drover/ipc/membership.hpp"

namespace drover::ipc {
struct ValueLayout;
}  // namespace drover::ipc

namespace drover {

namespace detail {

/// The part of `Value` that is independent of its type.
class ValueBytes {
 public:
  static constexpr std::size_t kMost = 64;  ///< bytes
  using Bytes = std::array<std::byte, kMost>;
  /// Changes the value in place; `context` is the caller's.
  using Change = void (*)(void* context, Bytes& value);

  ValueBytes(std::shared_ptr<Membership> membership, std::size_t size);
  ValueBytes(std::shared_ptr<Membership> membership, const ObjectHandle& handle, std::size_t size);

  [[nodiscard]] Bytes load() const;
  void store(const Bytes& value);
  void update(Change change, void* context);
  [[nodiscard]] const ObjectHandle& handle() const { return object_.handle(); }

 private:
  [[nodiscard]] ipc::ValueLayout& layout() const;

  SharedObject object_;
  std::size_t words_;
};

}  // namespace detail

/// One value of up to 64 bytes, changed atomically: a reader sees the value of one writer, and a writer that dies
/// halfway has written nothing. Reading takes no lock and makes no system call; it retries if a write was committed
/// meanwhile. Writers exclude each other. All functions are safe for all threads.
template <class T>
  requires std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>
class Value {
  static_assert(sizeof(T) <= detail::ValueBytes::kMost, "use a SharedArray for more");

 public:
  /// Makes one.
  explicit Value(std::shared_ptr<Membership> membership, const T& initial = T{})
      : bytes_(std::move(membership), sizeof(T)) {
    store(initial);
  }
  /// Opens one; throws `Errc::invalid_argument` if it is of another size.
  Value(std::shared_ptr<Membership> membership, const ObjectHandle& handle)
      : bytes_(std::move(membership), handle, sizeof(T)) {}

  /// The value.
  [[nodiscard]] T load() const { return to_value(bytes_.load()); }
  /// Replaces the value.
  void store(const T& value) { bytes_.store(to_bytes(value)); }
  /// Replaces the value by `change(value)` while nobody else writes, and returns the new value. If `change` throws,
  /// the value is unchanged. `change` must not wait, since all writers wait for it. It may read this value, but
  /// writing it throws `Errc::invalid_argument`.
  template <class Change>
  T update(Change change) {
    struct Context {
      Change* change;
      T result;
    } context{&change, T{}};
    bytes_.update(
        [](void* pointer, detail::ValueBytes::Bytes& bytes) {
          auto& inner = *static_cast<Context*>(pointer);
          inner.result = (*inner.change)(to_value(bytes));
          bytes = to_bytes(inner.result);
        },
        &context);
    return context.result;
  }

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const { return bytes_.handle(); }

 private:
  static T to_value(const detail::ValueBytes::Bytes& bytes) {
    T value{};
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  static detail::ValueBytes::Bytes to_bytes(const T& value) {
    detail::ValueBytes::Bytes bytes{};
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }

  detail::ValueBytes bytes_;
};

namespace detail {

/// The part of `SharedArray` that is independent of its type.
class ArrayBytes {
 public:
  ArrayBytes(const std::shared_ptr<Membership>& membership, std::size_t count, std::size_t element_size);
  ArrayBytes(const std::shared_ptr<Membership>& membership, const ObjectHandle& handle, std::size_t element_size);

  [[nodiscard]] std::byte* data() const { return object_.layout(); }
  [[nodiscard]] std::size_t count() const { return object_.spec().parameters[0]; }
  [[nodiscard]] RLock& lock() noexcept { return lock_; }
  [[nodiscard]] const SharedObject& object() const noexcept { return object_; }

 private:
  ArrayBytes(const std::shared_ptr<Membership>& membership, RLock lock, std::size_t count, std::size_t element_size);

  SharedObject object_;
  RLock lock_;
};

}  // namespace detail

/// A fixed number of elements in shared memory, initially zero, and a lock for them. Access is plain memory access:
/// without the lock or atomics of the caller, there is no order between participants. If the holder of the lock dies,
/// the next acquisition reports that the contents may be half changed.
template <class T>
  requires std::is_trivially_copyable_v<T>
class SharedArray {
  static_assert(alignof(T) <= 64);

 public:
  /// Makes one and its lock. Throws `Errc::invalid_argument` for no elements, or more bytes than memory can hold.
  SharedArray(const std::shared_ptr<Membership>& membership, std::size_t count)
      : bytes_(membership, count, sizeof(T)) {}
  /// Opens one; throws `Errc::invalid_argument` if its elements are of another size.
  SharedArray(const std::shared_ptr<Membership>& membership, const ObjectHandle& handle)
      : bytes_(membership, handle, sizeof(T)) {}

  /// The elements, while this is open.
  [[nodiscard]] std::span<T> span() { return {reinterpret_cast<T*>(bytes_.data()), size()}; }
  /// The elements, while this is open.
  [[nodiscard]] std::span<const T> span() const { return {reinterpret_cast<const T*>(bytes_.data()), size()}; }
  /// One element. Requires: index < size().
  [[nodiscard]] T& operator[](std::size_t index) { return span()[index]; }
  /// One element. Requires: index < size().
  [[nodiscard]] const T& operator[](std::size_t index) const { return span()[index]; }
  /// The number of elements.
  [[nodiscard]] std::size_t size() const { return bytes_.count(); }
  /// Its lock: `HeldLock held(array.lock());`.
  [[nodiscard]] RLock& lock() noexcept { return bytes_.lock(); }

  /// The name by which others open it and its lock.
  [[nodiscard]] const ObjectHandle& handle() const { return bytes_.object().handle(); }

 private:
  detail::ArrayBytes bytes_;
};

}  // namespace drover
