#include "torture/torture_session.hpp"

#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <utility>

#include "drover/base/error.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/registry/object_kinds.hpp"

namespace drover::test {
namespace {

constexpr Owner kDriver = 1;
constexpr std::size_t kPageBytes = 4096;

}  // namespace

struct TortureSession::Page {
  std::atomic<std::uint32_t> present;
  std::atomic<std::uint64_t> departed;
  std::atomic<std::int32_t> keeper_pid;
};

class TortureSession::Member final : public Membership {
 public:
  Member(Owner owner, const std::vector<OpenObject>& objects, const Page& page) : objects_(objects), page_(page) {
    set_self(owner);
  }
  using Membership::create;
  OpenObject create(const ObjectSpec&) override { throw std::logic_error("tortured processes create no objects"); }
  OpenObject open(const ObjectHandle& handle) override {
    for (const OpenObject& object : objects_) {
      if (object.handle == handle) return object;
    }
    throw Error(Errc::not_found, "the driver created no such object");
  }
  void close(const ObjectHandle&) noexcept override {}
  void check() const override {
    const pid_t keeper = page_.keeper_pid;
    if (::getpid() != keeper && ::getppid() != keeper) throw Error(Errc::peer_lost, "the driver is gone");
  }
  [[nodiscard]] Population population() const noexcept override {
    return {.present = page_.present, .starting = 0, .departed = page_.departed};
  }

 private:
  const std::vector<OpenObject>& objects_;
  const Page& page_;
};

TortureSession::TortureSession()
    : page_memory_(Mapping::shared(make_memory_file("torture session", kPageBytes), kPageBytes)), present_{kDriver} {
  auto& page = *reinterpret_cast<Page*>(page_memory_.data());
  page.present = 1;
  page.keeper_pid = ::getpid();
  driver_ = std::make_shared<Member>(kDriver, objects_, page);
}

ObjectHandle TortureSession::create(const ObjectSpec& spec) {
  const ObjectHandle handle = table_.create(spec, kDriver, 0);
  objects_.push_back(
      {.handle = handle, .spec = spec, .data = table_.slab(handle.slab).memory.data() + handle.offset});
  return handle;
}

OpenObject TortureSession::object(const ObjectHandle& handle) const { return driver_->open(handle); }

Owner TortureSession::admit() {
  Owner owner = last_recovered_ == kNobody ? Owner{kDriver + 1} : last_recovered_;
  while (present_.contains(owner)) ++owner;
  if (owner > kMaxParticipants) throw std::logic_error("too many participants");
  present_.insert(owner);
  for (const OpenObject& object : objects_) static_cast<void>(table_.open(object.handle, owner));
  ++reinterpret_cast<Page*>(page_memory_.data())->present;
  return owner;
}

std::shared_ptr<Membership> TortureSession::take_part(Owner owner) const {
  return std::make_shared<Member>(owner, objects_, *reinterpret_cast<const Page*>(page_memory_.data()));
}

void TortureSession::recover(Owner owner, pid_t pid) {
  auto& page = *reinterpret_cast<Page*>(page_memory_.data());
  --page.present;
  ++page.departed;
  table_.depart(owner, pid);
  present_.erase(owner);
  last_recovered_ = owner;
}

void TortureSession::recover_alive(Owner owner) {
  for (const OpenObject& object : objects_) {
    ipc::info_of(object.spec.kind).recover(ipc::layout_of(object.data), object.spec, owner);
  }
}

}  // namespace drover::test
