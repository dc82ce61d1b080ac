#include "process/inspect/foreign_memory.hpp"

#include <sys/uio.h>

#include "base/sys.hpp"

namespace drover::process {

bool read_foreign_memory(pid_t pid, std::uint64_t address, std::span<std::byte> into) noexcept {
  const iovec here{.iov_base = into.data(), .iov_len = into.size()};
  const iovec there{.iov_base = reinterpret_cast<void*>(address),  // NOLINT(performance-no-int-to-ptr): another's
                    .iov_len = into.size()};
  const auto read = sys::call("process_vm_readv", ::process_vm_readv, pid, &here, 1UL, &there, 1UL, 0UL);
  return read >= 0 && static_cast<std::size_t>(read) == into.size();
}

}  // namespace drover::process
