// Tensors for other libraries of this process.
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/tensor/dlpack.hpp"
#include "tensor/lent_regions.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

constexpr DlpackStream kUnordered = -1;
// Others are streams of their own; work of those up to here comes after that of other streams, too.
constexpr std::uintptr_t kLastCommon = 2;
// How long who lets go waits for what seems to be done.
constexpr std::chrono::microseconds kPatience{20};

bool seems_idle(const Stream& stream) noexcept {
  try {
    return stream.is_idle();
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());
    return false;
  }
}

// A tensor that another library uses on a stream; the block waits for that stream when both are gone. Device memory
// is known by its address until then.
class Lent {
 public:
  Lent(Tensor tensor, std::unique_ptr<Stream> stream) : tensor_(std::move(tensor)), stream_(std::move(stream)) {
    if (!tensor_.place().is_device) return;
    entry_ = std::make_unique<LentRegions::Entry>(TensorAccess::storage(tensor_));
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() {
    if (TensorAccess::membership(tensor_.memory()).self() == kNobody) {
      static_cast<void>(entry_.release());  // NOLINT(bugprone-unused-return-value): leaked on purpose
      return;
    }
    if (stream_ == nullptr) return;
    const bool is_idle = seems_idle(*stream_);
    if (is_idle && stream_->native() > kLastCommon) return;
    try {
      tensor_.end_use(*stream_);
      if (is_idle) static_cast<void>(TensorAccess::storage(tensor_)->wait(Deadline::after(kPatience)));
    } catch (const std::exception& error) {  // whoever lets go cannot be told
      log(LogLevel::warn, error.what());
    }
  }

 private:
  const Tensor tensor_;
  const std::unique_ptr<Stream> stream_;
  std::unique_ptr<LentRegions::Entry> entry_;
};

std::unique_ptr<Stream> begin_lending(const Tensor& tensor, DlpackStream stream) {
  if (tensor.place().backend != BackendKind::cuda || !tensor.place().is_device) {
    tensor.synchronize();
    return nullptr;
  }
  if (stream == kUnordered) return nullptr;
  if (stream <= 0) {
    throw Error(Errc::invalid_argument, fmt::format("{} is not the stream of a library that takes an array", stream),
                "give 1 for the default stream, 2 for that of each thread, a CUstream's address, or -1 for none");
  }
  Device& device = TensorAccess::storage(tensor)->work_at(tensor.place())->device();
  auto borrowed = device.borrow_stream(static_cast<std::uintptr_t>(stream));
  tensor.begin_use(*borrowed);
  return borrowed;
}

// Emulated devices have memory of the host, at the address that they say.
DevicePtr address_of(const Block& block) {
  if (block.place().is_device) return block.device_ptr();
  return {reinterpret_cast<std::uint64_t>(block.bytes().data())};
}

}  // namespace

DlpackArray to_dlpack(const Tensor& tensor, DlpackStream stream) {
  auto lent = std::make_shared<Lent>(tensor, begin_lending(tensor, stream));
  return {.layout = tensor.layout(),
          .place = tensor.place(),
          .base = address_of(TensorAccess::storage(tensor)->block()),
          .keeper = std::move(lent)};
}

}  // namespace drover
