// pool/watch/gpu_faults.hpp: GPU errors that the driver reported in the kernel log (Xid).
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace drover::pool {

/// One message of the driver: "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus."
struct GpuFault {
  int code = 0;                      ///< the Xid
  std::string pci;                   ///< "0000:1b:00"
  std::chrono::microseconds when{};  ///< since boot
  std::string text;                  ///< the message, truncated
};

/// The Xids among messages in the format of /dev/kmsg, "6,1234,987654321,-;text" per line.
[[nodiscard]] std::vector<GpuFault> faults_in(std::string_view messages);

/// The Xids in the kernel log, oldest first; none if this user may not read it. Does not block.
[[nodiscard]] std::vector<GpuFault> read_gpu_faults(const std::filesystem::path& log = "/dev/kmsg");

/// The meaning of a common code; empty for others.
[[nodiscard]] std::string_view meaning_of_xid(int code) noexcept;

/// Whether a GPU that reported it needs a reset. Programs cause the other codes.
[[nodiscard]] bool condemns_gpu(int code) noexcept;

}  // namespace drover::pool
