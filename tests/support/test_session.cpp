#include "support/test_session.hpp"

#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/mutex.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/registry/object_kinds.hpp"

namespace drover::test {
namespace {

struct SharedPage {
  std::atomic<std::uint32_t> present;
  std::atomic<std::uint32_t> is_over;
  std::atomic<std::uint64_t> departed;
};
constexpr std::size_t kPageBytes = 4096;

SharedPage& page_of(const Mapping& mapping) { return *reinterpret_cast<SharedPage*>(mapping.data()); }

void check_page(const SharedPage& page) {
  if (page.is_over != 0) throw Error(Errc::peer_lost, "the test session is over");
}

Population population_of(const SharedPage& page) {
  return {.present = page.present, .starting = 0, .departed = page.departed};
}

// The objects that a participant in another process received.
struct Given {
  std::vector<OpenObject> objects;
  std::vector<Mapping> mappings;
  std::map<ObjectHandle, Fd> files;
};

// A participant in another process than the table, which knows only the objects it received.
class Remote final : public Membership {
 public:
  Remote(Owner owner, Given given, Mapping page) : given_(std::move(given)), page_(std::move(page)) {
    set_self(owner);
  }
  using Membership::create;
  OpenObject create(const ObjectSpec&) override { throw std::logic_error("invited peers of a test make no objects"); }
  OpenObject open(const ObjectHandle& handle) override {
    for (const auto& object : given_.objects) {
      if (object.handle == handle) return object;
    }
    throw Error(Errc::not_found, fmt::format("the test gave no object {}", handle.to_string()));
  }
  void close(const ObjectHandle&) noexcept override {}
  Fd file_of(const ObjectHandle& handle) override {
    const auto at = given_.files.find(handle);
    if (at != given_.files.end()) return at->second.duplicate();
    throw Error(Errc::not_found, fmt::format("the test gave no file of {}", handle.to_string()));
  }
  void check() const override { check_page(page_of(page_)); }
  [[nodiscard]] Population population() const noexcept override { return population_of(page_of(page_)); }

 private:
  Given given_;
  Mapping page_;
};

}  // namespace

// A participant in the test's own process.
class TestSession::Local final : public Membership {
 public:
  Local(Owner owner, std::shared_ptr<ipc::ObjectTable> table, std::shared_ptr<Mutex> mutex,
        std::shared_ptr<Mapping> page)
      : table_(std::move(table)), mutex_(std::move(mutex)), page_(std::move(page)) {
    set_self(owner);
  }
  OpenObject create(const ObjectSpec& spec) override { return create_with(spec, {}); }
  OpenObject create(const ObjectSpec& spec, const Fd& file) override { return create_with(spec, file.duplicate()); }
  Fd file_of(const ObjectHandle& handle) override {
    const MutexLock lock(*mutex_);
    return table_->file_of(handle, self()).duplicate();
  }
  OpenObject open(const ObjectHandle& handle) override {
    const MutexLock lock(*mutex_);
    const ObjectSpec spec = table_->open(handle, self());
    ++openings_[handle];
    return {.handle = handle, .spec = spec, .data = table_->slab(handle.slab).memory.data() + handle.offset};
  }
  void close(const ObjectHandle& handle) noexcept override {
    const MutexLock lock(*mutex_);
    if (--openings_[handle] > 0) return;
    openings_.erase(handle);
    table_->close(handle, self());
  }
  void check() const override { check_page(page_of(*page_)); }
  [[nodiscard]] Population population() const noexcept override { return population_of(page_of(*page_)); }

 private:
  OpenObject create_with(const ObjectSpec& spec, Fd file) {
    const MutexLock lock(*mutex_);
    const ObjectHandle handle = table_->create(spec, self(), page_of(*page_).departed, std::move(file));
    ++openings_[handle];
    return {.handle = handle, .spec = spec, .data = table_->slab(handle.slab).memory.data() + handle.offset};
  }

  std::shared_ptr<ipc::ObjectTable> table_;
  std::shared_ptr<Mutex> mutex_;
  std::shared_ptr<Mapping> page_;
  std::map<ObjectHandle, int> openings_;
};

TestSession::TestSession()
    : page_file_(make_memory_file("test session", kPageBytes)),
      page_(std::make_shared<Mapping>(Mapping::shared(page_file_, kPageBytes))),
      table_(std::make_shared<ipc::ObjectTable>()),
      mutex_(std::make_shared<Mutex>()) {}

std::size_t TestSession::file_count() const {
  const MutexLock lock(*mutex_);
  return table_->file_count();
}

std::shared_ptr<Membership> TestSession::join() {
  const MutexLock lock(*mutex_);
  ++page_of(*page_).present;
  return std::make_shared<Local>(next_owner(), table_, mutex_, page_);
}

Owner TestSession::invite(Channel& channel, std::span<const ObjectHandle> objects) {
  const MutexLock lock(*mutex_);
  ++page_of(*page_).present;
  const Owner owner = next_owner();
  std::string text = fmt::format("{}", owner);
  std::vector<int> fds = {page_file_.get()};
  for (const auto& handle : objects) {
    const ObjectSpec spec = table_->open(handle, owner);
    text += " " + handle.to_string();
    for (const auto parameter : spec.parameters) text += fmt::format(" {}", parameter);
    fds.push_back(table_->slab(handle.slab).file.get());
    if (ipc::info_of(handle.kind).has_file) fds.push_back(table_->file_of(handle, owner).get());
  }
  channel.send(text, fds);
  return owner;
}

Owner TestSession::next_owner() {
  if (!recovered_.empty()) {
    const Owner owner = recovered_.back();
    recovered_.pop_back();
    return owner;
  }
  if (last_ == kMaxParticipants) throw std::logic_error("too many participants of a test session");
  return ++last_;
}

void TestSession::recover(Owner dead) {
  const MutexLock lock(*mutex_);
  table_->depart(dead, 1);
  --page_of(*page_).present;
  ++page_of(*page_).departed;
  table_->wake_all();  // as the keeper does, since waiters may be alone now
  recovered_.push_back(dead);
}

void TestSession::end() {
  page_of(*page_).is_over = 1;
  const MutexLock lock(*mutex_);
  table_->wake_all();
}

Invited accept_invitation(Channel& channel) {
  ChannelMessage message;
  if (channel.receive(message, Deadline::never()) != ReceiveResult::message || message.fds.empty()) {
    throw std::runtime_error("the test sent no invitation");
  }
  std::istringstream text(message.bytes);
  Owner owner = kNobody;
  text >> owner;
  Invited invited;
  Given given;
  std::string name;
  for (std::size_t index = 1; text >> name; ++index) {
    OpenObject object{.handle = ObjectHandle::parse(name), .spec = {}, .data = nullptr};
    object.spec.kind = object.handle.kind;
    for (auto& parameter : object.spec.parameters) text >> parameter;
    const Fd& file = message.fds.at(index);
    given.mappings.push_back(Mapping::shared(file, check_memory_file(file)));
    object.data = given.mappings.back().data() + object.handle.offset;
    invited.handles.push_back(object.handle);
    given.objects.push_back(object);
    if (ipc::info_of(object.handle.kind).has_file) given.files[object.handle] = std::move(message.fds.at(++index));
  }
  invited.membership =
      std::make_shared<Remote>(owner, std::move(given), Mapping::shared(message.fds.front(), kPageBytes));
  return invited;
}

}  // namespace drover::test
