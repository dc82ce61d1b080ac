// drover/tensor/dlpack.hpp: arrays handed to and taken from other libraries in this process, without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "drover/device/memory.hpp"
#include "drover/tensor/place.hpp"
#include "drover/tensor/tensor.hpp"
#include "drover/tensor/tensor_layout.hpp"

namespace drover {

/// The C interface of DLPack 1.1, bit for bit, so that no header of DLPack is needed: a pointer to one of its own
/// structures is cast to that of the same name. Names are those of DLPack.
namespace dlpack {

// NOLINTBEGIN(readability-identifier-naming): names that all libraries share

/// Where memory lies. Others exist; drover takes these.
enum DLDeviceType : std::int32_t {
  kDLCPU = 1,           ///< host memory
  kDLCUDA = 2,          ///< memory of an NVIDIA GPU
  kDLCUDAHost = 3,      ///< pinned host memory
  kDLCUDAManaged = 13,  ///< memory that moves between host and GPU
};

/// A device type and a number of it.
struct DLDevice {
  DLDeviceType device_type;  ///< which kind
  std::int32_t device_id;    ///< as CUDA numbers them in this process; 0 for host memory
};

/// Kinds of elements that drover has too.
enum DLDataTypeCode : std::uint8_t {
  kDLInt = 0,      ///< signed
  kDLUInt = 1,     ///< unsigned
  kDLFloat = 2,    ///< of IEEE 754
  kDLBfloat = 4,   ///< bfloat16
  kDLComplex = 5,  ///< bits count both parts
  kDLBool = 6,     ///< 8 bits, 0 or 1
};

/// The type of elements.
struct DLDataType {
  std::uint8_t code;    ///< a `DLDataTypeCode`, or one that drover does not know
  std::uint8_t bits;    ///< of one lane
  std::uint16_t lanes;  ///< numbers in one element; drover takes 1
};

/// An array that others own.
struct DLTensor {
  void* data;                 ///< an address on the device; may be null for an array without elements
  DLDevice device;            ///< where
  std::int32_t ndim;          ///< number of dimensions
  DLDataType dtype;           ///< of the elements
  std::int64_t* shape;        ///< `ndim` sizes
  std::int64_t* strides;      ///< `ndim` strides in elements; null for row after row
  std::uint64_t byte_offset;  ///< from `data` to the first element
};

/// An array with its owner, in the form without a version.
struct DLManagedTensor {
  DLTensor dl_tensor;                 ///< the array
  void* manager_ctx;                  ///< the owner's
  void (*deleter)(DLManagedTensor*);  ///< called once by whoever took it, when done; may be null
};

/// The version of the interface that a structure has.
struct DLPackVersion {
  std::uint32_t major;  ///< another one means another structure
  std::uint32_t minor;  ///< another one means further constants
};

/// An array with its owner, in the form of DLPack 1.0 and later. Of a version with another `major` only the first
/// three fields can be read.
struct DLManagedTensorVersioned {
  DLPackVersion version;                       ///< of this structure
  void* manager_ctx;                           ///< the owner's
  void (*deleter)(DLManagedTensorVersioned*);  ///< called once by whoever took it, when done; may be null
  std::uint64_t flags;                         ///< bits below
  DLTensor dl_tensor;                          ///< the array
};

// NOLINTEND(readability-identifier-naming)

inline constexpr DLPackVersion kVersion = {.major = 1,
                                           .minor = 1};  ///< what is exported, and the newest that is read
inline constexpr std::uint64_t kFlagReadOnly = 1;        ///< it must not be written
inline constexpr std::uint64_t kFlagIsCopied = 2;        ///< it was copied for whoever asked

}  // namespace dlpack

/// An array that goes to another library, or came from one.
///
/// Streams are no part of these structures; Python's protocol has them. Who asks an object for its array calls
/// `__dlpack__(stream=s)`, where s is the stream on which it will use the array: for cuda 1 for the default stream, 2
/// for the per-thread default stream, else the address of a CUstream, and -1 to do without ordering; for host memory
/// None. The producer makes s wait for its own work. An export from drover must be ordered like this by its caller;
/// work on an emulated device must be finished, since others see host memory.
struct DlpackArray {
  TensorLayout layout;           ///< of the memory at `base`
  Place place;                   ///< where it lies
  DevicePtr base;                ///< its first byte; a host address for `cpu` and for emulated devices
  std::shared_ptr<void> keeper;  ///< the memory lives as long as this; shared with whatever else needs the memory
  bool is_read_only = false;     ///< it must not be written
  bool is_copied = false;        ///< nobody else has this memory

  /// The memory as the CPU sees it. Requires: host memory, or that of an emulated device.
  [[nodiscard]] std::byte* host() const;
};

/// As other libraries see a place. An emulated device is host memory to them (kDLCPU): its addresses are those of
/// this process, every library can use them, and none would know another type of device.
[[nodiscard]] dlpack::DLDevice to_dlpack(const Place& place);

/// The place of an array of another library. Pinned host memory is `cpu`; managed memory is that of the GPU it
/// names, by DLPack's rule the first, whose streams order its use. Throws `Errc::unsupported` for devices that drover
/// does not drive.
[[nodiscard]] Place from_dlpack(const dlpack::DLDevice& device);

/// Gives an array away. The result owns a share of the keeper until its deleter is called, once, in any thread, also
/// after `main` has returned. Throws `Errc::invalid_argument` if the layout is not valid, or there are elements but
/// no memory; then nothing is owned.
[[nodiscard]] dlpack::DLManagedTensorVersioned* export_dlpack(const DlpackArray& array);

/// The same in the form before version 1.0, for libraries that ask for no version. It cannot say that an array must
/// not be written: such a one is `Errc::unsupported`.
[[nodiscard]] dlpack::DLManagedTensor* export_dlpack_unversioned(const DlpackArray& array);

/// On which stream another library will use an array, as Python's protocol writes it: a CUstream's address, 1 for the
/// default stream, 2 for that of each thread, -1 to do without ordering.
using DlpackStream = std::intptr_t;

/// A tensor as an array for another library, which shares the elements and keeps them alive until it lets go. What
/// `stream` does from now on comes after the work on the tensor; and the memory is not given back before what
/// `stream` was given until then is done. Host memory, and that of emulated devices, has no streams: it is ready on
/// return. If `stream` captures a graph, the elements are there on return, and when they are let go during a capture,
/// the memory is given back after it. Throws as `Tensor::begin_use`, and `Errc::invalid_argument` for a stream that
/// cannot be.
[[nodiscard]] DlpackArray to_dlpack(const Tensor& tensor, DlpackStream stream = 1);

/// Takes an array over. Its deleter is called exactly once: when the last copy of the result's keeper goes, in
/// whatever thread, or before this throws. (So a Python capsule must be marked as used before this is called.) The
/// memory itself is trusted to be what `managed` says. Throws `Errc::unsupported` for what drover has no word for: a
/// newer major version, types without `DType`, more than `kMaxRank` dimensions, negative strides, elements that do
/// not lie at multiples of their size, other devices; `Errc::corrupt` for what cannot be: negative sizes, elements
/// without memory. Requires: not null.
[[nodiscard]] DlpackArray import_dlpack(dlpack::DLManagedTensorVersioned* managed);

/// The same for the form before version 1.0.
[[nodiscard]] DlpackArray import_dlpack(dlpack::DLManagedTensor* managed);

}  // namespace drover
