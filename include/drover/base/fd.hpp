// drover/base/fd.hpp: the owner of a file descriptor.
#pragma once

#include <utility>

namespace drover {

/// Owns one file descriptor and closes it. Move-only; empty is -1. Not synchronised.
class Fd {
 public:
  /// Owns nothing.
  Fd() noexcept = default;
  /// Takes ownership of `number`; nothing else may close it from now on.
  explicit Fd(int number) noexcept : number_(number) {}
  /// Leaves `other` empty.
  Fd(Fd&& other) noexcept : number_(std::exchange(other.number_, kEmpty)) {}
  /// Closes the current descriptor, then leaves `other` empty.
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  /// The number, still owned by this object; -1 if empty.
  [[nodiscard]] int get() const noexcept { return number_; }
  /// Whether a descriptor is owned.
  [[nodiscard]] bool is_open() const noexcept { return number_ != kEmpty; }
  /// Releases ownership; the caller closes the number.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, kEmpty); }
  /// Closes now; a failure to close is logged.
  void reset() noexcept;
  /// A second descriptor of the same open file, closed on exec. Throws `Errc::limit_reached` if the process has no
  /// descriptor left.
  [[nodiscard]] Fd duplicate() const;

 private:
  static constexpr int kEmpty = -1;
  int number_ = kEmpty;
};

}  // namespace drover
