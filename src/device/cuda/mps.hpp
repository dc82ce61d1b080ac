// device/cuda/mps.hpp: whether NVIDIA's multi-process service serves this process.
#pragma once

namespace drover::cuda {

/// Whether an MPS control daemon is alive at the pipe directory that this process would use
/// (CUDA_MPS_PIPE_DIRECTORY, else /tmp/nvidia-mps).
[[nodiscard]] bool mps_is_running();

}  // namespace drover::cuda
