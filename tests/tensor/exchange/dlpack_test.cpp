// Arrays exported to and imported from other libraries, which the tests imitate.
#include "drover/tensor/dlpack.hpp"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"

namespace drover::tensor {
namespace {

using dlpack::DLDeviceType;
using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;
using dlpack::DLTensor;
using test::expect_error;

DevicePtr address_of(const void* pointer) { return {.address = reinterpret_cast<std::uintptr_t>(pointer)}; }

// Counts releases.
std::shared_ptr<void> counted_keep_alive(int& count) {
  return {static_cast<void*>(&count), [](void* it) { ++*static_cast<int*>(it); }};
}

// An array of another library that counts calls of its deleter.
template <class Managed>
struct Foreign {
  Foreign() {
    managed.dl_tensor = {.data = memory.data(),
                         .device = {.device_type = dlpack::kDLCPU, .device_id = 0},
                         .ndim = 2,
                         .dtype = {.code = dlpack::kDLFloat, .bits = 32, .lanes = 1},
                         .shape = shape.data(),
                         .strides = nullptr,
                         .byte_offset = 0};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { ++static_cast<Foreign*>(self->manager_ctx)->deletions; };
    if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) managed.version = {.major = 1, .minor = 0};
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
  ~Foreign() = default;
  [[nodiscard]] DLTensor& tensor() { return managed.dl_tensor; }

