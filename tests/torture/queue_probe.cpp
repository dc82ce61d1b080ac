#include "torture/queue_probe.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

namespace drover::test {
namespace {

// The word at an offset, and the bytes of it that fit.
std::uint64_t word_at(std::uint64_t number, std::size_t offset) { return (number + offset) * 0x9e3779b97f4a7c15U; }

}  // namespace

void fill_numbered(std::span<std::byte> message, std::uint64_t number) {
  if (message.size() < kSmallestMessage) throw std::invalid_argument("a numbered message holds its number");
  std::memcpy(message.data(), &number, sizeof(number));
  for (std::size_t at = sizeof(number); at < message.size(); at += sizeof(number)) {
    const std::uint64_t word = word_at(number, at);
    std::memcpy(message.data() + at, &word, std::min(sizeof(word), message.size() - at));
  }
}

std::string numbered_message(std::uint64_t number, std::size_t bytes) {
  std::string text(bytes, '\0');
  fill_numbered(std::as_writable_bytes(std::span(text)), number);
  return text;
}

std::uint64_t number_of(std::span<const std::byte> message) {
  std::uint64_t number = 0;
  if (message.size() < sizeof(number)) {
    throw std::runtime_error(fmt::format("a message of {} bytes has no number", message.size()));
  }
  std::memcpy(&number, message.data(), sizeof(number));
  for (std::size_t at = sizeof(number); at < message.size(); at += sizeof(number)) {
    const std::uint64_t word = word_at(number, at);
    if (std::memcmp(message.data() + at, &word, std::min(sizeof(word), message.size() - at)) == 0) continue;
    throw std::runtime_error(fmt::format("message {} of {} bytes is torn at byte {}", number, message.size(), at));
  }
  return number;
}

QueueProbe::QueueProbe(const OpenObject& object)
    : view_(ipc::layout_of(object.data), ipc::queue_geometry(object.spec)) {}

std::set<MessageKey> QueueProbe::owed() const {
  const auto is_owed = [](ipc::SlotWord word) {
    const ipc::RingSlotState state = ipc::state_of(word);
    return state == ipc::RingSlotState::ready || state == ipc::RingSlotState::reading ||
           state == ipc::RingSlotState::returned;
  };
  std::set<MessageKey> keys;
  for (std::uint64_t index = 0; index < view_.ring.capacity(); ++index) {
    const ipc::SlotWord word = view_.ring.slot(index).word.load();
    if (is_owed(word)) keys.insert((word >> ipc::kLapShift) * view_.ring.capacity() + index);
  }
  for (std::uint64_t index = 0; index < view_.flight_count; ++index) {
    const ipc::Flight& flight = view_.flights[index];
    if (is_owed(flight.word.load())) keys.insert(flight.position.load());
  }
  return keys;
}

std::string QueueProbe::not_free() const {
  std::string text;
  const auto add = [&](const char* what, std::uint64_t index, ipc::SlotWord word) {
    if (ipc::state_of(word) == ipc::RingSlotState::free) return;
    text += fmt::format("{} {} is in state {} of owner {}; ", what, index, static_cast<int>(ipc::state_of(word)),
                        ipc::owner_of(word));
  };
  for (std::uint64_t index = 0; index < view_.ring.capacity(); ++index)
    add("slot", index, view_.ring.slot(index).word);
  for (std::uint64_t index = 0; index < view_.flight_count; ++index) add("flight", index, view_.flights[index].word);
  return text;
}

std::uint64_t QueueProbe::held(Owner owner, ipc::RingSlotState state) const {
  std::uint64_t count = 0;
  const auto add = [&](ipc::SlotWord word) {
    count += ipc::owner_of(word) == owner && ipc::state_of(word) == state ? 1U : 0U;
  };
  for (std::uint64_t index = 0; index < view_.ring.capacity(); ++index) add(view_.ring.slot(index).word.load());
  for (std::uint64_t index = 0; index < view_.flight_count; ++index) add(view_.flights[index].word.load());
  return count;
}

Owner QueueProbe::somebody_busy(std::uint64_t start) const {
  const std::uint64_t places = view_.ring.capacity() + view_.flight_count;
  for (std::uint64_t tried = 0; tried < places; ++tried) {
    const std::uint64_t index = (start + tried) % places;
    const ipc::SlotWord word = index < view_.ring.capacity()
                                   ? view_.ring.slot(index).word.load()
                                   : view_.flights[index - view_.ring.capacity()].word.load();
    if (ipc::state_of(word) == ipc::RingSlotState::writing || ipc::state_of(word) == ipc::RingSlotState::reading)
      return ipc::owner_of(word);
  }
  return kNobody;
}

}  // namespace drover::test
