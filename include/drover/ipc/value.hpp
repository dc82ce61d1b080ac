// drover/ipc/value.hpp: one small value that all participants read and change.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "drover/ipc/membership.hpp"
#include "drover/ipc/shared_object.hpp"

namespace drover {

struct ValueLayout;

namespace detail {

/// What `Value` is for every type.
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
  [[nodiscard]] const ObjectHandle& handle() const noexcept { return object_.handle(); }

 private:
  [[nodiscard]] ValueLayout& layout() const noexcept;

  SharedObject object_;
  std::size_t words_;
};

}  // namespace detail

/// One value of up to 64 bytes. Always whole: a reader sees what one writer wrote, and a writer that dies in the
/// middle has written nothing. Reading takes no lock and makes no system call; it begins again if a write was
/// committed meanwhile. Writers exclude each other. All functions are safe for all threads.
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
  /// Replaces the value by `change(value)`, while nobody else writes, and returns the new one. If `change` throws,
  /// nothing has changed. It must not wait, since all writers wait for it. It may read this value; if it writes it,
  /// that throws `Errc::invalid_argument`.
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
  [[nodiscard]] const ObjectHandle& handle() const noexcept { return bytes_.handle(); }

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

}  // namespace drover
