// drover/base/fd.hpp: the owner of a file descriptor.
#pragma once

#include <utility>

namespace drover {

/// Owns one file descriptor and closes it. Move-only; empty is -1. Not synchronised.
class Fd {
 public:
  /// Owns nothing.
  Fd() noexcept = default;
  /// Takes over `number`, which nobody else may close from now on.
  explicit Fd(int number) noexcept : number_(number) {}
  /// Takes over what `other` owned and leaves it empty.
  Fd(Fd&& other) noexcept : number_(std::exchange(other.number_, kEmpty)) {}
  /// Closes what was owned, then takes over what `other` owned.
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  /// The number, for a call that borrows it; -1 when empty.
  [[nodiscard]] int get() const noexcept { return number_; }
  /// Whether a descriptor is owned.
  [[nodiscard]] bool is_open() const noexcept { return number_ != kEmpty; }
  /// Gives the number up; the caller closes it.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, kEmpty); }
  /// Closes now; a failure to close is logged.
  void reset() noexcept;
  /// A second descriptor of the same open file, closed on exec. Throws `Errc::limit_reached` when the process
  /// has no descriptor left.
  [[nodiscard]] Fd duplicate() const;

 private:
  static constexpr int kEmpty = -1;
  int number_ = kEmpty;
};

}  // namespace drover
