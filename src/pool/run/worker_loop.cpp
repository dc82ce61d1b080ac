#include "pool/run/worker_loop.hpp"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/activity.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/device/backend.hpp"
#include "drover/pool/this_worker.hpp"
#include "pool/run/claim.hpp"
#include "pool/run/task_table.hpp"
#include "pool/run/wire.hpp"
#include "pool/values/remote_failure.hpp"
#include "pool/values/throw_trace.hpp"
#include "pool/watch/board.hpp"
#include "pool/watch/stack_sampler.hpp"

namespace drover {
namespace {

constexpr std::uint32_t kNoTask = 0xFFFF'FFFF;

PoolWorker* current_worker = nullptr;

std::uint64_t number_of(const std::string& text) {
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  require(parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size(), "invalid arguments of a pool worker",
          "let drover::Pool start its workers");
  return number;
}

void add_call(pool::WireWriter& to, const Call& call) {
  if (!call.is_open()) {
    to.add(pool::TaskHeader{.task = kNoTask});
    return;
  }
  const Encoder& arguments = call.arguments();
  to.add(pool::TaskHeader{.task = call.task().index,
                          .bytes = static_cast<std::uint32_t>(arguments.bytes().size()),
                          .tensors = static_cast<std::uint32_t>(arguments.tensors().size())});
  to.append(std::as_bytes(std::span(arguments.bytes())));
  to.append(arguments.tensors());
}

// Never unmapped, because a stack may be requested until the process exits.
pool::OwnBoard& open_board(Fd file) {
  static pool::OwnBoard* board = nullptr;
  board = new pool::OwnBoard(pool::OwnBoard::open(std::move(file)));
  return *board;
}

MemoryOptions memory_options(const pool::PoolWorkerArguments& arguments) {
  MemoryOptions options;
  if (arguments.memory_budget != 0) options.budgets[arguments.place] = arguments.memory_budget;
  return options;
}

// Word by word, because others read it concurrently. `titled` marks it as complete.
void show_title(pool::BoardWorker& board, std::string_view title) noexcept {
  std::array<char, pool::BoardWorker::kTitleWords * sizeof(std::uint64_t)> text{};
  title.copy(text.data(), text.size() - 1);
  board.titled.store(0, std::memory_order_relaxed);
  for (std::size_t i = 0; i < pool::BoardWorker::kTitleWords; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, &text.at(i * sizeof(word)), sizeof(word));
    board.task_title.at(i).store(word, std::memory_order_release);
  }
  board.titled.store(board.task.load(std::memory_order_relaxed), std::memory_order_release);
}

const RegisteredTask& task_at(std::uint32_t index) {
  const RegisteredTask* const task = pool::TaskTable::instance().at(index);
  if (task == nullptr) throw Error(Errc::corrupt, fmt::format("no task has the index {}", index));
  return *task;
}

}  // namespace

void pool::send_calls(Queue& inbox, const Call& init, const Call& teardown) {
  pool::WireWriter writer;
  writer.add(pool::BatchHeader{});
  add_call(writer, init);
  add_call(writer, teardown);
  static_cast<void>(inbox.put(writer.bytes(), writer.leases()));
}

std::vector<std::string> pool::PoolWorkerArguments::to_arguments() const {
  return {fmt::format("{}", slot),
          fmt::format("{}", starts),
          inbox.to_string(),
          results.to_string(),
          fmt::format("{}", static_cast<std::uint64_t>(board)),
          to_string(place),
          uuid,
          fmt::format("{}", memory_budget),
          fmt::format("{}", fingerprint),
          opens_device ? "1" : "0"};
}

pool::PoolWorkerArguments pool::PoolWorkerArguments::parse(const std::vector<std::string>& arguments) {
  constexpr std::size_t kCount = 10;
  require(arguments.size() == kCount, "invalid arguments of a pool worker", "let drover::Pool start its workers");
  return {.slot = number_of(arguments[0]),
          .starts = static_cast<std::uint32_t>(number_of(arguments[1])),
          .inbox = ObjectHandle::parse(arguments[2]),
          .results = ObjectHandle::parse(arguments[3]),
          .board = SlabId{number_of(arguments[4])},
          .place = Place::parse(arguments[5]),
          .uuid = arguments[6],
          .memory_budget = number_of(arguments[7]),
          .fingerprint = number_of(arguments[8]),
          .opens_device = arguments[9] == "1"};
}