  std::array<float, 16> memory{};
  std::array<std::int64_t, 16> shape = {2, 3};
  std::array<std::int64_t, 16> strides = {3, 1};
  Managed managed{};
  int deletions = 0;
};

// Exports in either form.
template <class Managed>
Managed* export_as(const DlpackArray& array) {
  if constexpr (std::is_same_v<Managed, DLManagedTensor>) return export_dlpack_unversioned(array);
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) return export_dlpack(array);
}

template <class Managed>
class Dlpack : public ::testing::Test {};
using BothForms = ::testing::Types<DLManagedTensor, DLManagedTensorVersioned>;
class FormNames {
 public:
  template <class Managed>
  static std::string GetName(int /*index*/) {  // NOLINT(readability-identifier-naming): GoogleTest's name
    return std::is_same_v<Managed, DLManagedTensor> ? "unversioned" : "versioned";
  }
};
TYPED_TEST_SUITE(Dlpack, BothForms, FormNames);

TYPED_TEST(Dlpack, export_fills_all_fields) {
  std::array<std::int16_t, 24> memory{};
  const auto layout = TensorLayout::contiguous(DType::int16, {4, 6}).slice(0, 1, 3).transpose(0, 1);
  int releases = 0;
  auto* const managed = export_as<TypeParam>(
      {.layout = layout, .base = address_of(memory.data()), .keep_alive = counted_keep_alive(releases)});
  const DLTensor& tensor = managed->dl_tensor;
  EXPECT_EQ(tensor.data, memory.data() + 6) << "the first element itself";
  EXPECT_EQ(tensor.byte_offset, 0U);
  EXPECT_EQ(tensor.device.device_type, dlpack::kDLCPU);
  EXPECT_EQ(tensor.device.device_id, 0);
  EXPECT_EQ(tensor.ndim, 2);
  EXPECT_EQ(tensor.dtype.code, dlpack::kDLInt);
  EXPECT_EQ(tensor.dtype.bits, 16);
  EXPECT_EQ(tensor.dtype.lanes, 1);
  EXPECT_EQ(std::vector(tensor.shape, tensor.shape + 2), (std::vector<std::int64_t>{6, 2}));
  EXPECT_EQ(std::vector(tensor.strides, tensor.strides + 2), (std::vector<std::int64_t>{1, 6}));
  EXPECT_EQ(releases, 0);
  managed->deleter(managed);
  EXPECT_EQ(releases, 1);
}

TYPED_TEST(Dlpack, keep_alive_is_released_with_the_last_owner) {
  float number = 0;
  int releases = 0;
  DlpackArray array{.layout = TensorLayout::contiguous(DType::float32, {}),
                    .base = address_of(&number),
                    .keep_alive = counted_keep_alive(releases)};
  auto* const managed = export_as<TypeParam>(array);
  managed->deleter(managed);
  EXPECT_EQ(releases, 0) << "the exporter still holds it";
  auto* const second = export_as<TypeParam>(array);
  array.keep_alive.reset();
  EXPECT_EQ(releases, 0);
  std::thread([second] { second->deleter(second); }).join();
  EXPECT_EQ(releases, 1);
}

TYPED_TEST(Dlpack, arrays_round_trip) {
  std::array<double, 64> memory{};
  for (const DType dtype : kAllDTypes) {
    const auto whole = TensorLayout::contiguous(dtype, {2, 3, 4});
    for (const auto& layout : {whole, whole.transpose(0, 2), whole.slice(1, 1, 3), whole.select(0, 1),
                               whole.select(0, 0).slice(0, 0, 1).expand({5, 4})}) {
      int releases = 0;
      {
        auto back = import_dlpack(export_as<TypeParam>({.layout = layout,
                                                        .place = Place::device(BackendKind::cuda, 3),
                                                        .base = address_of(memory.data()),
                                                        .keep_alive = counted_keep_alive(releases)}));
        const auto offset = static_cast<std::uint64_t>(layout.offset()) * size_of(dtype);
        EXPECT_EQ(back.base, address_of(memory.data()) + offset);
        EXPECT_EQ(back.layout, TensorLayout::strided(dtype, layout.shape(), layout.strides()));
        EXPECT_EQ(back.place, Place::device(BackendKind::cuda, 3));
        const auto other = back.keep_alive;
        back.keep_alive.reset();
        EXPECT_EQ(releases, 0);
      }
      EXPECT_EQ(releases, 1);
    }
  }
}

TYPED_TEST(Dlpack, empty_array_needs_no_memory) {
  auto* const managed = export_as<TypeParam>({.layout = TensorLayout::contiguous(DType::int8, {3, 0})});
  EXPECT_EQ(managed->dl_tensor.data, nullptr);
  managed->dl_tensor.byte_offset = 8;
  const auto back = import_dlpack(managed);
  EXPECT_EQ(back.layout, TensorLayout::contiguous(DType::int8, {3, 0}));
  EXPECT_EQ(back.base, DevicePtr{}) << "null, without the byte offset";
}

TYPED_TEST(Dlpack, import_reads_all_fields) {
  Foreign<TypeParam> foreign;
  {
    const auto array = import_dlpack(&foreign.managed);
    EXPECT_EQ(array.layout, TensorLayout::contiguous(DType::float32, {2, 3})) << "no strides: row-major";
    EXPECT_EQ(array.place, Place::cpu());
    EXPECT_EQ(array.host(), reinterpret_cast<std::byte*>(foreign.memory.data()));
    EXPECT_FALSE(array.is_read_only || array.is_copied);
    EXPECT_EQ(foreign.deletions, 0);
  }
  EXPECT_EQ(foreign.deletions, 1);
  foreign.tensor().strides = foreign.strides.data();
  foreign.strides = {1, 4};
  foreign.tensor().byte_offset = 12;
  auto array = import_dlpack(&foreign.managed);
  EXPECT_EQ(array.layout, TensorLayout::strided(DType::float32, {2, 3}, {1, 4}));
  EXPECT_EQ(array.base, address_of(foreign.memory.data() + 3));
  std::thread([last = std::move(array.keep_alive)]() mutable { last.reset(); }).join();
  EXPECT_EQ(foreign.deletions, 2);
}

TYPED_TEST(Dlpack, scalar_needs_neither_shape_nor_strides) {
  Foreign<TypeParam> foreign;
  foreign.tensor().ndim = 0;
  foreign.tensor().shape = nullptr;
  EXPECT_EQ(import_dlpack(&foreign.managed).layout, TensorLayout::contiguous(DType::float32, {}));
}

// NumPy exports them for reversed arrays.
TYPED_TEST(Dlpack, strides_of_size_one_dimensions_are_ignored) {
  Foreign<TypeParam> foreign;
  foreign.tensor().strides = foreign.strides.data();
  foreign.shape = {1, 3};
  foreign.strides = {-3, 2};
  EXPECT_EQ(import_dlpack(&foreign.managed).layout, TensorLayout::strided(DType::float32, {1, 3}, {1, 2}));
  foreign.shape = {0, 3};
  foreign.strides = {-3, -1};
  EXPECT_EQ(import_dlpack(&foreign.managed).layout, TensorLayout::contiguous(DType::float32, {0, 3}));
}

TYPED_TEST(Dlpack, deleter_may_be_null) {
  Foreign<TypeParam> foreign;
  foreign.managed.deleter = nullptr;
  EXPECT_EQ(import_dlpack(&foreign.managed).layout.rank(), 2);
  expect_error(Errc::invalid_argument, [] { static_cast<void>(import_dlpack(static_cast<TypeParam*>(nullptr))); },
               {"DLPack array to import is null"});
}

// One invalid field, and its error.
struct Refusal {
  std::function<void(DLTensor&)> spoil;
  Errc code;
  std::vector<std::string> parts;
};

const std::vector<Refusal>& refusals() {
  constexpr auto kHuge = std::int64_t{1} << 40;
  static const std::vector<Refusal> all = {
      {[](DLTensor& it) { it.ndim = 9; }, Errc::unsupported, {"9 dimensions", "at most 8", "reshape"}},
      {[](DLTensor& it) { it.ndim = std::numeric_limits<int>::max(); }, Errc::unsupported, {"2147483647 dimensions"}},
      {[](DLTensor& it) { it.ndim = -1; }, Errc::corrupt, {"-1 dimensions"}},
      {[](DLTensor& it) { it.shape = nullptr; }, Errc::corrupt, {"without sizes"}},
      {[](DLTensor& it) { it.shape[1] = -3; }, Errc::corrupt, {"negative size"}},
      {[](DLTensor& it) { it.shape[0] = it.shape[1] = kHuge; }, Errc::corrupt, {"impossible size"}},
      {[](DLTensor& it) { it.strides[0] = -3; }, Errc::unsupported, {"negative stride", "copy it first"}},
      {[](DLTensor& it) { it.strides[0] = std::numeric_limits<std::int64_t>::max(); },
       Errc::corrupt,
       {"impossible size"}},
      {[](DLTensor& it) { it.byte_offset = 6; }, Errc::unsupported, {"byte 6", "multiple of 4", "float32"}},
      {[](DLTensor& it) { it.data = nullptr; }, Errc::corrupt, {"no memory"}},
      {[](DLTensor& it) { it.device = {.device_type = DLDeviceType{10}, .device_id = 0}; },
       Errc::unsupported,
       {"device of type 10", "NVIDIA"}},
      {[](DLTensor& it) { it.device = {.device_type = dlpack::kDLCUDA, .device_id = -1}; },
       Errc::corrupt,
       {"GPU -1"}},
      {[](DLTensor& it) { it.dtype.lanes = 4; }, Errc::unsupported, {"float32 in vectors of 4"}},
      {[](DLTensor& it) { it.dtype.lanes = 0; }, Errc::unsupported, {"float32 in vectors of 0"}},
  };
  return all;
}

TYPED_TEST(Dlpack, invalid_arrays_are_rejected_and_deleted_once) {
  for (const auto& [spoil, code, parts] : refusals()) {
    Foreign<TypeParam> foreign;
    foreign.tensor().strides = foreign.strides.data();
    spoil(foreign.tensor());
    expect_error(code, [&] { static_cast<void>(import_dlpack(&foreign.managed)); }, parts);
    EXPECT_EQ(foreign.deletions, 1) << parts.front();
  }
}

TYPED_TEST(Dlpack, unsupported_type_is_named) {
  struct Case {
    std::uint8_t code;
    std::uint8_t bits;
    std::string name;
  };
  for (const auto& [code, bits, name] : std::vector<Case>{{0, 4, "int4"},
                                                          {1, 1, "uint1"},
                                                          {0, 128, "int128"},
                                                          {2, 8, "float8"},
                                                          {2, 128, "float128"},
                                                          {3, 64, "opaque64"},
                                                          {4, 32, "bfloat32"},
                                                          {5, 32, "complex32"},
                                                          {6, 1, "bool1"},
                                                          {7, 8, "float8_e3m4"},
                                                          {10, 8, "float8_e4m3fn"},
                                                          {12, 8, "float8_e5m2"},
                                                          {14, 8, "float8_e8m0fnu"},
                                                          {16, 6, "float6_e3m2fn"},
                                                          {17, 4, "float4_e2m1fn"},
                                                          {18, 3, "code 18 with bits 3"},
                                                          {255, 0, "code 255 with bits 0"}}) {
    Foreign<TypeParam> foreign;
    foreign.tensor().dtype = {.code = code, .bits = bits, .lanes = 1};
    expect_error(Errc::unsupported, [&] { static_cast<void>(import_dlpack(&foreign.managed)); },
                 {"elements of type " + name + "\n", "DType"});
    EXPECT_EQ(foreign.deletions, 1);
  }
}

TYPED_TEST(Dlpack, failed_export_keeps_nothing_alive) {
  int releases = 0;
  {
    const DlpackArray array{.layout = TensorLayout::contiguous(DType::int8, {3}),
                            .keep_alive = counted_keep_alive(releases)};
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(export_as<TypeParam>(array)); }, {"no memory"});
  }
  EXPECT_EQ(releases, 1);
  std::array<std::byte, sizeof(TensorLayout)> noise{};
  noise.fill(std::byte{0xee});
  DlpackArray array{.base = {.address = 64}};
  std::memcpy(static_cast<void*>(&array.layout), noise.data(), noise.size());
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(export_as<TypeParam>(array)); }, {"not valid"});
}

