// Queues of bytes and tensors. The meaning of the bytes is up to the package.
#include "drover/ipc/queue.hpp"

#include <array>
#include <cstring>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/tensor/send.hpp"
#include "support.hpp"
#include "tensor/tensor_access.hpp"

namespace drover::python {
namespace {

// A message is the size of the record of its tensors, in a fixed number of bytes or one zero, the record, and the
// payload.
constexpr std::size_t kSmall = 1024;
constexpr std::byte kNoTensors{0};
constexpr std::byte kTensors{1};
constexpr std::size_t kHeadBytes = 1 + sizeof(std::uint64_t);

// The payload of a message, in place in the queue.
struct Payload {
  Message message;
  std::size_t begin = 0;

  [[nodiscard]] std::span<const std::byte> bytes() const { return message.bytes().subspan(begin); }
};

int get_payload_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto bytes = nb::inst_ptr<Payload>(self)->bytes();
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): the buffer is marked as read-only
  return PyBuffer_FillInfo(view, self, const_cast<std::byte*>(bytes.data()), static_cast<Py_ssize_t>(bytes.size()), 1,
                           flags);
}

std::array<PyType_Slot, 2> payload_slots = {
    PyType_Slot{Py_bf_getbuffer, reinterpret_cast<void*>(&get_payload_buffer)}, PyType_Slot{0, nullptr}};

class PyQueue {
 public:
  PyQueue(const PySession& session, std::uint64_t capacity, std::uint64_t bytes)
      : queue_(session.session, {.capacity = capacity, .bytes = bytes}), memory_(session.memory) {}
  PyQueue(const PySession& session, const std::string& handle)
      : queue_(session.session, ObjectHandle::parse(handle)), memory_(session.memory) {}

  [[nodiscard]] std::string handle() const { return queue_.handle().to_string(); }

  PutResult put(nb::handle payload, nb::handle tensors, const Timeout& timeout) {
    const Bytes bytes(payload);
    std::vector<Tensor> made;
    const auto all = tensors_of(tensors, made);
    if (!all.empty()) return put_with(bytes.bytes(), all, timeout);
    if (bytes.bytes().size() < kSmall) return put_small(bytes.bytes(), timeout);
    return put_large(bytes.bytes(), timeout);
  }

  nb::object get(const Timeout& timeout) {
    Message message;
    const auto get_until = [&](Deadline deadline) {
      // Tensors of messages before are released while there is nothing to do rather than when the message has come.
      if (!deadline.has_passed()) tensor::TensorAccess::release_retired(memory_);
      return queue_.get(message, deadline);
    };
    const GetResult result = await(timeout, get_until, [](GetResult got) { return got != GetResult::timed_out; });
    if (result != GetResult::got) return nb::cast(result);
    return unpack_message(std::move(message));
  }

  [[nodiscard]] Queue& queue() noexcept { return queue_; }

 private:
  static bool is_over(PutResult result) { return result != PutResult::timed_out; }

  PutResult put_small(std::span<const std::byte> payload, const Timeout& timeout) {
    std::array<std::byte, kSmall> whole;  // NOLINT(*-member-init): only the part that is written is sent
    whole[0] = kNoTensors;
    std::memcpy(&whole[1], payload.data(), payload.size());
    const auto message = std::span(whole).first(payload.size() + 1);
    return await(timeout, [&](Deadline deadline) { return queue_.put(message, deadline); }, is_over);
  }

  // Copies the payload only once, into the queue.
  PutResult put_large(std::span<const std::byte> payload, const Timeout& timeout) {
    const Deadline end = to_deadline(timeout);  // of the loan and of publishing together
    Loan loan;
    const auto lent = await(
        timeout,
        [&](Deadline deadline) {
          loan = queue_.loan(payload.size() + 1, deadline);
          return loan.result();
        },
        is_over);
    if (lent != PutResult::put) return lent;
    {
      const Released free;
      loan.bytes()[0] = kNoTensors;
      std::memcpy(&loan.bytes()[1], payload.data(), payload.size());
    }
    const Timeout left = timeout ? Timeout(std::chrono::duration<double>(end.remaining()).count()) : std::nullopt;
    return await(left, [&](Deadline deadline) { return queue_.publish(loan, deadline); }, is_over);
  }

