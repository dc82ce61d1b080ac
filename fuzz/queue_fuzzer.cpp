// A queue in corrupted memory: every operation is correct or throws drover::Error, and ends.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/ipc/queue.hpp"
#include "fuzz/fuzz_input.hpp"
#include "fuzz/spoiled_objects.hpp"
#include "ipc/queue/queue_layout.hpp"

namespace {

using namespace drover;

class QueueRun {
 public:
  explicit QueueRun(fuzz::Input& input)
      : input_(input),
        queue_(objects_, QueueOptions{.capacity = 1 + input.take_up_to(4),
                                      .bytes = 1024 * input.take_up_to(16),
                                      .in_flight = input.take_up_to(3)}) {}

  void run() {
    for (int steps = 0; !input_.is_empty() && steps < 200; ++steps) {
      try {
        step();
      } catch (const Error& error) {
        // In intact memory every operation must succeed.
        fuzz::check(is_spoiled_);
      }
    }
    deliveries_.clear();
    messages_.clear();
  }

 private:
  void step() {
    switch (input_.take<std::uint8_t>() % 9) {
      case 0:
      case 1: put(); return;
      case 2: get(); return;
      case 3: receive(); return;
      case 4: finish(); return;
      case 5: publish_loan(); return;
      case 6: recover(); return;
      case 7: spoil(); return;
      default:
        static_cast<void>(queue_.size());
        if (input_.take<std::uint8_t>() == 0) queue_.close();
        if (messages_.size() > 4) messages_.erase(messages_.begin());
        return;
    }
  }

  void put() {
    constexpr std::size_t kSizes[] = {0, 1, 48, 49, 1024, 1025, 3000, 40000};
    const std::size_t size = kSizes[input_.take<std::uint8_t>() % std::size(kSizes)];
    const std::vector<std::byte> bytes(size, static_cast<std::byte>(input_.take<std::uint8_t>()));
    const PutResult result = queue_.try_put(bytes);
    owed_ += result == PutResult::put ? 1 : 0;
  }

  void get() {
    Message message;
    const GetResult result = queue_.try_get(message);
    use(message.bytes());
    if (result != GetResult::got) {
      fuzz::check(is_spoiled_ || owed_ == 0);
      return;
    }
    fuzz::check(is_spoiled_ || owed_ > 0);
    --owed_;
    messages_.push_back(std::move(message));
  }

  void receive() {
    Delivery delivery;
    const GetResult result = queue_.receive(delivery, Deadline::after({}));
    if (result != GetResult::got) return;
    use(delivery.bytes());
    --owed_;
    deliveries_.push_back(std::move(delivery));
  }

  void finish() {
    if (deliveries_.empty()) return;
    Delivery delivery = std::move(deliveries_.front());
    deliveries_.erase(deliveries_.begin());
    if (input_.take<std::uint8_t>() % 2 == 0) {
      delivery.done();
    } else {
      ++owed_;
      delivery.give_back();
    }
  }

  void publish_loan() {
    Loan loan = queue_.loan(1 + input_.take_up_to(4000), Deadline::after({}));
    if (!loan.is_open()) return;
    std::ranges::fill(loan.bytes(), std::byte{7});
    if (input_.take<std::uint8_t>() % 4 == 0) return;
    owed_ += queue_.publish(loan, Deadline::after({})) == PutResult::put ? 1 : 0;
  }

  // As the keeper does for a process that holds nothing, or after corruption perhaps something.
  void recover() {
    const auto dead = static_cast<Owner>(2 + input_.take_up_to(3));
    const OpenObject object = objects_->open(queue_.handle());
    ipc::queue_kind.recover(ipc::layout_of(object.data), object.spec, dead);
  }

  // The lock of the pool stays intact: a process that finds it held rightly waits for its owner.
  void spoil() {
    is_spoiled_ = true;
    const OpenObject object = objects_->open(queue_.handle());
    fuzz::spoil(objects_->memory(queue_.handle()).subspan(sizeof(ipc::ObjectHeader)), input_);
    const ipc::QueueOffsets offsets = ipc::queue_offsets(ipc::queue_geometry(object.spec));
    std::memset(ipc::layout_of(object.data) + offsets.pool_state, 0, sizeof(ipc::CellLockLayout));
  }

  static void use(std::span<const std::byte> bytes) {
    std::byte sum{};
    for (const std::byte byte : bytes) sum ^= byte;
    [[maybe_unused]] static volatile std::byte sink;
    sink = sum;
  }

  fuzz::Input& input_;
  std::shared_ptr<fuzz::SpoiledObjects> objects_ = std::make_shared<fuzz::SpoiledObjects>(Owner{1});
  Queue queue_;
  std::vector<Message> messages_;
  std::vector<Delivery> deliveries_;
  int owed_ = 0;
  bool is_spoiled_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_log_sink([](LogLevel, std::string_view) noexcept {});
  fuzz::Input input(data, size);
  QueueRun(input).run();
  return 0;
}