TEST(DlpackFlags, round_trip_in_the_versioned_form) {
  float number = 0;
  for (const bool is_read_only : {false, true}) {
    for (const bool is_copied : {false, true}) {
      auto* const managed = export_dlpack({.layout = TensorLayout::contiguous(DType::float32, {1}),
                                           .base = address_of(&number),
                                           .is_read_only = is_read_only,
                                           .is_copied = is_copied});
      EXPECT_EQ(managed->flags, (is_read_only ? 1U : 0U) + (is_copied ? 2U : 0U));
      EXPECT_EQ(managed->version.major, 1U);
      const auto back = import_dlpack(managed);
      EXPECT_EQ(back.is_read_only, is_read_only);
      EXPECT_EQ(back.is_copied, is_copied);
    }
  }
}

TEST(DlpackFlags, unversioned_form_rejects_read_only) {
  float number = 0;
  expect_error(Errc::unsupported,
               [&] {
                 static_cast<void>(export_dlpack_unversioned({.layout = TensorLayout::contiguous(DType::float32, {1}),
                                                              .base = address_of(&number),
                                                              .is_read_only = true}));
               },
               {"marked read-only", "max_version"});
}

// Only version, context and deleter may be read: the rest may have another structure.
TEST(DlpackVersion, other_major_version_is_rejected_and_deleted) {
  for (const std::uint32_t major : {0U, 2U, 4'000'000'000U}) {
    Foreign<DLManagedTensorVersioned> foreign;
    foreign.managed.version = {.major = major, .minor = 7};
    foreign.tensor().ndim = -1;
    expect_error(Errc::unsupported, [&] { static_cast<void>(import_dlpack(&foreign.managed)); },
                 {"version " + std::to_string(major) + ".7", "max_version=(1, 0)"});
    EXPECT_EQ(foreign.deletions, 1);
  }
  Foreign<DLManagedTensorVersioned> foreign;
  foreign.managed.version = {.major = 1, .minor = 99};
  foreign.managed.flags = ~std::uint64_t{0};
  const auto array = import_dlpack(&foreign.managed);
  EXPECT_TRUE(array.is_read_only && array.is_copied);
}

TEST(DlpackDevice, places_map_to_dlpack_devices) {
  EXPECT_EQ(to_dlpack(Place::cpu()).device_type, dlpack::kDLCPU);
  const auto gpu = to_dlpack(Place::device(BackendKind::cuda, 5));
  EXPECT_EQ(gpu.device_type, dlpack::kDLCUDA);
  EXPECT_EQ(gpu.device_id, 5);
  const auto emulated = to_dlpack(Place::device(BackendKind::host, 2));
  EXPECT_EQ(emulated.device_type, dlpack::kDLCPU);
  EXPECT_EQ(emulated.device_id, 0) << "there is one CPU";

  const auto place = [](DLDeviceType type, int id) { return to_string(from_dlpack({type, id})); };
  EXPECT_EQ(place(dlpack::kDLCPU, 0), "cpu");
  EXPECT_EQ(place(dlpack::kDLCUDA, 1), "cuda:1");
  EXPECT_EQ(place(dlpack::kDLCUDAHost, 1), "cpu");
  EXPECT_EQ(place(dlpack::kDLCUDAManaged, 2), "cuda:2");
}

TEST(DlpackDevice, only_host_memory_has_a_host_address) {
  float number = 0;
  DlpackArray array{.base = address_of(&number)};
  EXPECT_EQ(array.host(), reinterpret_cast<std::byte*>(&number));
  array.place = Place::device(BackendKind::host, 1);
  EXPECT_EQ(array.host(), reinterpret_cast<std::byte*>(&number));
  array.place = Place::device(BackendKind::cuda, 0);
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(array.host()); }, {"memory of a GPU", "copy it"});
}

DLManagedTensorVersioned* left_for_the_end = nullptr;

// As interpreters of other languages do during exit.
DROVER_PEER_BODY(let_go_after_main) {
  const auto memory = std::make_shared<std::int32_t>(peer.rank());
  left_for_the_end = export_dlpack({.layout = TensorLayout::contiguous(DType::int32, {1}),
                                    .base = address_of(memory.get()),
                                    .keep_alive = {memory.get(), [memory](void* /*it*/) { ::_exit(7); }}});
  std::atexit([] { left_for_the_end->deleter(left_for_the_end); });
}

TEST(DlpackExit, deleter_works_after_main) {
  test::PeerGroup group("let_go_after_main", {.mode = test::PeerMode::processes, .size = 1});
  group.start();
  const auto outcome = group.wait(Deadline::never()).at(0);
  EXPECT_EQ(outcome.kind, test::PeerOutcome::Kind::failed);
  EXPECT_NE(outcome.text.find("exited with status 7"), std::string::npos) << outcome.text;
}

}  // namespace
}  // namespace drover::tensor
