#include "drover/ipc/queue.hpp"

#include <utility>

#include "drover/base/error.hpp"
#include "drover/ipc/wait.hpp"
#include "ipc/queue/queue_core.hpp"

namespace drover {
namespace {

ObjectSpec spec_of(const QueueOptions& options) {
  return {.kind = ObjectKind::queue,
          .parameters = {options.capacity, options.bytes, options.in_flight, options.waits_alone ? 1U : 0U}};
}

}  // namespace

Queue::Queue(std::shared_ptr<Membership> membership, const QueueOptions& options)
    : core_(std::make_shared<ipc::QueueCore>(SharedObject(std::move(membership), spec_of(options)))) {}

Queue::Queue(std::shared_ptr<Membership> membership, const ObjectHandle& handle)
    : core_(std::make_shared<ipc::QueueCore>(SharedObject(std::move(membership), handle, ObjectKind::queue))) {}

const ObjectHandle& Queue::handle() const { return core().object().handle(); }

PutResult Queue::put(std::span<const std::byte> message, Deadline deadline) {
  return core().put(message, {}, deadline);
}

PutResult Queue::put(std::span<const std::byte> message, std::span<Lease> leases, Deadline deadline) {
  return core().put(message, leases, deadline);
}

PutResult Queue::put(std::string_view message, Deadline deadline) {
  return core().put(std::as_bytes(std::span(message)), {}, deadline);
}

PutResult Queue::put_many(std::span<const std::span<const std::byte>> messages, std::size_t& count,
                          Deadline deadline) {
  count = 0;
  for (const auto& message : messages) {
    if (const PutResult result = core().put(message, {}, deadline); result != PutResult::put) return result;
    ++count;
  }
  return PutResult::put;
}

GetResult Queue::get(Message& into, Deadline deadline) { return core().get(into, deadline); }

// Returns the messages taken before an error; the next call meets the error again.
GetResult Queue::get_many(std::vector<Message>& into, std::size_t most, Deadline deadline) {
  require(most > 0, "get_many takes at least one message");
  ipc::QueueCore& queue = core();
  std::size_t count = 0;
  GetResult result = GetResult::got;
  try {
    while (count < most) {
      if (count == into.size()) into.emplace_back();  // existing messages keep their memory for reuse
      result = queue.get(into[count], count == 0 ? deadline : Deadline::after({}));
      if (result != GetResult::got) break;
      ++count;
    }
  } catch (...) {
    if (count == 0) throw;
  }
  into.resize(count);
  return count > 0 ? GetResult::got : result;
}

GetResult Queue::receive(Delivery& into, Deadline deadline) { return core().receive(into, deadline); }

Loan Queue::loan(std::size_t bytes, Deadline deadline) { return core().loan(bytes, deadline); }

PutResult Queue::publish(Loan& loan, Deadline deadline) { return core().publish(loan, deadline); }

int Queue::fd() { return core().fd(); }
void Queue::close() { core().close(); }
bool Queue::is_closed() const { return core().view().is_closed(); }
std::uint64_t Queue::size() const { return core().view().size(); }
std::uint64_t Queue::capacity() const { return core().view().ring.capacity(); }

WaitSource::WaitSource(const Queue& queue)
    : bell_(&queue.core().view().head().record_ready),
      is_ready_([core = queue.core_] { return core->is_readable(); }),
      membership_(queue.core().object().shared_membership()) {}

}  // namespace drover
