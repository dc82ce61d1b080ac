#include "drover/ipc/message.hpp"

#include <exception>
#include <utility>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "ipc/queue_core.hpp"

namespace drover {

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
  return *this;
}

void detail::HeldMemory::reset() noexcept {
  if (const auto core = std::exchange(core_, nullptr)) core->free(*this);
  data_ = nullptr;
  size_ = 0;
}

std::span<const std::byte> Message::bytes() const noexcept {
  if (!held_.bytes().empty()) return held_.bytes();
  return {size_ <= small_.size() ? small_.data() : inlined_.data(), size_};
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
  require(is_open(), "this delivery is done already, or holds nothing");
  core_->done(*this);
}

void Delivery::give_back() {
  require(is_open(), "this delivery is done already, or holds nothing");
  core_->give_back(*this);
}

}  // namespace drover
