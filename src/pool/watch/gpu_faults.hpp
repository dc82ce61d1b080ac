// pool/watch/gpu_faults.hpp: what the kernel's driver said of sick GPUs (Xid).
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// One message of the driver: "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus."
struct GpuFault {
  int code = 0;                      ///< the Xid
  std::string pci;                   ///< "0000:1b:00"
  std::chrono::microseconds when{};  ///< since the machine began
  std::string text;                  ///< the message, cut
};

/// The Xids among messages in the form of /dev/kmsg ("6,1234,987654321,-;text" per line); others are left out.
[[nodiscard]] std::vector<GpuFault> faults_in(std::string_view messages);

/// Those that the kernel's log still has, oldest first; none if this user may not read it. Does not wait.
[[nodiscard]] std::vector<GpuFault> read_gpu_faults(const std::filesystem::path& log = "/dev/kmsg");

/// What a code means, in words, for those that programs meet; empty for others.
[[nodiscard]] std::string_view meaning_of_xid(int code) noexcept;

/// Whether a GPU that reported it is not to be trusted before a reset. The others are of a program's making.
[[nodiscard]] bool condemns_gpu(int code) noexcept;

}  // namespace drover
