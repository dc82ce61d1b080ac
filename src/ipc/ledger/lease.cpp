#include "drover/ipc/lease.hpp"

#include <utility>

#include "drover/base/error.hpp"
#include "ipc/ledger/slab_book.hpp"

namespace drover {

Lease::Lease(Lease&& other) noexcept { *this = std::move(other); }

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  release();
  book_ = std::exchange(other.book_, nullptr);
  index_ = other.index_;
  generation_ = other.generation_;
  offset_ = std::exchange(other.offset_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Lease Lease::share() const {
  require(is_open(), "a lease that claims nothing was to be shared",
          "share one that was not sent or released before");
  return book_->share(*this);
}

void Lease::release() noexcept {
  if (book_ != nullptr) book_->end(*this);
}

const ObjectHandle& Lease::slab() const {
  require(is_open(), "a lease that claims nothing lies in no slab");
  return book_->object().handle();
}

}  // namespace drover
