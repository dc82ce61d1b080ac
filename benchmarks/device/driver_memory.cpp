// The peer: memory that the driver itself allocates for copies, called as a program without drover would.
#include <dlfcn.h>

#include <stdexcept>

#include "device/workload.hpp"
#include "drover/base/bytes.hpp"

namespace drover::bench {
namespace {

template <class Function>
Function symbol(const char* name) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* const address = library == nullptr ? nullptr : ::dlsym(library, name);
  if (address == nullptr) throw std::runtime_error(std::string("libcuda.so.1 has no ") + name);
  return reinterpret_cast<Function>(address);
}

void check(int result, const char* call) {
  if (result != 0) throw std::runtime_error(std::string(call) + " failed with " + std::to_string(result));
}

}  // namespace

void measure_driver_memory(Backend& backend, bool is_smoke, std::vector<Row>& rows) {
  const auto host_alloc = symbol<int (*)(void**, std::size_t, unsigned)>("cuMemHostAlloc");
  const auto host_free = symbol<int (*)(void*)>("cuMemFreeHost");
  const auto upload = symbol<int (*)(unsigned long long, const void*, std::size_t)>("cuMemcpyHtoD_v2");
  const auto download = symbol<int (*)(void*, unsigned long long, std::size_t)>("cuMemcpyDtoH_v2");
  const auto retain = symbol<int (*)(void**, int)>("cuDevicePrimaryCtxRetain");
  const auto set_current = symbol<int (*)(void*)>("cuCtxSetCurrent");
  const auto memory = backend.open(0).allocate(is_smoke ? kMiB : kGiB);
  void* context = nullptr;
  check(retain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(set_current(context), "cuCtxSetCurrent");
  void* host = nullptr;
  check(host_alloc(&host, memory->size(), 0), "cuMemHostAlloc");
  const std::size_t rounds = is_smoke ? 2 : 15;
  const auto address = memory->ptr().address;
  const auto up = time_each(rounds, [&] { check(upload(address, host, memory->size()), "cuMemcpyHtoD"); });
  const auto down = time_each(rounds, [&] { check(download(host, address, memory->size()), "cuMemcpyDtoH"); });
  const auto name = workload_name(backend, memory->size());
  rows.push_back(rate_row(name, "bare driver, cuMemHostAlloc", "host to device", memory->size(), up));
  rows.push_back(rate_row(name, "bare driver, cuMemHostAlloc", "device to host", memory->size(), down));
  check(host_free(host), "cuMemFreeHost");
}

}  // namespace drover::bench