  PutResult put_with(std::span<const std::byte> payload, std::span<const Tensor> tensors, const Timeout& timeout) {
    PackedTensors packed = pack_all(tensors);
    const std::uint64_t record = packed.record.size();
    std::vector<std::byte> whole(kHeadBytes + record + payload.size());
    whole[0] = kTensors;
    std::memcpy(&whole[1], &record, sizeof(record));
    const auto at = std::ranges::copy(packed.record, whole.begin() + kHeadBytes).out;
    std::ranges::copy(payload, at);
    return await(timeout, [&](Deadline deadline) { return queue_.put(whole, packed.leases, deadline); }, is_over);
  }

  // Empty if the message has no tensors.
  static std::span<const std::byte> record_of(const Message& message) {
    const auto bytes = message.bytes();
    if (!bytes.empty() && bytes[0] == kNoTensors && message.leases().empty()) return {};
    std::uint64_t record = 0;
    if (bytes.size() >= kHeadBytes && bytes[0] == kTensors) std::memcpy(&record, &bytes[1], sizeof(record));
    if (record == 0 || record > bytes.size() - kHeadBytes) {
      throw Error(Errc::corrupt, "a message in this queue was not put by drover's Python package",
                  "use the queue from Python programs only, or only from C++ programs");
    }
    return bytes.subspan(kHeadBytes, record);
  }

  nb::object unpack_message(Message&& message) {
    const auto bytes = message.bytes();
    const std::span<const std::byte> record = record_of(message);
    const std::size_t begin = record.empty() ? 1 : kHeadBytes + record.size();
    std::vector<Tensor> tensors;
    if (!record.empty()) {
      std::vector<Lease> leases = message.take_leases();
      tensors = unpack_all(memory_, record, leases);
    }
    nb::object payload;
    if (bytes.size() - begin < kViewed) {
      payload = to_bytes(bytes.subspan(begin));
    } else {
      payload = nb::cast(Payload{.message = std::move(message), .begin = begin});
    }
    return nb::make_tuple(payload, from_tensors(std::move(tensors)));
  }

  Queue queue_;
  Memory memory_;
};

}  // namespace

void bind_queue(nb::module_& module) {
  const nb::class_<Payload> payload(module, "Payload", nb::type_slots(payload_slots.data()),
                                    "The bytes of a message, in place in the queue.");
  nb::enum_<PutResult>(module, "PutResult", "How a put ended.")
      .value("put", PutResult::put)
      .value("timed_out", PutResult::timed_out)
      .value("closed", PutResult::closed)
      .value("peer_lost", PutResult::peer_lost, "There is no room, and no other process that could make some.");
  nb::enum_<GetResult>(module, "GetResult", "How a get ended that returned no message.")
      .value("timed_out", GetResult::timed_out)
      .value("closed", GetResult::closed)
      .value("peer_lost", GetResult::peer_lost, "The queue is empty, and no other process could put a message.");
  nb::class_<PyQueue>(module, "Queue", "A queue of messages: bytes and tensors.")
      .def(nb::init<const PySession&, std::uint64_t, std::uint64_t>(), nb::arg("session"), nb::arg("capacity"),
           nb::arg("bytes"), nb::call_guard<Released>())
      .def_static(
          "open", [](const PySession& session, const std::string& handle) { return PyQueue(session, handle); },
          nb::arg("session"), nb::arg("handle"), nb::call_guard<Released>(), "Open an existing queue.")
      .def_prop_ro("handle", &PyQueue::handle, "The name by which other processes open it.")
      .def("put", &PyQueue::put, nb::arg("payload"), nb::arg("tensors"), nb::arg("timeout").none(), "Put a message.")
      .def("get", &PyQueue::get, nb::arg("timeout").none(), "(payload, tensors), or a GetResult.")
      .def(
          "close", [](PyQueue& self) { self.queue().close(); }, "Refuse puts by all processes.")
      .def(
          "size", [](PyQueue& self) { return self.queue().size(); }, "The approximate number of messages.")
      .def_prop_ro(
          "capacity", [](PyQueue& self) { return self.queue().capacity(); }, "The number of messages that fit.")
      .def("fileno", [](PyQueue& self) { return self.queue().fd(); }, "A descriptor, readable if get may not block.");
}

}  // namespace drover::python
