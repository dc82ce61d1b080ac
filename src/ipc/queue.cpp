#include "drover/ipc/queue.hpp"

#include <utility>

#include "drover/ipc/wait.hpp"
#include "ipc/queue_core.hpp"

namespace drover {
namespace {

ObjectSpec spec_of(const QueueOptions& options) {
  return {.kind = ObjectKind::queue, .parameters = {options.capacity, options.bytes, options.in_flight}};
}

}  // namespace

std::string_view to_string(PutResult result) noexcept {
  switch (result) {
    case PutResult::put: return "put";
    case PutResult::timed_out: return "timed_out";
    case PutResult::closed: return "closed";
    case PutResult::peer_lost: return "peer_lost";
  }
  return "unknown";
}

std::string_view to_string(GetResult result) noexcept {
  switch (result) {
    case GetResult::got: return "got";
    case GetResult::timed_out: return "timed_out";
    case GetResult::closed: return "closed";
    case GetResult::peer_lost: return "peer_lost";
  }
  return "unknown";
}

Queue::Queue(std::shared_ptr<Membership> membership, const QueueOptions& options)
    : core_(std::make_shared<QueueCore>(SharedObject(std::move(membership), spec_of(options)))) {}

Queue::Queue(std::shared_ptr<Membership> membership, const ObjectHandle& handle)
    : core_(std::make_shared<QueueCore>(SharedObject(std::move(membership), handle, ObjectKind::queue))) {}

const ObjectHandle& Queue::handle() const noexcept { return core_->object().handle(); }

PutResult Queue::put(std::span<const std::byte> message, Deadline deadline) { return core_->put(message, deadline); }

PutResult Queue::put(std::string_view message, Deadline deadline) {
  return core_->put(std::as_bytes(std::span(message)), deadline);
}

PutResult Queue::put_many(std::span<const std::span<const std::byte>> messages, std::size_t& count,
                          Deadline deadline) {
  count = 0;
  for (const auto& message : messages) {
    if (const PutResult result = core_->put(message, deadline); result != PutResult::put) return result;
    ++count;
  }
  return PutResult::put;
}

GetResult Queue::get(Message& into, Deadline deadline) { return core_->get(into, deadline); }

GetResult Queue::get_many(std::vector<Message>& into, std::size_t most, Deadline deadline) {
  into.clear();
  while (into.size() < most) {
    Message message;
    const GetResult result = core_->get(message, into.empty() ? deadline : Deadline::after({}));
    if (result != GetResult::got) return into.empty() ? result : GetResult::got;
    into.push_back(std::move(message));
  }
  return GetResult::got;
}

GetResult Queue::receive(Delivery& into, Deadline deadline) { return core_->receive(into, deadline); }

Loan Queue::loan(std::size_t bytes, Deadline deadline) {
  PutResult result = PutResult::timed_out;
  return core_->loan(bytes, deadline, result);
}

PutResult Queue::publish(Loan& loan, Deadline deadline) { return core_->publish(loan, deadline); }

int Queue::fd() { return core_->fd(); }
void Queue::close() { core_->close(); }
bool Queue::is_closed() const noexcept { return core_->is_closed(); }
std::uint64_t Queue::size() const noexcept { return core_->view().ring.count(); }
std::uint64_t Queue::capacity() const noexcept { return core_->view().ring.capacity(); }

WaitSource::WaitSource(const Queue& queue)
    : bell_(&queue.core_->view().ring.head().record_ready),
      is_ready_([core = queue.core_] { return core->is_readable(); }),
      membership_(queue.core_->object().shared_membership()) {}

}  // namespace drover
