#include "drover/ipc/queue.hpp"

#include <exception>
#include <utility>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "ipc/queue/queue_core.hpp"

namespace drover {

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

detail::HeldMemory::HeldMemory(HeldMemory&& other) noexcept { *this = std::move(other); }

detail::HeldMemory& detail::HeldMemory::operator=(HeldMemory&& other) noexcept {
  if (this == &other) return *this;
  reset();
  core_ = std::move(other.core_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  block_ = other.block_;
  overflow_ = other.overflow_;
  is_overflow_ = other.is_overflow_;
  is_copied_ = other.is_copied_;
  return *this;
}

void detail::HeldMemory::free() noexcept {
  const auto core = std::exchange(core_, nullptr);
  core->free(*this);
}

Message::Message(Message&& other) noexcept { *this = std::move(other); }

Message& Message::operator=(Message&& other) noexcept {
  if (this == &other) return *this;
  small_ = other.small_;
  std::swap(inlined_, other.inlined_);  // keeps the capacity for reuse
  held_ = std::move(other.held_);
  leases_ = std::move(other.leases_);
  size_ = other.size_;
  key_ = other.key_;
  is_inlined_ = other.is_inlined_;
  is_redelivered_ = other.is_redelivered_;
  other.reset();
  return *this;
}

std::span<const std::byte> Message::bytes() const noexcept {
  if (!held_.bytes().empty()) return held_.bytes();
  return {is_inlined_ ? inlined_.data() : small_.data(), size_};
}

std::string_view Message::text() const noexcept {
  return {reinterpret_cast<const char*>(bytes().data()), bytes().size()};
}

Delivery::Delivery(Delivery&& other) noexcept { *this = std::move(other); }

Delivery& Delivery::operator=(Delivery&& other) noexcept {
  if (this == &other) return *this;
  drop();
  core_ = std::move(other.core_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  key_ = other.key_;
  place_ = other.place_;
  is_flight_ = other.is_flight_;
  is_redelivered_ = other.is_redelivered_;
  held_ = std::move(other.held_);
  leases_ = std::move(other.leases_);
  return *this;
}

Delivery::~Delivery() { drop(); }

void Delivery::drop() noexcept {
  if (core_ == nullptr) return;
  try {
    core_->give_back(*this);
  } catch (const std::exception& error) {  // a forked child: the message is its parent's
    log(LogLevel::warn, error.what());
  }
}

std::string_view Delivery::text() const noexcept { return {reinterpret_cast<const char*>(data_), size_}; }

void Delivery::done() {
  require(is_open(), "this delivery is empty, or was done or given back already");
  core_->done(*this);
}

void Delivery::give_back() {
  require(is_open(), "this delivery is empty, or was done or given back already");
  core_->give_back(*this);
}

}  // namespace drover
