// ZeroMQ: PUSH to PULL over ipc. The library is loaded at run time if present, so that this program builds without
// its headers and runs without it.
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "queue/parts.hpp"

namespace drover::bench {
namespace {

// From zmq.h of version 4, part of its stable interface.
constexpr int kPull = 7;
constexpr int kPush = 8;
constexpr int kLinger = 17;
constexpr int kReconnectPause = 18;
constexpr int kSendLimit = 23;
constexpr int kReceiveLimit = 24;
constexpr int kReceivePatience = 27;
constexpr int kDontWait = 1;
struct alignas(void*) ZmqMessage {
  std::array<unsigned char, 64> opaque{};
};

void* library() {
  static void* const handle = ::dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
  return handle;
}

template <class Function>
Function symbol(const char* name) {
  void* const address = ::dlsym(library(), name);
  if (address == nullptr) throw std::runtime_error(fmt::format("libzmq.so.5 has no {}", name));
  return reinterpret_cast<Function>(address);
}

struct Api {
  void* (*ctx_new)() = symbol<void* (*)()>("zmq_ctx_new");
  void* (*socket)(void*, int) = symbol<void* (*)(void*, int)>("zmq_socket");
  int (*close)(void*) = symbol<int (*)(void*)>("zmq_close");
  int (*setsockopt)(void*, int, const void*,
                    std::size_t) = symbol<int (*)(void*, int, const void*, std::size_t)>("zmq_setsockopt");
  int (*bind)(void*, const char*) = symbol<int (*)(void*, const char*)>("zmq_bind");
  int (*connect)(void*, const char*) = symbol<int (*)(void*, const char*)>("zmq_connect");
  int (*send)(void*, const void*, std::size_t,
              int) = symbol<int (*)(void*, const void*, std::size_t, int)>("zmq_send");
  int (*msg_init)(ZmqMessage*) = symbol<int (*)(ZmqMessage*)>("zmq_msg_init");
  int (*msg_recv)(ZmqMessage*, void*, int) = symbol<int (*)(ZmqMessage*, void*, int)>("zmq_msg_recv");
  void* (*msg_data)(ZmqMessage*) = symbol<void* (*)(ZmqMessage*)>("zmq_msg_data");
  int (*msg_close)(ZmqMessage*) = symbol<int (*)(ZmqMessage*)>("zmq_msg_close");
  const char* (*strerror)(int) = symbol<const char* (*)(int)>("zmq_strerror");
  int (*error)() = symbol<int (*)()>("zmq_errno");
};

const Api& api() {
  static const Api functions;
  return functions;
}

// One per process, as its manual recommends; never destroyed.
void* context() {
  static void* const made = api().ctx_new();
  return made;
}

void check(bool holds, const char* call) {
  if (!holds) throw std::runtime_error(fmt::format("{}: {}", call, api().strerror(api().error())));
}

std::string refusal(const Cell&) { return library() == nullptr ? "libzmq.so.5 was not found" : ""; }

// A name in the abstract namespace.
Endpoint make(const Cell&, const Session&) {
  static std::uint64_t serial = 0;
  auto name = fmt::format("ipc://@drover-bench-{}-{}", ::getpid(), ++serial);
  return {.producer = {}, .consumer = {}, .name = std::move(name), .keep = {}};
}

/// Every consumer binds an address and every producer connects to all of them: ZeroMQ's pattern without a broker.
class ZmqLane {
 public:
  static constexpr bool kIsRead = true;

  explicit ZmqLane(const LaneEnd& end)
      : post_(end.post),
        cell_(end.order.cell),
        socket_(api().socket(context(), end.is_producer ? kPush : kPull)),
        message_(end.is_producer ? arena(0, end.order.cell.bytes) : std::span<std::byte>{}) {
    check(socket_ != nullptr, "zmq_socket");
    const int depth = static_cast<int>(depth_of(cell_));
    set(kLinger, 0);
    set(kReconnectPause, 1);
    set(end.is_producer ? kSendLimit : kReceiveLimit, depth);
    if (end.is_producer) {
      for (std::uint32_t i = 0; i < consumers(); ++i) {
        check(api().connect(socket_, address(end.name, i).c_str()) == 0, "zmq_connect");
      }
    } else {
      set(kReceivePatience, kLookMs);
      check(api().bind(socket_, address(end.name, end.order.index).c_str()) == 0, "zmq_bind");
      api().msg_init(&received_);
    }
  }
  ~ZmqLane() {
    if (message_.empty()) api().msg_close(&received_);
    api().close(socket_);
  }
  ZmqLane(const ZmqLane&) = delete;
  ZmqLane& operator=(const ZmqLane&) = delete;

  [[nodiscard]] std::span<std::byte> draft() const noexcept { return message_; }
  void send() { check(api().send(socket_, message_.data(), message_.size(), 0) >= 0, "zmq_send"); }
  // These sockets have no end of stream, so the consumer checks regularly if it has received all messages.
  [[nodiscard]] std::span<const std::byte> receive() {
    for (;;) {
      const auto message = take(0);
      if (!message.empty() || has_everything()) return message;
    }
  }
  [[nodiscard]] std::span<const std::byte> try_receive() { return take(kDontWait); }
  static void finish(bool) {}

 private:
  static constexpr int kLookMs = 10;

  [[nodiscard]] static std::string address(const std::string& name, std::uint32_t consumer) {
    return fmt::format("{}-{}", name, consumer);
  }
  [[nodiscard]] std::uint32_t consumers() const { return cell_.metric == Metric::messages ? cell_.consumers : 1; }
  void set(int option, int value) {
    check(api().setsockopt(socket_, option, &value, sizeof(value)) == 0, "zmq_setsockopt");
  }
  // The message stays in the library's memory, which belongs to this process: nothing is copied.
  std::span<const std::byte> take(int flags) {
    const int length = api().msg_recv(&received_, socket_, flags);
    if (length < 0 && api().error() != EAGAIN) check(false, "zmq_msg_recv");
    if (length < 0) return {};
    return {static_cast<const std::byte*>(api().msg_data(&received_)), static_cast<std::size_t>(length)};
  }
  [[nodiscard]] bool has_everything() const {
    std::uint64_t sum = 0;
    for (const auto& progress : post_.board().progress) sum += progress.count.load();
    return sum == post_.board().signals.total.load();
  }

  Post& post_;
  Cell cell_;
  void* socket_;
  std::span<std::byte> message_;
  ZmqMessage received_{};
};

}  // namespace

Contender zeromq() { return {.name = "zeromq ipc", .refusal = refusal, .make = make, .play = play_lanes<ZmqLane>}; }

}  // namespace drover::bench
