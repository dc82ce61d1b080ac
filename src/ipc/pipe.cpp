#include "drover/ipc/pipe.hpp"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/mutex.hpp"
#include "drover/ipc/wait.hpp"
#include "ipc/object_layout.hpp"
#include "ipc/queue_core.hpp"

namespace drover {
namespace {

// How many copies of each end this process has. The keeper counts processes, so of the ends that are all in one
// process only that process knows. An end is named by the queue it reads.
class LocalEnds {
 public:
  using Name = std::pair<const Membership*, std::uint64_t>;

  static LocalEnds& instance() {
    static auto* const ends = new LocalEnds;  // never destroyed: pipes may outlive static destruction
    return *ends;
  }
  void add(const Name& name) DROVER_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++counts_[name];
  }
  void remove(const Name& name) DROVER_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (--counts_[name] == 0) counts_.erase(name);
  }
  bool has(const Name& name) DROVER_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return counts_.contains(name);
  }

 private:
  Mutex mutex_;
  std::map<Name, int> counts_ DROVER_GUARDED_BY(mutex_);
};

}  // namespace

// One open end: counted while it exists. When it goes, the other end, if it is here, must look.
struct Pipe::End {
  End(std::shared_ptr<QueueCore> incoming, std::shared_ptr<QueueCore> outgoing)
      : in(std::move(incoming)), out(std::move(outgoing)) {
    LocalEnds::instance().add(name());
  }
  ~End() {
    LocalEnds::instance().remove(name());
    ring_always(out->view().ring.head().record_ready);
    ring_always(in->view().ring.head().slot_free);
    ring_always(in->view().ring.head().bytes_free);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  [[nodiscard]] LocalEnds::Name name() const {
    return {&in->object().membership(), in->object().handle().generation};
  }

  std::shared_ptr<QueueCore> in;
  std::shared_ptr<QueueCore> out;
};

namespace {

// Whether nobody has the end that reads `theirs`: no other process has the pipe open, none is on its way, and this
// process has no copy of that end.
std::function<bool()> other_end_is_gone(const QueueCore& queue, std::uint64_t theirs) {
  return [&object = queue.object(), theirs] {
    return header_of(object.data()).openers.load() <= 1 && object.membership().population().starting == 0 &&
           !LocalEnds::instance().has({&object.membership(), theirs});
  };
}

}  // namespace

std::string PipeHandle::to_string() const { return fmt::format("{}/{}", incoming.to_string(), outgoing.to_string()); }

PipeHandle PipeHandle::parse(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) {
    throw Error(Errc::invalid_argument, fmt::format("'{}' is not the handle of a pipe", text),
                "pass what to_string() of a pipe's handle returned");
  }
  return {.incoming = ObjectHandle::parse(text.substr(0, slash)),
          .outgoing = ObjectHandle::parse(text.substr(slash + 1))};
}

std::pair<Pipe, Pipe> Pipe::make(const std::shared_ptr<Membership>& membership, const PipeOptions& options) {
  const QueueOptions each{.capacity = options.capacity, .bytes = options.bytes, .in_flight = 0};
  Pipe first(Queue(membership, each), Queue(membership, each));
  Pipe second(membership, {.incoming = first.handle().outgoing, .outgoing = first.handle().incoming});
  return {std::move(first), std::move(second)};
}

Pipe::Pipe(const std::shared_ptr<Membership>& membership, const PipeHandle& handle)
    : Pipe(Queue(membership, handle.incoming), Queue(membership, handle.outgoing)) {}

Pipe::Pipe(Queue incoming, Queue outgoing)
    : incoming_(std::move(incoming)),
      outgoing_(std::move(outgoing)),
      end_(std::make_shared<End>(incoming_.core_, outgoing_.core_)) {
  const std::uint64_t theirs = outgoing_.handle().generation;
  incoming_.core_->set_alone_rule(other_end_is_gone(*incoming_.core_, theirs));
  outgoing_.core_->set_alone_rule(other_end_is_gone(*outgoing_.core_, theirs));
}

PipeHandle Pipe::handle() const { return {.incoming = incoming_.handle(), .outgoing = outgoing_.handle()}; }

PutResult Pipe::send(std::span<const std::byte> message, Deadline deadline) {
  if (outgoing_.core_->is_peer_gone()) return PutResult::peer_lost;
  return outgoing_.put(message, deadline);
}

PutResult Pipe::send(std::string_view message, Deadline deadline) {
  return send(std::as_bytes(std::span(message)), deadline);
}

GetResult Pipe::receive(Message& into, Deadline deadline) { return incoming_.get(into, deadline); }

WaitSource::WaitSource(const Pipe& pipe) : WaitSource(pipe.incoming_) {}

}  // namespace drover
