// drover/tensor/dlpack.hpp: arrays of other libraries in this process, imported and exported without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "drover/device/memory.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover {

/// The C interface of DLPack 1.1, layout-compatible: a pointer to one of DLPack's structures can be cast to the one
/// of the same name here, without its header.
namespace dlpack {

// NOLINTBEGIN(readability-identifier-naming): the names of DLPack

/// The device types that drover supports.
enum DLDeviceType : std::int32_t {
  kDLCPU = 1,           ///< host memory
  kDLCUDA = 2,          ///< memory of an NVIDIA GPU
  kDLCUDAHost = 3,      ///< pinned host memory
  kDLCUDAManaged = 13,  ///< memory that moves between host and GPU
};

/// A device.
struct DLDevice {
  DLDeviceType device_type;  ///< its type
  std::int32_t device_id;    ///< as CUDA numbers them in this process; 0 for host memory
};

/// The kinds of elements that drover supports.
enum DLDataTypeCode : std::uint8_t {
  kDLInt = 0,      ///< signed
  kDLUInt = 1,     ///< unsigned
  kDLFloat = 2,    ///< IEEE 754
  kDLBfloat = 4,   ///< bfloat16
  kDLComplex = 5,  ///< bits count both parts
  kDLBool = 6,     ///< 8 bits, 0 or 1
};

/// The type of elements.
struct DLDataType {
  std::uint8_t code;    ///< a `DLDataTypeCode`, or one that drover does not know
  std::uint8_t bits;    ///< of one lane
  std::uint16_t lanes;  ///< numbers in one element; drover supports 1
};

/// An array without an owner.
struct DLTensor {
  void* data;                 ///< address on the device; may be null for an empty array
  DLDevice device;            ///< where it lies
  std::int32_t ndim;          ///< number of dimensions
  DLDataType dtype;           ///< type of the elements
  std::int64_t* shape;        ///< `ndim` sizes
  std::int64_t* strides;      ///< `ndim` strides in elements; null for row-major order
  std::uint64_t byte_offset;  ///< from `data` to the first element
};

/// An array with its owner, from before DLPack 1.0.
struct DLManagedTensor {
  DLTensor dl_tensor;                 ///< the array
  void* manager_ctx;                  ///< for the owner
  void (*deleter)(DLManagedTensor*);  ///< called once by the consumer, when done; may be null
};

/// The version of a structure.
struct DLPackVersion {
  std::uint32_t major;  ///< changes with the structure
  std::uint32_t minor;  ///< changes with the constants
};

/// An array with its owner, from DLPack 1.0 on. If `major` differs, only the first three fields are valid.
struct DLManagedTensorVersioned {
  DLPackVersion version;                       ///< version of this structure
  void* manager_ctx;                           ///< for the owner
  void (*deleter)(DLManagedTensorVersioned*);  ///< called once by the consumer, when done; may be null
  std::uint64_t flags;                         ///< `kFlag...` below
  DLTensor dl_tensor;                          ///< the array
};

// NOLINTEND(readability-identifier-naming)

inline constexpr DLPackVersion kVersion = {.major = 1, .minor = 1};  ///< of exports, and the newest that is read
inline constexpr std::uint64_t kFlagReadOnly = 1;                    ///< read-only
inline constexpr std::uint64_t kFlagIsCopied = 2;                    ///< a copy that only the consumer has

}  // namespace dlpack

/// An array for another library, or from one.
///
/// DLPack's structures do not name streams; Python's protocol does. A consumer calls `__dlpack__(stream=s)`, where s
/// is the stream on which it will use the array: for cuda 1 for the default stream, 2 for the per-thread default
/// stream, the address of a CUstream, or -1 for no ordering; for host memory None. The producer makes s wait for its
/// work. The caller of an export from drover must do the same, and finish work on emulated devices, whose memory
/// looks like host memory.
struct DlpackArray {
  TensorLayout layout;               ///< of the memory at `base`
  Place place;                       ///< where it lies
  DevicePtr base;                    ///< its first byte; a host address for `cpu` and for emulated devices
  std::shared_ptr<void> keep_alive;  ///< keeps the memory alive; shared with whatever else needs it
  bool is_read_only = false;         ///< it must not be written
  bool is_copied = false;            ///< no other owner has this memory

  /// The address for the CPU. Throws `Errc::invalid_argument` for memory of a GPU.
  [[nodiscard]] std::byte* host() const;
};

/// A place as a DLPack device. Emulated devices are host memory (kDLCPU): their addresses are valid in this process,
/// and no other library knows their type.
[[nodiscard]] dlpack::DLDevice to_dlpack(const Place& place);

/// A DLPack device as a place. Pinned host memory is `cpu`. Managed memory belongs to the GPU that it names, whose
/// streams order its use. Throws `Errc::unsupported` for other devices.
[[nodiscard]] Place from_dlpack(const dlpack::DLDevice& device);

/// Exports an array. The result shares `keep_alive` until its deleter is called, once, on any thread, even after
/// `main` has returned. Throws `Errc::invalid_argument` if the layout is not valid, or there are elements but no
/// memory.
[[nodiscard]] dlpack::DLManagedTensorVersioned* export_dlpack(DlpackArray array);

/// The same in the form before version 1.0, for libraries that request no version. Throws `Errc::unsupported` for
/// read-only arrays, which this form cannot mark.
[[nodiscard]] dlpack::DLManagedTensor* export_dlpack_unversioned(DlpackArray array);

/// The stream on which another library will use an array, as in Python's protocol: the address of a CUstream, 1 for
/// the default stream, 2 for the per-thread default stream, -1 for no ordering.
using DlpackStream = std::intptr_t;

