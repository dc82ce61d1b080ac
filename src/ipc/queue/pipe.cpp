#include "drover/ipc/pipe.hpp"

#include <bit>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/ipc/wait.hpp"
#include "ipc/object/local_openings.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/queue/queue_core.hpp"

namespace drover {
// One open end. The participants that have an end open are recorded as readers of its incoming queue; recovery
// removes dead ones. When this process closes its last copy, the other end must check.
struct Pipe::End {
  End(std::shared_ptr<ipc::QueueCore> incoming, std::shared_ptr<ipc::QueueCore> outgoing)
      : in(std::move(incoming)),
        out(std::move(outgoing)),
        opening(in->object(), [this] { set_reader(true); }, [this] { set_reader(false); }) {}

  void set_reader(bool is_reader) const {
    const Owner self = in->object().self();
    auto& readers = in->view().head().readers.at(self / 64U);
    const std::uint64_t bit = std::uint64_t{1} << (self % 64U);
    if (is_reader) {
      readers.fetch_or(bit);
      return;
    }
    readers.fetch_and(~bit);
    ipc::wake_always(out->view().head().record_ready);
    ipc::wake_always(in->view().head().slot_free);
    ipc::wake_always(in->view().head().bytes_free);
  }

  std::shared_ptr<ipc::QueueCore> in;
  std::shared_ptr<ipc::QueueCore> out;
  ipc::LocalOpening opening;
};

namespace {

// Whether nobody reads what this end writes, and nobody will: no participant is starting, or has opened the queues
// but not yet recorded itself as a reader.
bool is_other_end_gone(const ipc::QueueCore& incoming, const ipc::QueueCore& outgoing) {
  const auto& theirs = outgoing.view().head().readers;
  const auto& ours = incoming.view().head().readers;
  if (outgoing.object().membership().population().starting > 0) return false;
  std::uint32_t known = 0;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const std::uint64_t bits = theirs.at(i).load();
    if (bits != 0) return false;
    known += static_cast<std::uint32_t>(std::popcount(ours.at(i).load()));
  }
  return ipc::header_of(outgoing.object().data()).openers.load() <= known;
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
      end_(std::make_shared<End>(incoming_.core_.pointer(), outgoing_.core_.pointer())) {
  const auto is_gone = [end = std::weak_ptr(end_)] {
    const auto open = end.lock();
    return open == nullptr || is_other_end_gone(*open->in, *open->out);
  };
  incoming_.core_->peers().set_pipe_rule(is_gone);
  outgoing_.core_->peers().set_pipe_rule(is_gone);
}

PipeHandle Pipe::handle() const { return {.incoming = incoming_.handle(), .outgoing = outgoing_.handle()}; }

PutResult Pipe::send(std::span<const std::byte> message, Deadline deadline) {
  if (outgoing_.core().peers().is_pipe_end_gone()) return PutResult::peer_lost;
  return outgoing_.put(message, deadline);
}

PutResult Pipe::send(std::string_view message, Deadline deadline) {
  return send(std::as_bytes(std::span(message)), deadline);
}

PutResult Pipe::send(std::span<const std::byte> message, std::span<Lease> leases, Deadline deadline) {
  if (outgoing_.core().peers().is_pipe_end_gone()) return PutResult::peer_lost;
  return outgoing_.put(message, leases, deadline);
}

GetResult Pipe::receive(Message& into, Deadline deadline) { return incoming_.get(into, deadline); }

WaitSource::WaitSource(const Pipe& pipe) : WaitSource(pipe.incoming_) {}

}  // namespace drover
