#include "device/cuda/module.hpp"

#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "device/cuda/context.hpp"
#include "drover/base/error.hpp"

namespace drover::device::cuda {
namespace {

constexpr std::size_t kLogBytes = 4096;

std::vector<std::size_t> parameter_sizes(CUfunction function) {
  std::vector<std::size_t> sizes;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  while (driver().cuFuncGetParamInfo(function, sizes.size(), &offset, &bytes) == kSuccess) sizes.push_back(bytes);
  return sizes;
}

// PTX is read up to a zero byte, with which the caller's span need not end.
std::vector<char> with_final_zero(std::span<const std::byte> image) {
  std::vector<char> copy(image.size() + 1, '\0');
  std::memcpy(copy.data(), image.data(), image.size());
  return copy;
}

}  // namespace

CudaKernel::CudaKernel(CUfunction handle, std::string name)
    : handle_(handle), name_(std::move(name)), has_sizes_(driver().cuFuncGetParamInfo.is_present()) {
  if (has_sizes_) sizes_ = parameter_sizes(handle_);
}

void CudaKernel::check_arguments(std::span<const KernelArgument> arguments) const {
  if (!has_sizes_) return;
  std::vector<std::size_t> given;
  given.reserve(arguments.size());
  for (const auto& argument : arguments) given.push_back(argument.bytes);
  if (given == sizes_) return;
  throw Error(Errc::invalid_argument,
              fmt::format("kernel '{}' has parameters of [{}] bytes but got arguments of [{}] bytes", name_,
                          fmt::join(sizes_, ", "), fmt::join(given, ", ")),
              "pass one argument per parameter, each of the parameter's exact type");
}

CudaModule::CudaModule(CudaDevice& device, std::span<const std::byte> image)
    : device_(device), live_(device.counters().modules) {
  require(!image.empty(), "cannot load a module image of 0 bytes");
  const CurrentContext context(device_);
  const std::vector<char> code = with_final_zero(image);
  std::array<char, kLogBytes> words{};
  std::array<int, 2> options = {kJitErrorLog, kJitErrorLogBytes};
  // The API takes the number as a pointer.
  std::array<void*, 2> values = {words.data(),
                                 reinterpret_cast<void*>(kLogBytes)};  // NOLINT(performance-no-int-to-ptr)
  const CUresult result =
      driver().cuModuleLoadDataEx(&handle_, code.data(), options.size(), options.data(), values.data());
  if (result == kSuccess) return;
  const Error plain = cuda_error(result, "cuModuleLoadDataEx", device_.facts("a module image", image.size()));
  throw Error(plain.code(),
              *words.data() == '\0' ? plain.message() : fmt::format("{}\n{}", plain.message(), words.data()),
              plain.remedy());
}

CudaModule::~CudaModule() {
  const QuietContext context(device_);
  check_quietly(driver().cuModuleUnload(handle_), "cuModuleUnload failed with code");
}

std::unique_ptr<Kernel> CudaModule::kernel(const std::string& name) const {
  const CurrentContext context(device_);
  CUfunction function = nullptr;
  const auto what = fmt::format("kernel '{}'", name);
  check(driver().cuModuleGetFunction(&function, handle_, name.c_str()), "cuModuleGetFunction",
        device_.facts(what.c_str()));
  return std::make_unique<CudaKernel>(function, name);
}

}  // namespace drover::device::cuda
