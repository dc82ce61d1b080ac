#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/ipc/membership.hpp"

namespace drover {
namespace {

constexpr std::array kNames = {
    std::pair(ObjectKind::queue, "queue"),         std::pair(ObjectKind::lock, "lock"),
    std::pair(ObjectKind::rlock, "rlock"),         std::pair(ObjectKind::semaphore, "semaphore"),
    std::pair(ObjectKind::condition, "condition"), std::pair(ObjectKind::event, "event"),
    std::pair(ObjectKind::barrier, "barrier"),     std::pair(ObjectKind::value, "value"),
    std::pair(ObjectKind::array, "array"),         std::pair(ObjectKind::overflow, "overflow"),
    std::pair(ObjectKind::slab, "slab"),           std::pair(ObjectKind::timelines, "timelines"),
};

// Takes ":number" off the front; false if there is none.
template <class Number>
bool take_number(std::string_view& text, Number& number) {
  if (!text.starts_with(':')) return false;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

}  // namespace

std::string_view to_string(ObjectKind kind) noexcept {
  for (const auto& [known, name] : kNames) {
    if (known == kind) return name;
  }
  return "unknown object";
}

std::string ObjectHandle::to_string() const {
  return fmt::format("{}:{}:{}:{}", drover::to_string(kind), slab, offset, generation);
}

ObjectHandle ObjectHandle::parse(std::string_view text) {
  for (const auto& [kind, name] : kNames) {
    std::string_view rest = text;
    if (!rest.starts_with(name)) continue;
    rest.remove_prefix(std::string_view(name).size());
    ObjectHandle handle{.kind = kind, .slab = 0, .offset = 0, .generation = 0};
    if (take_number(rest, handle.slab) && take_number(rest, handle.offset) && take_number(rest, handle.generation) &&
        rest.empty()) {
      return handle;
    }
  }
  throw Error(Errc::invalid_argument, fmt::format("'{}' is not the handle of a shared object", text),
              "pass what to_string() of a handle returned");
}

}  // namespace drover
