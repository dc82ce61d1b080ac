#include "calls.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "plain.hpp"

namespace drover::python {
namespace {

constexpr std::size_t kBatch = 64;                               // tasks submitted per release of the GIL
constexpr std::size_t kTasksPerWorker = 1024;                    // in flight
constexpr std::size_t kBytesInFlight = std::size_t{256} << 20U;  // unless these are few tasks
constexpr std::size_t kFewPerWorker = 2;

Error ended_error() {
  return {Errc::cancelled, "the pool of this call has ended", "read the results before the pool is dropped"};
}

Error cut_error() { return {Errc::cancelled, "the call was cancelled before all of its tasks were submitted"}; }

bool is_end_of_pool(const std::exception_ptr& refusal) {
  if (refusal == nullptr) return false;
  try {
    std::rethrow_exception(refusal);
  } catch (const Error& error) {
    return error.code() == Errc::cancelled || error.code() == Errc::peer_lost;
  } catch (...) {
    return false;
  }
}

bool has_text(const std::exception_ptr& error, const std::string& text) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& found) {
    return found.message().find(text) != std::string::npos;
  } catch (...) {
    return false;
  }
}

// Releases the GIL, as every function must that takes the pool's mutex.
std::size_t count_workers(const Pool& pool) {
  const Released free;
  return std::max<std::size_t>(pool.size(), 1);
}

}  // namespace

// The last reference may be dropped by a thread of the pool.
Group::~Group() {
  const MutexLock lock(mutex_);
  if (!callback_.is_valid()) return;
  const Acquired interpreter;
  interpreter ? callback_.reset() : static_cast<void>(callback_.release());
}

void Group::finish(std::size_t index, bool is_good, std::size_t bytes) {
  nb::object callback;
  {
    const MutexLock lock(mutex_);
    if (!is_good) is_good_ = false;
    bytes_ -= bytes;
    const std::size_t done = ++done_;
    if (!is_ordered_) {
      arrivals_.push_back(index);
      changed_.notify_all();
    } else if (done >= wake_at_) {
      changed_.notify_all();
    }
    if (!is_closed_ || done != submitted_ || !callback_.is_valid()) return;
    callback = std::move(callback_);
  }
  run(callback);
}

void Group::run(nb::object& callback) noexcept {
  const Acquired interpreter;
  if (!interpreter) {
    callback.release();
    return;
  }
  const nb::object call = std::move(callback);
  try {
    call();
  } catch (nb::python_error& error) {
    error.discard_as_unraisable(call);
  }
}

void Group::add(std::size_t tasks, std::size_t bytes) {
  const MutexLock lock(mutex_);
  submitted_ += tasks;
  bytes_ += bytes;
}

void Group::close(nb::object callback) {
  if (callback.is_none()) callback.reset();
  {
    const MutexLock lock(mutex_);
    is_closed_ = true;
    if (!callback.is_valid()) return;
    if (done_ != submitted_) {
      callback_ = std::move(callback);
      return;
    }
  }
  run(callback);
}

bool Group::wait_done(std::size_t count, Deadline deadline) {
  const MutexLock lock(mutex_);
  while (done_ < count) {
    wake_at_ = std::min(wake_at_, count);  // another thread may wait for fewer
    if (deadline.has_passed()) return false;
    changed_.wait_for(mutex_, std::min<std::chrono::nanoseconds>(deadline.remaining(), std::chrono::seconds(1)));
  }
  wake_at_ = std::numeric_limits<std::size_t>::max();
  changed_.notify_all();  // other waiters set wake_at_ again
  return true;
}

std::optional<std::size_t> Group::wait_next(Deadline deadline) {
  const MutexLock lock(mutex_);
  while (arrivals_.empty()) {
    if (deadline.has_passed()) return std::nullopt;
    changed_.wait_for(mutex_, std::min<std::chrono::nanoseconds>(deadline.remaining(), std::chrono::seconds(1)));
  }
  const std::size_t first = arrivals_.front();
  arrivals_.pop_front();
  return first;
}

PythonCall::PythonCall(Encoder arguments, bool is_plain, const TaskOptions& options, std::shared_ptr<Group> group,
                       std::size_t index)
    : TaskCall(python_task().registered(), std::move(arguments), options),
      is_plain_(is_plain),

      group_(std::move(group)),
      index_(index),
      bytes_(this->arguments().size()) {
  for (const Tensor& tensor : tensors()) bytes_ += tensor.bytes();
}

void PythonCall::deliver(Decoder& from) {
  release_arguments();
  if (!begin_finish()) return;
  std::exception_ptr error;
  try {
    answer_ = Codec<Answer>::read(from);
  } catch (...) {
    error = std::current_exception();
  }
  const bool is_good = error == nullptr && !answer_.is_error && answer_.tensors.empty();
  finish(std::move(error));
  group_->finish(index_, is_good, bytes_);
}

