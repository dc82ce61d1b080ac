#include "drover/ipc/membership.hpp"

#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/object/object_layout.hpp"

namespace drover {
namespace {

OpenObject open_checked(Membership& membership, const ObjectHandle& handle, ObjectKind kind) {
  if (handle.kind != kind) {
    throw Error(Errc::invalid_argument,
                fmt::format("the handle {} names a {}, not a {}", handle.to_string(), to_string(handle.kind),
                            to_string(kind)),
                "open it as that kind");
  }
  const OpenObject object = membership.open(handle);
  const ipc::ObjectHeader& header = ipc::header_of(object.data);
  const bool is_right = header.magic == ipc::kObjectMagic && header.version == ipc::kLayoutVersion &&
                        header.kind == static_cast<std::uint16_t>(kind) && header.generation == handle.generation;
  if (is_right) return object;
  membership.close(handle);
  throw Error(Errc::corrupt, fmt::format("the shared object {} is corrupt or of another version", handle.to_string()),
              "use the same version of drover in all processes of a session; otherwise find the process that "
              "corrupts memory");
}

}  // namespace

SharedObject::SharedObject(std::shared_ptr<Membership> membership, const ObjectSpec& spec)
    : membership_(std::move(membership)) {
  require(membership_ != nullptr, "a shared object needs a session", "pass a Session that is open");
  object_ = membership_->create(spec);
}

SharedObject::SharedObject(std::shared_ptr<Membership> membership, const ObjectSpec& spec, const Fd& file)
    : membership_(std::move(membership)) {
  require(membership_ != nullptr, "a shared object needs a session", "pass a Session that is open");
  object_ = membership_->create(spec, file);
}

SharedObject::SharedObject(std::shared_ptr<Membership> membership, const ObjectHandle& handle, ObjectKind kind)
    : membership_(std::move(membership)) {
  require(membership_ != nullptr, "a shared object needs a session", "pass a Session that is open");
  object_ = open_checked(*membership_, handle, kind);
}

SharedObject::SharedObject(SharedObject&& other) noexcept
    : membership_(std::move(other.membership_)), object_(std::exchange(other.object_, {})) {}

SharedObject& SharedObject::operator=(SharedObject&& other) noexcept {
  if (this != &other) {
    close();
    membership_ = std::move(other.membership_);
    object_ = std::exchange(other.object_, {});
  }
  return *this;
}

SharedObject::~SharedObject() { close(); }

std::byte* SharedObject::layout() const { return ipc::layout_of(data()); }

void SharedObject::close() noexcept {
  if (object_.data != nullptr) membership_->close(object_.handle);
  object_ = {};
}

}  // namespace drover
