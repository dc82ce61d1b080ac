// observe/checks.hpp: the checks of the doctor, and the helpers they share.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "drover/observe/doctor.hpp"

namespace drover::observe {

/// One check of the facts; nullopt if it does not apply, or if another check reports the cause better.
using Check = std::optional<Finding> (*)(const Facts& facts);

// In the order in which they are reported, from the hardware upwards.
std::optional<Finding> check_gpu(const Facts& facts);
std::optional<Finding> check_container_access(const Facts& facts);
std::optional<Finding> check_kernel_module(const Facts& facts);
std::optional<Finding> check_device_nodes(const Facts& facts);
std::optional<Finding> check_driver_answer(const Facts& facts);
std::optional<Finding> check_driver_library(const Facts& facts);
std::optional<Finding> check_driver_versions(const Facts& facts);
std::optional<Finding> check_driver_symbols(const Facts& facts);
std::optional<Finding> check_driver_init(const Facts& facts);
std::optional<Finding> check_nvml(const Facts& facts);
std::optional<Finding> check_visible_devices(const Facts& facts);
std::optional<Finding> check_device_order(const Facts& facts);
std::optional<Finding> check_compute_mode(const Facts& facts);
std::optional<Finding> check_mig(const Facts& facts);
std::optional<Finding> check_mps(const Facts& facts);
std::optional<Finding> check_backend_setting(const Facts& facts);
std::optional<Finding> check_shared_memory(const Facts& facts);
std::optional<Finding> check_open_files(const Facts& facts);
std::optional<Finding> check_memory_limit(const Facts& facts);
std::optional<Finding> check_overcommit(const Facts& facts);

/// Whether libcuda was loaded.
[[nodiscard]] bool is_driver_loaded(const Facts& facts) noexcept;
/// Whether cuInit was called and succeeded, which proves that a GPU can be used.
[[nodiscard]] bool is_cuda_working(const Facts& facts) noexcept;
/// Whether cuInit was called and returned `code`.
[[nodiscard]] bool cuda_answered(const Facts& facts, int code) noexcept;
/// Whether nvmlInit was called and returned `code`.
[[nodiscard]] bool nvml_answered(const Facts& facts, int code) noexcept;
/// GPUs on the PCI bus that are not reserved for virtual machines.
[[nodiscard]] std::vector<PciGpu> usable_gpus(const Facts& facts);
/// Whether a node such as /dev/nvidia0 exists.
[[nodiscard]] bool has_gpu_node(const Facts& facts) noexcept;
/// Whether anything indicates that this machine has a usable GPU; without one, a missing driver is not a failure.
[[nodiscard]] bool is_gpu_expected(const Facts& facts);
/// Whether the host has a GPU, or one was requested, but this container has no access to it.
[[nodiscard]] bool is_blocked_by_container(const Facts& facts);
/// Whether CUDA_VISIBLE_DEVICES hides every GPU: empty, or beginning with -1.
[[nodiscard]] bool are_all_hidden(const Facts& facts);
/// GPUs partitioned by MIG on which no partition exists, by name and PCI address.
[[nodiscard]] std::vector<std::string> unpartitioned_mig_gpus(const Facts& facts);

/// "1 GPU", "2 GPUs".
[[nodiscard]] std::string counted(std::size_t count, const char* noun);

inline Finding passed(const char* id, std::string summary) { return {id, Severity::ok, std::move(summary), {}}; }
inline Finding noted(const char* id, std::string summary, std::string remedy = {}) {
  return {id, Severity::note, std::move(summary), std::move(remedy)};
}
inline Finding warned(const char* id, std::string summary, std::string remedy) {
  return {id, Severity::warning, std::move(summary), std::move(remedy)};
}
inline Finding failed(const char* id, std::string summary, std::string remedy) {
  return {id, Severity::failure, std::move(summary), std::move(remedy)};
}

}  // namespace drover::observe