void PythonCall::refuse(std::exception_ptr error) {
  const bool is_first = begin_finish();
  if (is_first) shown_ = find_shown(error);
  release_arguments();
  if (!is_first) return;
  finish(std::move(error));
  group_->finish(index_, false, bytes_);
}

// On a thread of the pool, without the GIL: only copies what rethrow needs.
std::unique_ptr<PythonCall::Shown> PythonCall::find_shown(const std::exception_ptr& error) const noexcept {
  try {
    const auto bytes = std::as_bytes(std::span(arguments()));
    auto shown = std::make_unique<Shown>(Shown{.text = "(" + describe_values(bytes, tensors()) + ")"});
    if (!has_text(error, shown->text)) return nullptr;
    if (!is_plain_) return shown;
    Decoder from(bytes, tensors());
    const auto packet = Codec<Packet>::read(from);
    shown->function.assign(reinterpret_cast<const char*>(packet.function.data()), packet.function.size());
    shown->payload.assign(reinterpret_cast<const char*>(packet.payload.data()), packet.payload.size());
    return shown;
  } catch (...) {  // no memory: the error stays as it is
    return nullptr;
  }
}

void PythonCall::rethrow() const {
  if (shown_ == nullptr) std::rethrow_exception(error());
  const CallsPython scope;
  try {
    std::rethrow_exception(error());
  } catch (const Error& lost) {
    std::string call = group_->title() + "(...)";
    if (!shown_->function.empty()) {
      try {
        const auto payload = std::as_bytes(std::span(shown_->payload));
        const nb::object describe = nb::module_::import_("drover._functions").attr("describe_call");
        const int way = static_cast<unsigned char>(shown_->function[0]);
        call = nb::cast<std::string>(describe(group_->title(), way, unpickled(payload)));
      } catch (const nb::python_error& failed) {  // must not replace the error, which can be taken once only
        if (failed.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();  // handled by the caller, after the error
      }
    }
    std::string message = lost.message();
    message.replace(message.find(shown_->text), shown_->text.size(), call);
    throw Error(lost.code(), std::move(message), lost.remedy(), lost.where());
  }
}

bool PythonCall::cancel() {
  if (!cancel_call(*this)) return false;
  release_arguments();
  group_->finish(index_, false, bytes_);
  return true;
}

std::string PythonCall::describe_call() const { return fmt::format("task {} '{}'", number, group_->title()); }

Calls::Calls(const std::shared_ptr<Pool>& pool, CalledFunction function, bool is_ordered)
    : pool_(pool),
      memory_(pool->memory()),
      function_(std::move(function)),
      group_(std::make_shared<Group>(function_.title, is_ordered)),
      workers_(count_workers(*pool)) {}

// Tasks may hold memory of the pool, which must be released without the GIL.
Calls::~Calls() {
  if (Py_IsInitialized() == 0) return;
  const Released free;
  calls_.clear();
}

const Calls::CallPtr& Calls::at(std::size_t index) const {
  if (index < first_ || index >= size() || calls_[index - first_] == nullptr)
    throw Error(Errc::invalid_argument, "there is no result with this index, or it was already taken");
  return calls_[index - first_];
}

// Says in an error of pickling which parameter the object is for that cannot be sent.
void Calls::name_argument(const nb::python_error& error) const {
  const nb::bytes bytes(function_.bytes.data(), function_.bytes.size());
  nb::module_::import_("drover._culprits")
      .attr("name_argument")(error.value(), bytes, from_tensors(std::vector<Tensor>(function_.tensors)));
}

Calls::CallPtr Calls::make(nb::handle argument) {
  const CallsPython scope;
  static const nb::object& dumps = *new nb::object(nb::module_::import_("drover._objects").attr("dumps"));
  Pickled pickled = [&] {
    try {
      return to_message(argument, memory_, dumps);
    } catch (const nb::python_error& error) {
      name_argument(error);
      throw;
    }
  }();
  const Bytes payload(pickled.payload);
  const Packet packet{.function = std::as_bytes(std::span(function_.bytes)),
                      .payload = payload.bytes(),
                      .function_tensors = function_.tensors,
                      .tensors = std::move(pickled.tensors)};
  return std::make_shared<PythonCall>(Task<Answer(Packet)>::encode(packet), pickled.is_plain, function_.options,
                                      group_, size());
}

// Releases the GIL: the pool may drop memory that Python objects hold.
std::exception_ptr Calls::start(std::vector<CallPtr>& made) {
  const Released free;
  const auto pool = pool_.lock();
  std::exception_ptr refusal;
  for (const CallPtr& call : made) {
    group_->add(1, call->bytes());
    try {
      if (is_cut_) throw cut_error();
      if (pool == nullptr) throw ended_error();
      pool->submit(call);
    } catch (...) {
      refusal = std::current_exception();
      call->refuse(refusal);
    }
    ++started_;
  }
  made.clear();
  return refusal;
}

void Calls::submit(nb::handle argument) {
  std::vector<CallPtr> made{make(argument)};
  calls_.push_back(made.front());
  if (const auto refusal = start(made)) std::rethrow_exception(refusal);
}

bool Calls::has_room() const noexcept {
  const std::size_t tasks = group_->in_flight();
  if (tasks < kFewPerWorker * workers_) return true;
  return tasks < kTasksPerWorker * workers_ && group_->bytes_in_flight() < kBytesInFlight;
}

// Dropping the last reference may run Python code that calls this object again; items_ is empty by then.
void Calls::drop_items() noexcept {
  const CallsPython scope;
  const nb::object dropped = std::move(items_);
}

// True once the items are exhausted. While the iterator or pickling runs, another thread may cancel and drop the
// items.
bool Calls::collect_some(std::vector<CallPtr>& made) {
  const CallsPython scope;
  const nb::object items = items_;
  std::size_t bytes = 0;
  while (items_.is_valid() && made.size() < kBatch && bytes < kBytesInFlight / kBatch) {
    const nb::object next = nb::steal(PyIter_Next(items.ptr()));
    if (!next.is_valid()) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      return true;
    }
    if (!items_.is_valid()) break;
    made.push_back(make(next));
    calls_.push_back(made.back());
    bytes += made.back()->bytes();
  }
  return !items_.is_valid();
}

