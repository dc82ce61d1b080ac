// fuzz/spoiled_objects.hpp: a session in one process whose shared memory the fuzzer corrupts.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "drover/base/error.hpp"
#include "drover/ipc/membership.hpp"
#include "fuzz/fuzz_input.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/registry/object_kinds.hpp"

namespace drover::fuzz {

/// Objects in ordinary memory of exactly their size, so that the address sanitizer detects every access beyond it. A
/// blocking wait ends at once: the session always reports that it is over.
class SpoiledObjects final : public Membership {
 public:
  explicit SpoiledObjects(Owner owner) { set_self(owner); }

  using Membership::create;
  OpenObject create(const ObjectSpec& spec) override {
    const ipc::ObjectKindInfo& info = ipc::info_of(spec.kind);
    const std::size_t bytes = sizeof(ipc::ObjectHeader) + info.layout_bytes(spec);
    if (bytes > kMostBytes) throw Error(Errc::out_of_memory, "the fuzzer's objects are small");
    const ObjectHandle handle{.kind = spec.kind, .slab = 1, .offset = 0, .generation = ++last_generation_};
    Object& object = objects_[handle.generation];
    object.memory.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
    std::memset(object.memory.get(), 0, bytes);
    object.open = {.handle = handle, .spec = spec, .data = object.memory.get()};
    object.bytes = bytes;
    ipc::ObjectHeader& header = ipc::header_of(object.open.data);
    header.magic = ipc::kObjectMagic;
    header.version = ipc::kLayoutVersion;
    header.kind = static_cast<std::uint16_t>(spec.kind);
    header.generation = handle.generation;
    header.openers = 2;  // so that no process seems to be alone
    header.ever_opened = 2;
    info.format(ipc::layout_of(object.open.data), spec);
    return object.open;
  }

  OpenObject open(const ObjectHandle& handle) override {
    const auto at = objects_.find(handle.generation);
    if (at == objects_.end() || at->second.open.handle != handle) throw Error(Errc::not_found, "no such object");
    return at->second.open;
  }
  void close(const ObjectHandle&) noexcept override {}  // a record may refer to it; all are freed at the end
  void check() const override { throw Error(Errc::peer_lost, "the fuzzer does not wait"); }
  [[nodiscard]] Population population() const noexcept override {
    return {.present = 2, .starting = 0, .departed = 0};
  }

  /// The memory of an object: its header, then its layout.
  [[nodiscard]] std::span<std::byte> memory(const ObjectHandle& handle) const {
    const Object& object = objects_.at(handle.generation);
    return {object.memory.get(), object.bytes};
  }

 private:
  static constexpr std::align_val_t kAlignment{4096};
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20U;
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  struct Object {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t bytes = 0;
    OpenObject open;
  };

  std::map<std::uint64_t, Object> objects_;
  std::uint64_t last_generation_ = 0;
};

/// Overwrites one to eight bytes anywhere in `memory`, as a faulty participant could.
inline void spoil(std::span<std::byte> memory, Input& input) {
  const auto bytes = static_cast<std::size_t>(1 + input.take_up_to(7));
  const auto offset = static_cast<std::size_t>(input.take_up_to(memory.size() - bytes));
  const auto value = input.take<std::uint64_t>();
  std::memcpy(memory.data() + offset, &value, bytes);
}

}  // namespace drover::fuzz
