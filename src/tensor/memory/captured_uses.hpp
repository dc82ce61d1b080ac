// tensor/memory/captured_uses.hpp: tensors that other libraries let go while their streams captured graphs.
#pragma once

#include <memory>

#include "drover/device/stream.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover {

/// Whether a stream captures a graph; false if it cannot be asked.
[[nodiscard]] bool seems_capturing(const Stream& stream) noexcept;

/// Gives a tensor back that another library used on a stream, when what the stream was given is done.
void end_lending(const Tensor& tensor, Stream& stream) noexcept;

/// Keeps a tensor until its stream captures no more: what the stream did before can be asked only then. The stream
/// must live until then.
void end_lending_after_capture(const Tensor& tensor, std::unique_ptr<Stream> stream) noexcept;

/// Gives back those whose captures are over; almost nothing where there are none. Not for forked children.
void look_after_captured_uses() noexcept;

}  // namespace drover