/// A tensor as an array for another library, which shares the elements and keeps them alive until it releases
/// `keep_alive`. Orders later work of `stream` after the work on the tensor, and reuses the memory only after what
/// `stream` was given until the release is done. Without streams (host memory, emulated devices), or if `stream`
/// captures a graph, waits until the elements are ready; a release during a capture takes effect after it. Throws as
/// `Tensor::begin_use`, and `Errc::invalid_argument` for an invalid stream.
[[nodiscard]] DlpackArray to_dlpack(const Tensor& tensor, DlpackStream stream = 1);

/// Orders later work of `stream` after the work on all these tensors at once. As long as the result exists,
/// `to_dlpack` of each for the same stream costs little. Requires: the tensors lie at one place. Throws as
/// `to_dlpack`.
[[nodiscard]] std::shared_ptr<void> begin_exports(std::span<const Tensor> tensors, DlpackStream stream);

/// An array that somebody else keeps alive; `keep_alive` is empty. Throws as `import_dlpack`.
[[nodiscard]] DlpackArray describe_dlpack(const dlpack::DLTensor& tensor);

/// Takes ownership of an array. Calls its deleter exactly once: when the last copy of the result's `keep_alive` is
/// released, on any thread, or before this throws. (So mark a Python capsule as used before this call.) Trusts that
/// the memory is what `managed` says. Throws `Errc::unsupported` for a newer major version, types without `DType`,
/// more than `kMaxRank` dimensions, negative strides, misaligned elements, and other devices; `Errc::corrupt` for
/// negative sizes, and elements without memory. Requires: not null.
[[nodiscard]] DlpackArray import_dlpack(dlpack::DLManagedTensorVersioned* managed);

/// The same for the form before version 1.0.
[[nodiscard]] DlpackArray import_dlpack(dlpack::DLManagedTensor* managed);

/// How an array of another library became a tensor.
enum class ImportWay : std::uint8_t {
  ipc_handle,  ///< the same memory, which peers open by a handle; it dies with this process
  retained,    ///< the same memory, which the session holds too; it survives this process
  copied,      ///< a copy in memory of the session; it survives this process
  own,         ///< the same memory, which already belongs to the session: an exported tensor's, or a SlabAllocator's
};

/// "ipc_handle", "retained", "copied", "own".
[[nodiscard]] const char* to_string(ImportWay way) noexcept;

/// A tensor, and how its memory relates to that of the array.
struct Imported {
  Tensor tensor;                      ///< the array's elements
  ImportWay way = ImportWay::copied;  ///< how it was imported
};

/// Options of `import_tensor`.
struct ImportOptions {
  /// The stream on which the other library uses the array (see Device::borrow_stream): work on the tensor comes after
  /// everything that it was given, and what it is given later after the copy. Without it the array must be ready, and
  /// stay unchanged until the tensor is. Only for arrays on a device.
  std::optional<std::uintptr_t> stream;
  /// Whether the tensor shares the memory of the array instead of a copy. If nothing else can share it, it is copied.
  bool by_reference = false;
  /// Whether the array is known to exist. Otherwise the driver is asked, since to copy memory that does not exist
  /// would make the device unusable.
  bool is_known = false;
};

/// An array to import, and how.
struct ImportRequest {
  DlpackArray array;      ///< the array
  ImportOptions options;  ///< how
};

/// Makes a tensor of an array of another library, at the same place. Memory that the session already has is shared
/// (`own`). All other memory is copied, so that the tensor has the elements of this moment and survives this process.
///
/// `by_reference` shares virtual memory that can be exported (`retained`) and plain allocations (`ipc_handle`), and
/// copies the rest: host memory, pools, managed memory, arrays over several mappings, and elements that are
/// misaligned in their allocation. If a device has no room for a copy, the array is shared too, with a warning in the
/// log. Traces the way, e.g. as "tensor.import.copied".
///
/// Releases `keep_alive` at once for `own`, and for copies when they are done. If the array's library divides the
/// memory by itself (`SlabAllocatorOptions::is_divided`), holds it until no process has a lease for this array; for
/// shared memory until no process in the session has a lease on the allocation: every use of `memory` checks that, so
/// keep a Memory until then. Imports of one allocation share a slab, and are released together. A release is without
/// a mutex, on any thread that uses `memory` or on one of its own, and must not wait for a thread that ends `memory`.
///
/// Tensors cannot be marked read-only: do not write to a tensor of a read-only array unless it is `copied`. After the
/// process of an `ipc_handle` has died, opening it throws `Errc::peer_lost`.
///
/// Does not wait for the stream, except to copy host memory. Throws `Errc::invalid_argument` if no such memory lies
/// on the array's device, there is no such stream, or it captures a graph; and as `Memory::allocate`.
[[nodiscard]] Imported import_tensor(const Memory& memory, const DlpackArray& array,
                                     const ImportOptions& options = {});

/// Like import_tensor, for many arrays, in order. Copies all of one place and stream at once. Small arrays share
/// blocks of up to 32 MiB; of those, arrays that overlap still do.
[[nodiscard]] std::vector<Imported> import_tensors(const Memory& memory, std::span<const ImportRequest> requests);

/// Like import_tensor, for an array that is `own`; nullopt for any other. Needs only an address: no driver is
/// queried, and no `keep_alive` is needed.
[[nodiscard]] std::optional<Tensor> find_tensor(const Memory& memory, const DlpackArray& array,
                                                const std::optional<std::uintptr_t>& stream);

}  // namespace drover
