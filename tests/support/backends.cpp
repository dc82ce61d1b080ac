#include "support/backends.hpp"

#include <unistd.h>

#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/device/backend.hpp"
#include "support/leftovers.hpp"

namespace drover::test {
namespace {

// Each run has its own group of emulated devices, shared with the peers it spawns, so that concurrent runs do not see
// each other's slabs.
[[maybe_unused]] const int is_apart = ::setenv("DROVER_HOST_GROUP", std::to_string(::getpid()).c_str(), 0);
// Enough for the tests on machines of any size; this reserves nothing.
[[maybe_unused]] const int has_memory = ::setenv("DROVER_HOST_MEMORY", "4GiB", 0);

std::vector<Backend*> used_backends;

std::string live_resources() {
  std::string text;
  for (const Backend* const backend : used_backends) {
    const auto slab_bytes = backend->kind() == BackendKind::host ? backend->memory_info(0).used() : 0;
    if (slab_bytes != 0) text += fmt::format("{} bytes of slabs on host:0, in this or another process; ", slab_bytes);
    const LiveResources live = backend->live();
    if (live == LiveResources{}) continue;
    text += fmt::format("{}: {} pieces of memory, {} slabs, {} registrations, {} streams, {} events, {} modules; ",
                        to_string(backend->kind()), live.memory, live.slabs, live.registrations, live.streams,
                        live.events, live.modules);
  }
  return text;
}

void watch(Backend& backend) {
  if (used_backends.empty()) add_leftover_check("device resources", live_resources);
  used_backends.push_back(&backend);
  if (backend.kind() != BackendKind::cuda) return;
  for (const char* const kept_by_the_driver : {"/dev/nvidia", "anon_inode:", "socket:", "pipe:"}) {
    ignore_descriptors(kept_by_the_driver);
  }
}

}  // namespace

std::string reason_to_skip(BackendKind kind) {
  try {
    Backend& backend = backend_of(kind);
    for (const Backend* const known : used_backends) {
      if (known == &backend) return {};
    }
    watch(backend);
    return {};
  } catch (const Error& error) {
    if (kind != BackendKind::cuda) throw;
    return "no GPU can be used here: " + error.message();
  }
}

BackendKind kind_of(const Peer& peer) {
  return peer.parameter("backend") == "cuda" ? BackendKind::cuda : BackendKind::host;
}

}  // namespace drover::test
