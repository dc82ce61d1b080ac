#include "pool/watch/gpu_faults.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "drover/base/fd.hpp"
#include "process/inspect/proc_files.hpp"

namespace drover::pool {
namespace {

constexpr std::size_t kMostMessages = 65536;
constexpr std::size_t kMostFaults = 64;
constexpr std::size_t kMostText = 200;
constexpr std::string_view kXid = "NVRM: Xid (PCI:";

// "PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT"
std::optional<GpuFault> fault_in(std::string_view line) {
  const auto at = line.find(kXid);
  const auto separator = line.find(';');
  if (at == std::string_view::npos || separator == std::string_view::npos || separator > at) return std::nullopt;
  auto head = line.substr(0, separator);
  for (int commas = 0; commas < 2; ++commas) head.remove_prefix(std::min(head.find(',') + 1, head.size()));
  const auto rest = line.substr(at + kXid.size());
  const auto close = rest.find("): ");
  if (close == std::string_view::npos) return std::nullopt;
  const auto code = process::leading_number<int>(rest.substr(close + 3));
  if (!code) return std::nullopt;
  return GpuFault{.code = *code,
                  .pci = process::printable(rest.substr(0, close), 16),
                  .when = std::chrono::microseconds(process::leading_number<std::int64_t>(head).value_or(0)),
                  .text = process::printable(line.substr(at), kMostText)};
}

}  // namespace

std::vector<GpuFault> faults_in(std::string_view messages) {
  std::vector<GpuFault> faults;
  while (!messages.empty()) {
    const auto end = std::min(messages.find('\n'), messages.size());
    if (auto fault = fault_in(messages.substr(0, end))) faults.push_back(std::move(*fault));
    messages.remove_prefix(std::min(end + 1, messages.size()));
  }
  if (faults.size() > kMostFaults) faults.erase(faults.begin(), faults.end() - kMostFaults);
  return faults;
}

// Each read returns one message, EAGAIN at the end, and EPIPE if messages were overwritten meanwhile.
std::vector<GpuFault> read_gpu_faults(const std::filesystem::path& log) {
  const Fd file(::open(log.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  std::string found;
  std::array<char, 8192> message{};
  for (std::size_t i = 0; file.is_open() && i < kMostMessages; ++i) {
    const auto length = ::read(file.get(), message.data(), message.size());
    if (length < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (length <= 0) break;
    const std::string_view text(message.data(), static_cast<std::size_t>(length));
    if (text.find(kXid) != std::string_view::npos) found.append(text).append("\n");
  }
  return faults_in(found);
}

std::string_view meaning_of_xid(int code) noexcept {
  switch (code) {
    case 8: return "a kernel ran longer than the driver allows";
    case 13: return "a kernel executed an illegal operation";
    case 31: return "a kernel accessed unmapped memory";
    case 43: return "a program's work was stopped after a fault";
    case 45: return "a program's work was removed, often because it was killed";
    case 48: return "memory has an uncorrectable error";
    case 61:
    case 62: return "the GPU's internal controller has halted";
    case 63:
    case 64: return "a bad memory page was retired";
    case 74: return "NVLink has failed";
    case 79: return "the GPU has fallen off the bus";
    case 92: return "memory has a high error rate";
    case 94: return "memory has an error that affected one program";
    case 95: return "memory has an error that affects every program on the GPU";
    case 119:
    case 120: return "the GPU's system processor does not respond";
    default: return {};
  }
}

bool condemns_gpu(int code) noexcept {
  constexpr std::array kCodes = {48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120};
  return std::ranges::find(kCodes, code) != kCodes.end();
}

}  // namespace drover::pool
