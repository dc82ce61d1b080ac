#include "process/template/template_wire.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/sys.hpp"
#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "process/spawn/standard_streams.hpp"

namespace drover::process {
namespace {

constexpr std::uint64_t kVersion = 1;
constexpr std::chrono::seconds kTimeToSend{10};

class Writer {
 public:
  void number(std::uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(std::string_view value) {
    number(value.size());
    bytes_.append(value);
  }
  template <class Items, class Write>
  void list(const Items& items, Write write) {
    number(items.size());
    for (const auto& item : items) write(item);
  }
  void texts(const std::vector<std::string>& items) {
    list(items, [this](const std::string& item) { text(item); });
  }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    std::memcpy(&value, piece(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(piece(number())); }
  // `read` consumes at least one number each, so a false count ends soon.
  template <class Read>
  void list(Read read) {
    for (std::uint64_t count = number(); count > 0; --count) read();
  }
  std::vector<std::string> texts() {
    std::vector<std::string> items;
    list([&] { items.push_back(text()); });
    return items;
  }
  void finish() const {
    if (!left_.empty()) fail();
  }

 private:
  [[noreturn]] static void fail() {
    throw Error(Errc::corrupt, "a template received an order that it does not understand",
                "application and template may be of different versions; start the application again");
  }
  std::string_view piece(std::uint64_t length) {
    if (length > left_.size()) fail();
    const auto taken = left_.substr(0, length);
    left_.remove_prefix(length);
    return taken;
  }

  std::string_view left_;
};

using Control = std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)>;

std::vector<Fd> descriptors_in(msghdr& message) {
  std::vector<Fd> found;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    std::vector<int> numbers((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(numbers.data(), CMSG_DATA(part), numbers.size() * sizeof(int));
    for (const int number : numbers) found.emplace_back(number);
  }
  return found;
}

}  // namespace

std::string to_bytes(const TemplateOrder& order) {
  Writer out;
  out.number(kVersion);
  out.number(order.start);
  out.texts(order.arguments);
  out.number(order.own_arguments);
  out.texts(order.variables);
  out.list(order.targets, [&](int target) { out.number(static_cast<std::uint64_t>(target)); });
  out.number(order.creation_mask);
  out.number(static_cast<std::uint64_t>(order.plan.group));
  out.number(static_cast<std::uint64_t>(order.plan.parent_death_signal));
  out.number(order.plan.has_niceness ? 1 : 0);
  out.number(static_cast<std::uint64_t>(order.plan.niceness));
  out.list(order.plan.cpus, [&](unsigned long bits) { out.number(bits); });
  out.text(order.plan.folder);
  out.list(order.plan.limits, [&](const std::pair<int, KernelLimit>& limit) {
    out.number(static_cast<std::uint64_t>(limit.first));
    out.number(limit.second.soft);
    out.number(limit.second.hard);
  });
  return out.take();
}

TemplateOrder order_from_bytes(std::string_view bytes) {
  Reader in(bytes);
  TemplateOrder order;
  if (in.number() != kVersion) in = Reader("");  // makes the next read fail
  order.start = in.number();
  order.arguments = in.texts();
  order.own_arguments = in.number();
  order.variables = in.texts();
  in.list([&] { order.targets.push_back(static_cast<int>(in.number())); });
  order.creation_mask = in.number();
  order.plan.group = static_cast<ChildGroup>(in.number());
  order.plan.parent_death_signal = static_cast<int>(in.number());
  order.plan.has_niceness = in.number() != 0;
  order.plan.niceness = static_cast<int>(in.number());
  in.list([&] { order.plan.cpus.push_back(in.number()); });
  order.plan.folder = in.text();
  in.list([&] {
    const auto resource = static_cast<int>(in.number());
    const std::uint64_t soft = in.number();
    order.plan.limits.emplace_back(resource, KernelLimit{.soft = soft, .hard = in.number()});
  });
  in.finish();
  return order;
}

bool send_message(int socket, std::string_view bytes, const std::vector<int>& descriptors) noexcept {
  if (descriptors.size() > kMostDescriptors || bytes.size() > kMostMessageBytes) return false;
  alignas(cmsghdr) Control control{};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};  // NOLINT: sendmsg only reads
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  const auto deadline = Deadline::after(kTimeToSend);
  for (;;) {
    if (sys::call("sendmsg", ::sendmsg, socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if ((errno != EAGAIN && errno != EINTR) || deadline.has_passed()) return false;
    pollfd ready{.fd = socket, .events = POLLOUT, .revents = 0};
    ::poll(&ready, 1, deadline.poll_timeout());
  }
}

std::optional<TemplateMessage> receive_message(int socket) {
  alignas(cmsghdr) Control control{};
  TemplateMessage received{.bytes = std::string(kMostMessageBytes, '\0'), .descriptors = {}};
  iovec part{.iov_base = received.bytes.data(), .iov_len = received.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t length = sys::retry("recvmsg", ::recvmsg, socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (length <= 0) {
    if (length == 0) errno = 0;
    return std::nullopt;
  }
  received.bytes.resize(static_cast<std::size_t>(length));
  received.descriptors = descriptors_in(message);
  return received;
}

Fd file_with(std::string_view bytes) {
  Fd file(sys::call("memfd_create", ::memfd_create, "drover order", MFD_CLOEXEC));
  if (!file.is_open()) throw_errno("memfd_create", "an order for a template");
  while (!bytes.empty()) {
    const ssize_t written =
        sys::retry("write", ::write, file.get(), static_cast<const void*>(bytes.data()), bytes.size());
    if (written < 0) throw_errno("write", "an order for a template");
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return above_standard_streams(std::move(file));
}

std::string contents_of(const Fd& file) {
  struct stat facts{};
  if (sys::call("fstat", ::fstat, file.get(), &facts) != 0) throw_errno("fstat", "an order for a template");
  std::string bytes(static_cast<std::size_t>(facts.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t length = sys::retry("pread", ::pread, file.get(), static_cast<void*>(bytes.data() + done),
                                      bytes.size() - done, static_cast<off_t>(done));
    if (length < 0) throw_errno("pread", "an order for a template");
    if (length == 0) break;
    done += static_cast<std::size_t>(length);
  }
  return bytes;
}

std::pair<Fd, Fd> message_sockets() {
  std::array<int, 2> ends{};
  if (sys::call("socketpair", ::socketpair, AF_UNIX, int{SOCK_SEQPACKET | SOCK_CLOEXEC}, 0, ends.data()) != 0) {
    throw_errno("socketpair", "a template");
  }
  return {above_standard_streams(Fd(ends[0])), above_standard_streams(Fd(ends[1]))};
}

}  // namespace drover::process
