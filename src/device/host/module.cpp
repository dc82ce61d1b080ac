#include "device/host/module.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"

namespace drover::device::host {
namespace {

std::string path_of(const Fd& file) { return fmt::format("/proc/self/fd/{}", file.get()); }

// The loader identifies objects by path, and keeps some (with unique symbols or thread-local destructors) after they
// are closed. A descriptor with the number of such an object would load that object's code, so take another number.
void avoid_known_paths(Fd& file) {
  std::vector<Fd> known;
  while (SharedLibrary::is_known(path_of(file))) {
    known.push_back(std::move(file));
    file = known.back().duplicate();
  }
}

}  // namespace

HostModule::HostModule(LiveCounters& live, std::span<const std::byte> image) : live_(live.modules) {
  require(!image.empty(), "cannot load a module image of 0 bytes");
  file_ = make_memory_file("drover-module", image.size());
  std::memcpy(Mapping::shared(file_, image.size()).data(), image.data(), image.size());
  avoid_known_paths(file_);
  std::string words;
  library_ = SharedLibrary::open(path_of(file_), words);
  if (!library_.is_open()) {
    throw Error(Errc::invalid_argument,
                fmt::format("a module image of {} bytes could not be loaded: {}", image.size(), words),
                "pass an ELF shared object built for this machine; PTX and cubin images run on `cuda` only");
  }
}

std::unique_ptr<Kernel> HostModule::kernel(const std::string& name) const {
  void* const address = library_.own_symbol(name.c_str());
  if (address == nullptr) {
    throw Error(Errc::not_found, fmt::format("the module has no kernel '{}'", name),
                "declare it extern \"C\" and check its spelling");
  }
  return std::make_unique<HostKernel>(reinterpret_cast<HostFunction>(address));
}

}  // namespace drover::device::host
