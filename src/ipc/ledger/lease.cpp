#include "drover/ipc/lease.hpp"

#include <utility>

#include "drover/base/error.hpp"
#include "ipc/ledger/open_ledger.hpp"

namespace drover {

Lease::Lease(Lease&& other) noexcept { *this = std::move(other); }

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  release();
  ledger_ = std::exchange(other.ledger_, nullptr);
  index_ = other.index_;
  generation_ = other.generation_;
  offset_ = std::exchange(other.offset_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Lease Lease::share() const {
  require(is_open(), "cannot share an empty lease (already sent or released)",
          "share it before it is sent or released");
  return ledger_->share(*this);
}

void Lease::release() noexcept {
  if (ledger_ != nullptr) ledger_->end(*this);
}

const ObjectHandle& Lease::slab() const {
  require(is_open(), "an empty lease has no slab");
  return ledger_->object().handle();
}

}  // namespace drover
