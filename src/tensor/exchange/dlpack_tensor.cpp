// Tensors for other libraries of this process.
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/tensor/dlpack.hpp"
#include "tensor/exchange/lent_regions.hpp"
#include "tensor/memory/captured_uses.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

constexpr DlpackStream kUnordered = -1;
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
    if (seems_capturing(*stream_)) {
      end_lending_after_capture(tensor_, std::move(stream_));
    } else {
      end_lending(tensor_, *stream_);
    }
  }

 private:
  const Tensor tensor_;
  std::unique_ptr<Stream> stream_;
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