bool Calls::feed(bool is_bounded) {
  std::vector<CallPtr> made;
  while (items_.is_valid() && (!is_bounded || has_room())) {
    try {
      if (collect_some(made)) drop_items();
    } catch (...) {
      drop_items();
      static_cast<void>(start(made));
      throw;
    }
    if (is_end_of_pool(start(made))) drop_items();  // reading the results raises the error
    if (is_main_thread()) handle_signals();
  }
  if (is_cut_) throw cut_error();
  return !items_.is_valid();
}

void Calls::wait_room() {
  await(
      std::nullopt,
      [&](Deadline deadline) {
        if (has_room()) return true;
        const std::size_t in_flight = group_->in_flight();
        return group_->wait_done(group_->submitted() - std::min(in_flight - 1, in_flight / 2), deadline);
      },
      [](bool is_over) { return is_over; });
}

bool Calls::wait_all(const Timeout& timeout) {
  return await(
      timeout, [&](Deadline deadline) { return group_->wait_done(group_->submitted(), deadline); },
      [](bool is_over) { return is_over; });
}

bool Calls::wait_one(std::size_t index, const Timeout& timeout) {
  const CallPtr call = at(index);
  return await(
      timeout, [&](Deadline deadline) { return call->wait(deadline) == WaitResult::done; },
      [](bool is_over) { return is_over; });
}

std::optional<std::size_t> Calls::wait_next(const Timeout& timeout) {
  return await(
      timeout, [&](Deadline deadline) { return group_->wait_next(deadline); },
      [](const std::optional<std::size_t>& index) { return index.has_value(); });
}

// Moves the others only if they are fewer.
void Calls::drop_taken() noexcept {
  while (taken_ < calls_.size() && calls_[taken_] == nullptr) ++taken_;
  if (taken_ <= calls_.size() / 2) return;
  calls_.erase(calls_.begin(), calls_.begin() + static_cast<std::ptrdiff_t>(taken_));
  first_ += std::exchange(taken_, 0);
}

nb::object Calls::take(std::size_t index) {
  const CallPtr call = at(index);
  calls_[index - first_] = nullptr;
  drop_taken();
  if (call->error() != nullptr) call->rethrow();
  Answer& answer = call->answer();
  nb::object payload = to_bytes(std::as_bytes(std::span(answer.payload)));
  if (!answer.is_error && answer.tensors.empty()) return payload;
  return nb::make_tuple(answer.is_error, payload, from_tensors(std::move(answer.tensors)));
}

nb::list Calls::take_all() {
  nb::list all;
  for (std::size_t i = first_ + taken_, count = size(); i < count; ++i) all.append(take(i));
  return all;
}

bool Calls::is_running(std::size_t index) const {
  const CallPtr call = at(index);
  const Released free;
  const auto pool = pool_.lock();
  if (pool == nullptr || call->is_done()) return false;
  return std::ranges::any_of(pool->workers(),
                             [&](const PoolWorkerInfo& worker) { return worker.task == call->number; });
}

bool Calls::cancel() {
  if (items_.is_valid()) is_cut_ = true;
  drop_items();
  std::vector<CallPtr> calls = calls_;
  const std::size_t started = std::max<std::size_t>(started_, first_) - first_;
  bool is_cancelled =
      first_ == 0 && taken_ == 0 && started >= calls.size();  // results that were taken were not cancelled
  const Released free;
  calls.resize(std::min(started, calls.size()));  // the thread that submits the others refuses them
  for (const CallPtr& call : calls) {
    if (call == nullptr || !call->cancel()) is_cancelled = false;
  }
  return is_cancelled;
}

}  // namespace drover::python
