// observe/cuda_answers.hpp: the meaning of cuInit's errors to a user.
#pragma once

namespace drover::observe {

inline constexpr int kCudaNoDevice = 100;
inline constexpr int kCudaDriverMismatch = 803;
inline constexpr int kCudaCompatUnsupported = 804;
inline constexpr int kCudaMpsFirst = 805;  ///< first and last code about MPS
inline constexpr int kCudaMpsLast = 810;

/// An error in words, and its remedy.
struct CudaAnswer {
  const char* meaning;
  const char* remedy;
};

/// Never empty: an unknown code gets general advice.
[[nodiscard]] CudaAnswer explain_cuda_answer(int code) noexcept;

}  // namespace drover::observe
