// drover/ipc/shared_object.hpp: the owner of one opening of a shared object.
#pragma once

#include <cstddef>
#include <memory>

#include "drover/ipc/membership.hpp"

namespace drover {

/// One opening of a shared object by this process; closes it when destroyed. What `Queue`, `Lock` and the others
/// are built on. Move-only; a moved-from one owns nothing. Keeps the membership alive: shared, because every
/// object of a process may be the last to need it.
class SharedObject {
 public:
  /// Makes a new object.
  SharedObject(std::shared_ptr<Membership> membership, const ObjectSpec& spec);
  /// Makes one of a kind that has a file: Membership::create.
  SharedObject(std::shared_ptr<Membership> membership, const ObjectSpec& spec, const Fd& file);
  /// Opens an existing one. Throws `Errc::invalid_argument` if the handle names another kind, `Errc::not_found` if
  /// the object is gone, `Errc::corrupt` if what lies there is not one of this version.
  SharedObject(std::shared_ptr<Membership> membership, const ObjectHandle& handle, ObjectKind kind);
  /// Takes over the opening.
  SharedObject(SharedObject&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  SharedObject& operator=(SharedObject&& other) noexcept;
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;
  ~SharedObject();

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const noexcept { return object_.handle; }
  /// From what it was made.
  [[nodiscard]] const ObjectSpec& spec() const noexcept { return object_.spec; }
  /// The layout, behind the header.
  [[nodiscard]] std::byte* layout() const noexcept;
  /// The header.
  [[nodiscard]] std::byte* data() const noexcept { return object_.data; }
  /// The session it belongs to.
  [[nodiscard]] Membership& membership() const noexcept { return *membership_; }
  /// The same, to open further objects with.
  [[nodiscard]] const std::shared_ptr<Membership>& shared_membership() const noexcept { return membership_; }
  /// The number under which this process takes things; throws `Errc::forked` in a forked child.
  [[nodiscard]] Owner self() const { return membership_->require_self(); }

 private:
  void close() noexcept;

  std::shared_ptr<Membership> membership_;
  OpenObject object_;
};

}  // namespace drover