// A single thread takes batches, claims tasks, runs them and sends results.
class WorkerLoop {
 public:
  explicit WorkerLoop(Worker& worker)
      : arguments_(pool::PoolWorkerArguments::parse(worker.arguments())),
        inbox_(worker.session(), arguments_.inbox),
        results_(worker.session(), arguments_.results),
        board_(open_board(worker.session().fetch(arguments_.board)).worker(arguments_.slot)),
        self_(arguments_.slot, worker.name(), arguments_.place, worker.session(),
              Memory(worker.session(), memory_options(arguments_))) {}

  void run() {
    prepare();
    Message message;
    while (inbox_.get(message) == GetResult::got) run_batch(message);
    show(pool::WorkerState::ending);
    if (teardown_ != nullptr) call(*teardown_, teardown_bytes_, teardown_tensors_);
  }

  ~WorkerLoop() {
    current_worker = nullptr;
    detail::activity_slot = nullptr;
  }
  WorkerLoop(const WorkerLoop&) = delete;
  WorkerLoop& operator=(const WorkerLoop&) = delete;

 private:
  void prepare() {
    // The application sets it too, but possibly after the first task has begun.
    board_.pid.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_relaxed);
    detail::activity_slot = &board_.activity;
    pool::answer_stack_requests(board_);
    self_.is_interrupted_ = [&board = board_] {
      const std::uint64_t asked = board.interrupt.load(std::memory_order_acquire);
      return asked != 0 && asked == board.task.load(std::memory_order_relaxed);
    };
    self_.show_title_ = [&board = board_](std::string_view title) { show_title(board, title); };
    current_worker = &self_;
    pool::TaskTable::instance().close();
    if (pool::TaskTable::instance().fingerprint() != arguments_.fingerprint) {
      throw Error(
          Errc::invalid_argument, "this worker has other tasks than the application",
          "register tasks unconditionally, before main, so that every process of the program has the same; do "
          "not replace the program's file while it runs");
    }
    open_device();
    read_calls();
    send(pool::ResultHeader{.kind = pool::ResultKind::ready}, {});
    show(pool::WorkerState::idle);
  }

  // Before the first task, which does not pay for it then, and to detect an unusable device early.
  void open_device() {
    if (!arguments_.place.is_device) return;
    Backend& backend = backend_of(arguments_.place.backend);
    const auto info = backend.devices().at(static_cast<std::size_t>(arguments_.place.index));
    pool::set_text(board_.device, uuid_text(info));
    if (uuid_text(info) != arguments_.uuid) {
      throw Error(Errc::not_found,
                  fmt::format("{} is {} in this worker, but should be {}", to_string(arguments_.place),
                              uuid_text(info), arguments_.uuid),
                  "do not change CUDA_VISIBLE_DEVICES before drover::init");
    }
    if (arguments_.opens_device) static_cast<void>(backend.open(arguments_.place.index));
  }

  void read_calls() {
    Message message;
    if (inbox_.get(message) != GetResult::got) return;
    pool::WireReader reader(message);
    static_cast<void>(reader.header<pool::BatchHeader>());
    const auto init = reader.header<pool::TaskHeader>();
    if (init.task != kNoTask) {
      const auto bytes = reader.bytes(init.bytes);
      call(task_at(init.task), bytes, reader.tensors(init.tensors, self_.memory_));
    }
    const auto teardown = reader.header<pool::TaskHeader>();
    if (teardown.task == kNoTask) return;
    teardown_ = &task_at(teardown.task);
    const auto bytes = reader.bytes(teardown.bytes);
    teardown_bytes_.assign(bytes.begin(), bytes.end());
    teardown_tensors_ = reader.tensors(teardown.tensors, self_.memory_);
  }

  static void call(const RegisteredTask& task, std::span<const std::byte> bytes, const std::vector<Tensor>& tensors) {
    Decoder from(bytes, tensors);
    Encoder unused;
    task.body(from, unused);
  }

  void run_batch(Message& message) {
    pool::WireReader reader(message);
    const auto batch = reader.header<pool::BatchHeader>();
    if (pool::begin_batch(board_.claim, board_.fence, batch.sequence, static_cast<std::uint16_t>(batch.count))) {
      while (pool::claim_next(board_.claim)) run_next(reader);
    }
    show(pool::WorkerState::idle);
  }

  void show(pool::WorkerState state) noexcept {
    board_.state.store(state, std::memory_order_relaxed);
    board_.since.store(pool::board_now(), std::memory_order_relaxed);
  }

  [[nodiscard]] std::vector<Tensor> open_tensors(pool::WireReader& reader, const pool::TaskHeader& header) const {
    auto tensors = reader.tensors(header.tensors, self_.memory_);
    if (header.relocates == 0) return tensors;
    for (auto& tensor : tensors) {
      if (tensor.place().is_device) tensor = tensor.to(self_.place_);
    }
    return tensors;
  }

  void run_next(pool::WireReader& reader) {
    const auto header = reader.header<pool::TaskHeader>();
    const std::uint64_t began = pool::board_now();
    board_.name.store(header.task, std::memory_order_relaxed);
    board_.since.store(began, std::memory_order_relaxed);
    board_.task.store(header.number, std::memory_order_release);
    board_.state.store(pool::WorkerState::running, std::memory_order_relaxed);
    Encoder result;
    // While tensors are copied here the task has not begun, and a failure is not its own.
    pool::ResultHeader outcome{.number = header.number,
                               .kind = header.relocates != 0 ? pool::ResultKind::unmoved : pool::ResultKind::failure};
    bool is_device_lost = false;
    try {
      const pool::ThrowTrace trace;
      const auto bytes = reader.bytes(header.bytes);
      const auto tensors = open_tensors(reader, header);
      outcome.kind = pool::ResultKind::failure;
      Decoder from(bytes, tensors);
      task_at(header.task).body(from, result);
      // The receiver of the result may read what the task wrote to its arguments, and a fault belongs to this task.
      for (const auto& tensor : tensors) {
        if (tensor.place().is_device) tensor.synchronize();
      }
      writer_.clear();
      writer_.add(outcome);
      writer_.append(std::as_bytes(std::span(result.bytes())));
      writer_.append(result.tensors());
      outcome.kind = pool::ResultKind::value;
    } catch (...) {
      result = {};
      is_device_lost = pool::write_failure(result, pool::ThrowTrace::last());
      outcome.leaves = is_device_lost ? 1 : 0;
    }
    const std::uint64_t ended = pool::board_now();
    outcome.nanoseconds = ended - began;
    board_.task.store(0, std::memory_order_relaxed);
    board_.since.store(ended, std::memory_order_relaxed);
    board_.state.store(pool::WorkerState::sending, std::memory_order_relaxed);
    if (outcome.kind != pool::ResultKind::unmoved) board_.done.fetch_add(1, std::memory_order_relaxed);
    send(outcome, result);
    if (is_device_lost) {
      throw Error(Errc::device_fault,
                  fmt::format("{} exits, because a task made its device unusable for this process", self_.name_),
                  "the pool replaces it; the error of the task says what happened");
    }
  }

  // A value is in the writer already, except for its header.
  void send(pool::ResultHeader header, const Encoder& result) {
    header.slot = static_cast<std::uint16_t>(arguments_.slot);
    header.starts = arguments_.starts;
    header.bytes = static_cast<std::uint32_t>(result.bytes().size());
    header.tensors = static_cast<std::uint32_t>(result.tensors().size());
    if (header.kind == pool::ResultKind::value) {
      writer_.set(0, header);
    } else {
      writer_.clear();
      writer_.add(header);
      writer_.append(std::as_bytes(std::span(result.bytes())));
    }
    if (results_.put(writer_.bytes(), writer_.leases()) != PutResult::put) {
      throw Error(Errc::peer_lost, fmt::format("{} cannot send its results", self_.name_),
                  "its application has ended");
    }
  }

  pool::PoolWorkerArguments arguments_;
  Queue inbox_;
  Queue results_;
  pool::BoardWorker& board_;
  PoolWorker self_;
  pool::WireWriter writer_;
  const RegisteredTask* teardown_ = nullptr;
  std::vector<std::byte> teardown_bytes_;
  std::vector<Tensor> teardown_tensors_;
};

const Entry& pool::pool_worker_entry() {
  static const Entry made = entry("drover.pool", [](Worker& worker) { WorkerLoop(worker).run(); });
  return made;
}

namespace {
// Registered before main, in every process of a program with pools.
const Entry& registered = pool::pool_worker_entry();
}  // namespace

PoolWorker& this_worker() {
  if (current_worker == nullptr) {
    throw Error(Errc::not_found, "this process is not a worker of a pool",
                "call this_worker() only in tasks, on the thread that runs them");
  }
  return *current_worker;
}

void* PoolWorker::find(const std::type_info& type) const {
  const auto at = objects_.find(std::type_index(type));
  if (at == objects_.end()) {
    throw Error(Errc::not_found, fmt::format("{} has no object of the type {}", name_, type.name()),
                "make it in PoolOptions::init: this_worker().emplace<Type>(...)");
  }
  return at->second.get();
}

void PoolWorker::set_task_title(std::string_view title) { show_title_(title); }

void PoolWorker::check_interrupt() const {
  if (is_interrupted()) {
    throw Error(Errc::cancelled, "the task was interrupted: it was cancelled, or exceeded TaskOptions::timeout");
  }
}

}  // namespace drover
