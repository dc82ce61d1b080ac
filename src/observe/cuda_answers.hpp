// observe/cuda_answers.hpp: what cuInit's failures mean to a user; private to the library.
#pragma once

namespace drover::observe {

inline constexpr int kCudaNoDevice = 100;
inline constexpr int kCudaDriverMismatch = 803;
inline constexpr int kCudaCompatUnsupported = 804;
inline constexpr int kCudaMpsFirst = 805;  ///< first and last of the codes about MPS
inline constexpr int kCudaMpsLast = 810;

/// A failure in words, and what to do about it.
struct CudaAnswer {
  const char* meaning;
  const char* remedy;
};

/// Never empty: an unknown code gets the general advice.
[[nodiscard]] CudaAnswer explain_cuda_answer(int code) noexcept;

}  // namespace drover::observe
