// The way of frameworks: CUDA's own handles between processes, sent through a pipe, without drover.
#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

#include "drover/base/fd.hpp"
#include "handoff/workload.hpp"
#include "support/bare_driver.hpp"
#include "support/board.hpp"

namespace drover::bench {
namespace {

using Address = unsigned long long;

struct Handle {
  char bytes[64];
};

// A message in the pipe, shorter than PIPE_BUF, so that it is written atomically.
struct Offer {
  enum class Kind : std::uint8_t { open, keep, open_and_close, done };
  Kind kind;  // open: map and keep it; keep: already mapped; open_and_close: map it for this message
  Handle handle;
  std::uint64_t bytes;
};

class Allocation {
 public:
  explicit Allocation(std::uint64_t bytes) : bytes_(bytes) {
    check_driver(driver_symbol<int (*)(Address*, std::size_t)>("cuMemAlloc_v2")(&address_, bytes), "cuMemAlloc");
  }
  ~Allocation() { static_cast<void>(driver_symbol<int (*)(Address)>("cuMemFree_v2")(address_)); }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] Handle handle() const {
    static const auto call = driver_symbol<int (*)(Handle*, Address)>("cuIpcGetMemHandle");
    Handle made{};
    check_driver(call(&made, address_), "cuIpcGetMemHandle");
    return made;
  }
  void write_last(std::uint64_t number) const {
    driver_upload(address_ + bytes_ - sizeof(number), &number, sizeof(number));
    check_driver(driver_symbol<int (*)()>("cuCtxSynchronize")(),
                 "cuCtxSynchronize");  // small copies may be asynchronous
  }

 private:
  std::uint64_t bytes_;
  Address address_ = 0;
};

// Another process's allocation, mapped into this one.
class Opened {
 public:
  explicit Opened(const Handle& handle) {
    static const auto call = driver_symbol<int (*)(Address*, Handle, unsigned)>("cuIpcOpenMemHandle_v2");
    constexpr unsigned kLazyPeerAccess = 1;
    check_driver(call(&address_, handle, kLazyPeerAccess), "cuIpcOpenMemHandle");
  }
  ~Opened() { static_cast<void>(driver_symbol<int (*)(Address)>("cuIpcCloseMemHandle")(address_)); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  [[nodiscard]] Answer use(std::uint64_t bytes) const {
    Answer answer;
    answer.usable_at = now_ns();
    driver_download(&answer.last, address_ + bytes - sizeof(answer.last), sizeof(answer.last));
    answer.read_at = now_ns();
    return answer;
  }

 private:
  Address address_ = 0;
};

Fd open_pipe(const Lane& lane) { return Fd(::open(lane.pipe.c_str(), O_RDWR | O_CLOEXEC)); }

void offer(int pipe, const Offer& what) {
  if (::write(pipe, &what, sizeof(what)) != sizeof(what)) throw std::runtime_error("cannot write to the pipe");
}

// The sender's side of one pipe.
class Sender {
 public:
  explicit Sender(Lane& lane) : lane_(lane), pipe_(open_pipe(lane)) {
    if (lane.to.put(std::as_bytes(std::span(&kIpcFollows, 1))) != PutResult::put) throw std::runtime_error("not put");
  }
  ~Sender() {
    const Offer last{.kind = Offer::Kind::done, .handle = {}, .bytes = 0};
    static_cast<void>(::write(pipe_.get(), &last, sizeof(last)) + 1);
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // Nanoseconds until the reader could use it, and its answer.
  std::pair<double, Answer> hand_over(const Allocation& memory, Offer::Kind kind) {
    memory.write_last(++number_);
    const std::int64_t begin = now_ns();
    const bool is_kept = kind == Offer::Kind::keep;
    offer(pipe_.get(), {.kind = kind, .handle = is_kept ? Handle{} : memory.handle(), .bytes = memory.bytes()});
    const Answer answer = await(lane_.back);
    if (answer.last != number_) throw std::runtime_error("the reader read a wrong number");
    return {static_cast<double>(answer.usable_at - begin), answer};
  }

 private:
  Lane& lane_;
  Fd pipe_;
  std::uint64_t number_ = 0;
};

}  // namespace

void measure_cuda_ipc(const Step& step, std::vector<Row>& rows) {
  const auto& [session, lane, place, bytes, is_smoke] = step;
  use_first_gpu();
  std::vector<double> first;
  std::vector<double> kept;
  std::vector<double> opened;
  std::vector<double> closing;
  std::vector<double> reading;
  {
    Sender sender(lane);
    for (int slab = 0; slab < (is_smoke ? 1 : 5); ++slab) {
      const Allocation memory(bytes);
      for (int round = 0; round < (is_smoke ? 2 : 20); ++round) {
        const auto [nanoseconds, answer] = sender.hand_over(memory, Offer::Kind::open_and_close);
        (round == 0 ? first : opened).push_back(nanoseconds);
        if (round > 0) closing.push_back(static_cast<double>(answer.closed_at - answer.read_at));
      }
      static_cast<void>(sender.hand_over(memory, Offer::Kind::open));
      for (int round = 0; round < (is_smoke ? 2 : 200); ++round) {
        const auto [nanoseconds, answer] = sender.hand_over(memory, Offer::Kind::keep);
        kept.push_back(nanoseconds);
        reading.push_back(static_cast<double>(answer.read_at - answer.usable_at));
      }
      // A handle must be closed before its memory is freed.
      static_cast<void>(sender.hand_over(memory, Offer::Kind::open_and_close));
    }
  }
  static_cast<void>(await(lane.back));
  const std::string name = workload_name(place, bytes);
  rows.push_back(nanosecond_row(name, "CUDA IPC, kept open", "hand over", kept));
  rows.push_back(nanosecond_row(name, "CUDA IPC, opened each time", "hand over", opened));
  rows.push_back(nanosecond_row(name, "CUDA IPC", "first hand over of a slab", first));
  rows.push_back(nanosecond_row(name, "CUDA IPC", "read the last number", reading));
  rows.push_back(nanosecond_row(name, "CUDA IPC, opened each time", "close", closing));
}

void serve_cuda_ipc(int pipe, Queue& back) {
  use_first_gpu();
  std::unique_ptr<Opened> kept;
  for (Offer next{}; ::read(pipe, &next, sizeof(next)) == sizeof(next);) {
    if (next.kind == Offer::Kind::done) break;
    if (next.kind != Offer::Kind::keep) {
      kept.reset();  // older drivers refuse to open a handle twice
      kept = std::make_unique<Opened>(next.handle);
    }
    Answer answer = kept->use(next.bytes);
    if (next.kind == Offer::Kind::open_and_close) kept.reset();
    answer.closed_at = now_ns();
    send(back, answer);
  }
  send(back, {});
}

}  // namespace drover::bench
