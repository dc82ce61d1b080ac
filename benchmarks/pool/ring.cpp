// The limit that drover's queues set: workers answer messages of the size of the pool's, and do nothing else.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "drover/ipc/queue.hpp"
#include "drover/session/process.hpp"
#include "drover/session/worker.hpp"
#include "pool/workload.hpp"

namespace drover::bench {
namespace {

constexpr std::size_t kBatch = 64;
constexpr std::size_t kMostAtOnce = 256;
constexpr std::chrono::minutes kPatience{2};

// Of the size of a task and a result of a pool.
struct Item {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 3> rest{};
};
struct Answer {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 4> rest{};
};

// Like those of a pool.
constexpr QueueOptions kInbox{.capacity = 256, .bytes = std::uint64_t{16} << 20U, .waits_alone = true};
constexpr QueueOptions kResults{.capacity = 4096, .bytes = std::uint64_t{64} << 20U, .waits_alone = true};

template <class Kind>
void put(Queue& queue, std::span<const Kind> some) {
  if (queue.put(std::as_bytes(some)) != PutResult::put) throw std::runtime_error("cannot put into the ring");
}

// Arguments: the queues of items and of answers, and whether the answers of a message go together.
void answer(Worker& worker) {
  const auto& arguments = worker.arguments();
  Queue inbox(worker.session(), ObjectHandle::parse(arguments.at(0)));
  Queue results(worker.session(), ObjectHandle::parse(arguments.at(1)));
  const bool is_together = arguments.at(2) == "together";
  std::array<Item, kBatch> items;
  std::array<Answer, kBatch> answers;
  put(results, std::span<const Answer>(answers).first(1));  // ready
  for (Message message; inbox.get(message) == GetResult::got;) {
    const std::size_t count = message.bytes().size() / sizeof(Item);
    std::memcpy(items.data(), message.bytes().data(), count * sizeof(Item));
    for (std::size_t i = 0; i < count; ++i) {
      answers[i].number = items[i].number;
      if (!is_together) put(results, std::span<const Answer>(answers).subspan(i, 1));
    }
    if (is_together) put(results, std::span<const Answer>(answers).first(count));
  }
}

const Entry the_answerer = entry("pool ring", answer);

class RingRunner final : public Runner {
 public:
  RingRunner(std::size_t workers, std::size_t batch, bool is_together) : batch_(batch), results_(session_, kResults) {
    for (std::size_t i = 0; i < workers; ++i) {
      const Queue& inbox = inboxes_.emplace_back(session_, kInbox);
      workers_.push_back(
          Process::start(session_, {.entry = the_answerer,
                                    .arguments = {inbox.handle().to_string(), results_.handle().to_string(),
                                                  is_together ? "together" : "one by one"}}));
    }
    std::vector<Message> messages;
    for (std::size_t i = 0; i < workers; ++i) take(messages, 1);
  }
  ~RingRunner() override {
    for (auto& inbox : inboxes_) inbox.close();
    for (auto& worker : workers_) static_cast<void>(worker.wait(Deadline::after(kPatience)));
  }
  RingRunner(const RingRunner&) = delete;
  RingRunner& operator=(const RingRunner&) = delete;

  // One thread sends and another receives, as in a pool.
  void run(std::size_t count) override {
    std::thread sender([&] { send(count); });
    const std::uint64_t sum = collect(count);
    sender.join();
    check_result(sum, count * (count - 1) / 2);
  }
  void run_one() override {
    send(1);
    static_cast<void>(collect(1));
  }

 private:
  void take(std::vector<Message>& into, std::size_t most) {
    if (results_.get_many(into, most, Deadline::after(kPatience)) != GetResult::got)
      throw std::runtime_error("the ring does not answer: see the output of its workers");
  }
  void send(std::size_t count) {
    std::array<Item, kBatch> items;
    for (std::size_t sent = 0, turn = 0; sent < count; ++turn) {
      const std::size_t some = std::min(batch_, count - sent);
      for (std::size_t i = 0; i < some; ++i) items[i].number = sent++;
      put(inboxes_[turn % inboxes_.size()], std::span<const Item>(items).first(some));
    }
  }
  // The sum of the returned numbers.
  [[nodiscard]] std::uint64_t collect(std::size_t count) {
    std::uint64_t sum = 0;
    std::vector<Message> messages;
    for (std::size_t came = 0; came < count;) {
      take(messages, kMostAtOnce);
      for (const auto& message : messages) {
        for (auto bytes = message.bytes(); bytes.size() >= sizeof(Answer); bytes = bytes.subspan(sizeof(Answer))) {
          Answer one;
          std::memcpy(&one, bytes.data(), sizeof(one));
          sum += one.number;
          ++came;
        }
      }
    }
    return sum;
  }

  std::size_t batch_;
  Session session_ = Session::start();
  Queue results_;
  std::deque<Queue> inboxes_;
  std::vector<Process> workers_;
};

template <std::size_t Items, bool Together>
std::unique_ptr<Runner> make(std::size_t workers) {
  return std::make_unique<RingRunner>(workers, Items, Together);
}

}  // namespace

std::vector<Contender> bare_rings() {
  return {{.name = "ring", .make = make<1, false>},
          {.name = "ring, 64 and 1", .make = make<kBatch, false>, .is_timed_alone = false},
          {.name = "ring, 64 and 64", .make = make<kBatch, true>, .is_timed_alone = false}};
}

}  // namespace drover::bench
