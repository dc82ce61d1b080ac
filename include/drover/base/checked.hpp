// drover/base/checked.hpp: pointers that may be empty, and say so instead of crashing.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace drover::detail {

/// Throws `Errc::invalid_argument`: the object is empty.
[[noreturn]] void fail_empty();

/// What a public class owns: a `unique_ptr` or `shared_ptr` that a move leaves empty. Use of an empty one throws
/// `Errc::invalid_argument`.
template <class Pointer>
class Checked {
 public:
  using Element = typename Pointer::element_type;

  /// Empty.
  Checked() noexcept = default;
  /// Takes over.
  template <class Other>
  Checked(Other&& pointer) noexcept  // NOLINT(*-explicit-constructor, *-forwarding-reference-overload)
    requires(std::is_constructible_v<Pointer, Other &&> && !std::is_same_v<std::remove_cvref_t<Other>, Checked>)
      : pointer_(std::forward<Other>(pointer)) {}

  /// The object.
  [[nodiscard]] Element& operator*() const {
    if (pointer_ == nullptr) [[unlikely]]
      fail_empty();
    return *pointer_;
  }
  /// The object.
  [[nodiscard]] Element* operator->() const { return &**this; }
  /// The pointer itself, which may be empty.
  [[nodiscard]] const Pointer& pointer() const noexcept { return pointer_; }
  /// Whether it is empty.
  friend bool operator==(const Checked& checked, std::nullptr_t) noexcept { return checked.pointer_ == nullptr; }

 private:
  Pointer pointer_;
};

}  // namespace drover::detail
