#include "device/cuda/mps.hpp"

#include <cerrno>
#include <csignal>
#include <fstream>
#include <string>

#include "drover/base/config.hpp"

namespace drover::cuda {

bool mps_is_running() {
  const auto folder = environment("CUDA_MPS_PIPE_DIRECTORY").value_or("/tmp/nvidia-mps");
  pid_t daemon = 0;
  std::ifstream(folder + "/nvidia-cuda-mps-control.pid") >> daemon;
  return daemon > 0 && (::kill(daemon, 0) == 0 || errno == EPERM);
}

}  // namespace drover::cuda
