// tests/tensor/memory/gate.hpp: device work that waits for the test.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "drover/device/backend.hpp"
#include "drover/device/timeline.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover::test {

/// A stream whose work waits until the gate is opened, at the latest by the destructor.
class Gate {
 public:
  explicit Gate(const Place& place)
      : device_(backend_of(place.backend).open(place.index)),
        page_(std::make_unique<Page>()),
        registration_(device_.register_host(std::as_writable_bytes(std::span(page_.get(), 1)))),
        stream_(device_.create_stream()) {
    stream_->wait(page_->word, 1);
  }
  ~Gate() {
    open();
    static_cast<void>(stream_->synchronize(Deadline::never()));
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Sets every byte of a tensor, after the gate.
  void fill(const Tensor& tensor, std::uint8_t value) {
    tensor.begin_use(*stream_);
    stream_->fill(tensor.device_ptr(), value, tensor.bytes());
    tensor.end_use(*stream_);
  }
  /// Uses the tensor after the gate, without work.
  void hold(const Tensor& tensor) {
    tensor.begin_use(*stream_);
    tensor.end_use(*stream_);
  }
  /// The stream, for work after the gate.
  [[nodiscard]] Stream& stream() noexcept { return *stream_; }
  void open() { timeline_store(page_->word, 1); }

 private:
  struct alignas(4096) Page {
    TimelineWord word{0};
    std::array<std::byte, 4096 - sizeof(TimelineWord)> rest{};
  };

  Device& device_;
  std::unique_ptr<Page> page_;
  std::unique_ptr<HostRegistration> registration_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace drover::test
