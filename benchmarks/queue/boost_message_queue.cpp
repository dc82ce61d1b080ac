// Boost.Interprocess: message_queue, a heap of messages in shared memory under a mutex and two conditions.
#include "queue/parts.hpp"

#ifdef DROVER_BENCH_BOOST

#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/format.h>
#include <boost/interprocess/ipc/message_queue.hpp>

namespace drover::bench {
namespace {

namespace interprocess = boost::interprocess;

// Boost maps without checking for room, and touching a missing page kills the process.
std::string refusal(const Cell& cell) {
  struct statvfs room{};
  if (::statvfs("/dev/shm", &room) != 0) return "/dev/shm cannot be examined";
  const auto needed = 2 * depth_of(cell) * (cell.bytes + 128);  // at most two lanes
  return room.f_bavail * room.f_frsize > needed ? "" : "/dev/shm is too small";
}

struct Name {
  std::string text;
  explicit Name(std::string name) : text(std::move(name)) {}
  ~Name() { interprocess::message_queue::remove(text.c_str()); }
  Name(const Name&) = delete;
  Name& operator=(const Name&) = delete;
};

Endpoint make(const Cell& cell, const Session&) {
  static std::uint64_t serial = 0;
  auto name = std::make_shared<Name>(fmt::format("queue-bench-{}-{}", ::getpid(), ++serial));
  const interprocess::message_queue made(interprocess::create_only, name->text.c_str(), depth_of(cell), cell.bytes);
  auto text = name->text;
  return {.producer = {}, .consumer = {}, .name = std::move(text), .keep = std::move(name)};
}

class BoostLane {
 public:
  static constexpr bool kIsRead = true;

  explicit BoostLane(const LaneEnd& end)
      : queue_(interprocess::open_only, end.name.c_str()),
        message_(arena(end.is_producer ? 0 : 1, end.order.cell.bytes)),
        consumers_(end.order.cell.consumers) {}

  [[nodiscard]] std::span<std::byte> draft() const noexcept { return message_; }
  void send() { queue_.send(message_.data(), message_.size(), 0); }
  [[nodiscard]] std::span<const std::byte> receive() {
    std::size_t length = 0;
    unsigned priority = 0;
    queue_.receive(message_.data(), message_.size(), length, priority);
    return message_.first(length);
  }
  [[nodiscard]] std::span<const std::byte> try_receive() {
    std::size_t length = 0;
    unsigned priority = 0;
    const bool is_there = queue_.try_receive(message_.data(), message_.size(), length, priority);
    return message_.first(is_there ? length : 0);
  }
  void finish(bool is_first) {
    for (std::uint32_t i = 0; is_first && i < consumers_; ++i) send_word(*this, kEnd);
  }

 private:
  interprocess::message_queue queue_;
  std::span<std::byte> message_;
  std::uint32_t consumers_;
};

}  // namespace

Contender boost_message_queue() {
  return {.name = "boost message_queue", .refusal = refusal, .make = make, .play = play_lanes<BoostLane>};
}

}  // namespace drover::bench

#else

namespace drover::bench {

Contender boost_message_queue() {
  const auto refusal = [](const Cell&) -> std::string { return "Boost was absent when this program was built"; };
  return {.name = "boost message_queue", .refusal = refusal};
}

}  // namespace drover::bench

#endif
