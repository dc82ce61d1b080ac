#include "device/host/module.hpp"

#include <cstring>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"

namespace drover::host {

HostModule::HostModule(LiveCounters& live, std::span<const std::byte> image) : live_(live.modules) {
  require(!image.empty(), "a module image of 0 bytes was passed");
  file_ = make_memory_file("drover-module", image.size());
  std::memcpy(Mapping::shared(file_, image.size()).data(), image.data(), image.size());
  std::string words;
  library_ = SharedLibrary::open(fmt::format("/proc/self/fd/{}", file_.get()), words);
  if (!library_.is_open()) {
    throw Error(Errc::invalid_argument, fmt::format("a module image of {} bytes could not be loaded: {}", image.size(), words),
                "pass an ELF shared object built for this machine; PTX and cubin images run on `cuda` only");
  }
}

std::unique_ptr<Kernel> HostModule::kernel(const std::string& name) const {
  void* const address = library_.symbol(name.c_str());
  if (address == nullptr) {
    throw Error(Errc::not_found, fmt::format("the module has no kernel '{}'", name),
                "declare it extern \"C\" and check its spelling");
  }
  return std::make_unique<HostKernel>(reinterpret_cast<HostFunction>(address));
}

}  // namespace drover::host
