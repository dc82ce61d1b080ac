// Queues of bytes and tensors. What the bytes mean is the package's affair.
#include "drover/ipc/queue.hpp"

#include <array>
#include <cstring>

#include "drover/base/error.hpp"
#include "drover/tensor/send.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

// A message: how many tensors, their records, and the payload.
constexpr std::size_t kSmall = 1024;
constexpr std::size_t kMostTensors = 32;
constexpr std::size_t kViewed = 4096;  // larger payloads are not copied out of the queue

// The payload of a message where it lies in the queue.
struct Payload {
  Message message;
  std::size_t begin = 0;

  [[nodiscard]] std::span<const std::byte> bytes() const { return message.bytes().subspan(begin); }
};

int get_payload_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto bytes = nb::inst_ptr<Payload>(self)->bytes();
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): it is marked as read-only
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

  int put(nb::handle payload, nb::handle tensors, const Timeout& timeout) {
    memory_.collect();
    const Bytes bytes(payload);
    if (nb::len(tensors) != 0) return put_with(bytes.bytes(), to_tensors(tensors), timeout);
    if (bytes.bytes().size() < kSmall) return put_small(bytes.bytes(), timeout);
    return put_large(bytes.bytes(), timeout);
  }

  nb::object get(const Timeout& timeout) {
    memory_.collect();
    Message message;
    const GetResult result = await(
        timeout, [&](Deadline deadline) { return queue_.get(message, deadline); },
        [](GetResult got) { return got != GetResult::timed_out; });
    memory_.collect();  // whoever answers has often let go of what it was sent
    if (result != GetResult::got) return nb::int_(static_cast<int>(result));
    return unpack_message(std::move(message));
  }

  [[nodiscard]] Queue& queue() noexcept { return queue_; }

 private:
  static bool is_over(PutResult result) { return result != PutResult::timed_out; }

  int put_small(std::span<const std::byte> payload, const Timeout& timeout) {
    std::array<std::byte, kSmall> whole;  // NOLINT(*-member-init): written as far as it is sent
    whole[0] = std::byte{0};
    std::memcpy(&whole[1], payload.data(), payload.size());
    const auto message = std::span(whole).first(payload.size() + 1);
    return static_cast<int>(
        await(timeout, [&](Deadline deadline) { return queue_.put(message, deadline); }, is_over));
  }

  // Written once, in place.
  int put_large(std::span<const std::byte> payload, const Timeout& timeout) {
    const Deadline end = to_deadline(timeout);  // for room and for the place in line together
    Loan loan;
    const auto lent = await(
        timeout,
        [&](Deadline deadline) {
          loan = queue_.loan(payload.size() + 1, deadline);
          return loan.result();
        },
        is_over);
    if (lent != PutResult::put) return static_cast<int>(lent);
    {
      const Released free;
      loan.bytes()[0] = std::byte{0};
      std::memcpy(&loan.bytes()[1], payload.data(), payload.size());
    }
    const Timeout left = timeout ? Timeout(std::chrono::duration<double>(end.remaining()).count()) : std::nullopt;
    return static_cast<int>(await(left, [&](Deadline deadline) { return queue_.publish(loan, deadline); }, is_over));
  }

  int put_with(std::span<const std::byte> payload, const std::vector<Tensor>& tensors, const Timeout& timeout) {
    if (tensors.size() > kMostTensors) {
      throw Error(Errc::limit_reached, "one message carries 32 tensors at most, and these are more",
                  "send them in several messages, or put them into one tensor");
    }
    std::vector<std::byte> whole(1 + tensors.size() * kTensorRecordBytes + payload.size());
    std::vector<Lease> leases;
    whole[0] = static_cast<std::byte>(tensors.size());
    auto at = whole.begin() + 1;
    for (const Tensor& tensor : tensors) {
      PackedTensor packed = pack(tensor);
      at = std::ranges::copy(packed.record, at).out;
      leases.push_back(std::move(packed.lease));
    }
    std::ranges::copy(payload, at);
    return static_cast<int>(
        await(timeout, [&](Deadline deadline) { return queue_.put(whole, leases, deadline); }, is_over));
  }

  nb::object unpack_message(Message&& message) {
    const auto bytes = message.bytes();
    const std::size_t count = bytes.empty() ? 0 : static_cast<std::size_t>(bytes[0]);
    const std::size_t begin = 1 + count * kTensorRecordBytes;
    if (bytes.size() < begin || message.leases().size() != count)
      throw Error(Errc::corrupt, "a message in this queue is not one of a Python program");
    std::vector<Tensor> tensors;
    std::vector<Lease> leases = message.take_leases();
    for (std::size_t i = 0; i < count; ++i) {
      tensors.push_back(
          unpack(memory_, bytes.subspan(1 + i * kTensorRecordBytes, kTensorRecordBytes), std::move(leases[i])));
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
                                    "Bytes of a message, where they lie.");
  nb::class_<PyQueue>(module, "Queue", "A queue of messages: bytes and tensors.")
      .def(nb::init<const PySession&, std::uint64_t, std::uint64_t>(), nb::arg("session"), nb::arg("capacity"),
           nb::arg("bytes"), nb::call_guard<Released>())
      .def_static(
          "open", [](const PySession& session, const std::string& handle) { return PyQueue(session, handle); },
          nb::arg("session"), nb::arg("handle"), nb::call_guard<Released>(), "One that another made.")
      .def_prop_ro("handle", &PyQueue::handle, "By this name others open it.")
      .def("put", &PyQueue::put, nb::arg("payload"), nb::arg("tensors"), nb::arg("timeout").none(),
           "0 if it is put, else why not: 1 time is over, 2 closed, 3 nobody is left.")
      .def("get", &PyQueue::get, nb::arg("timeout").none(),
           "(payload, tensors), or why there is none: 1 time is over, 2 closed, 3 nobody is left.")
      .def(
          "close", [](PyQueue& self) { self.queue().close(); }, "No more puts, by anybody.")
      .def_prop_ro(
          "is_closed", [](PyQueue& self) { return self.queue().is_closed(); }, "Whether somebody closed it.")
      .def(
          "size", [](PyQueue& self) { return self.queue().size(); }, "How many messages wait, roughly.")
      .def_prop_ro(
          "capacity", [](PyQueue& self) { return self.queue().capacity(); }, "How many it holds at most.")
      .def("fileno", [](PyQueue& self) { return self.queue().fd(); }, "Readable when a get may not have to wait.");
}

}  // namespace drover::python
