// Compares our declarations of the driver API with NVIDIA's header, if a toolkit is installed.
#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

// Older headers lack entry points that we use.
#if defined(CUDA_VERSION) && CUDA_VERSION >= 12040

#include <cstddef>
#include <type_traits>

#include "device/cuda/api_types.hpp"

namespace drover::device::cuda {

TEST(CudaAbi, structures_have_nvidias_layout) {
  static_assert(sizeof(CUuuid) == sizeof(::CUuuid));
  static_assert(sizeof(CUipcMemHandle) == sizeof(::CUipcMemHandle));
  static_assert(sizeof(CUmemLocation) == sizeof(::CUmemLocation));
  static_assert(offsetof(CUmemLocation, id) == offsetof(::CUmemLocation, id));
  static_assert(sizeof(CUmemAllocationProp) == sizeof(::CUmemAllocationProp));
  static_assert(offsetof(CUmemAllocationProp, requested_handle_types) ==
                offsetof(::CUmemAllocationProp, requestedHandleTypes));
  static_assert(offsetof(CUmemAllocationProp, location) == offsetof(::CUmemAllocationProp, location));
  static_assert(offsetof(CUmemAllocationProp, flags.gpu_direct_rdma_capable) ==
                offsetof(::CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
  static_assert(sizeof(CUmemAccessDesc) == sizeof(::CUmemAccessDesc));
  static_assert(offsetof(CUmemAccessDesc, flags) == offsetof(::CUmemAccessDesc, flags));
  static_assert(sizeof(CUmemHandle) == sizeof(::CUmemGenericAllocationHandle));
  static_assert(sizeof(CUdeviceptr) == sizeof(::CUdeviceptr));
}

TEST(CudaAbi, constants_have_nvidias_values) {
  EXPECT_EQ(kSuccess, CUDA_SUCCESS);
  EXPECT_EQ(kInvalidValue, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(kDeinitialized, CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(kMapFailed, CUDA_ERROR_MAP_FAILED);
  EXPECT_EQ(kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(kNotFound, CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(kNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(kAttributeRdmaVmm, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  EXPECT_EQ(kAttributeMemOps64, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  EXPECT_EQ(kAllocationPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(kHandlePosixFd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(kLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(kAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(kGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  EXPECT_EQ(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(kHostRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE);
  EXPECT_EQ(kHostRegisterDeviceMap, CU_MEMHOSTREGISTER_DEVICEMAP);
  EXPECT_EQ(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(kCaptureNone, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(kCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(kWaitGeq, CU_STREAM_WAIT_VALUE_GEQ);
  EXPECT_EQ(kWriteDefault, CU_STREAM_WRITE_VALUE_DEFAULT);
  EXPECT_EQ(kJitErrorLog, CU_JIT_ERROR_LOG_BUFFER);
  EXPECT_EQ(kJitErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  EXPECT_EQ(kIpcLazyPeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  EXPECT_EQ(kStreamLegacy, reinterpret_cast<std::uintptr_t>(CU_STREAM_LEGACY));
  EXPECT_EQ(kStreamPerThread, reinterpret_cast<std::uintptr_t>(CU_STREAM_PER_THREAD));
}

TEST(CudaAbi, attributes_of_addresses_have_nvidias_values) {
  EXPECT_EQ(kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  EXPECT_EQ(kPointerBufferId, CU_POINTER_ATTRIBUTE_BUFFER_ID);
  EXPECT_EQ(kPointerIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED);
  EXPECT_EQ(kPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  EXPECT_EQ(kPointerIsLegacyIpcCapable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
  EXPECT_EQ(kPointerRangeStart, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  EXPECT_EQ(kPointerRangeSize, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  EXPECT_EQ(kPointerAllowedHandles, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
  EXPECT_EQ(kPointerPool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
  EXPECT_EQ(kPointerMappingSize, CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
  EXPECT_EQ(kPointerMappingBase, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
  EXPECT_EQ(kMemoryTypeDevice, CU_MEMORYTYPE_DEVICE);
}

// Equal number of parameters, each of the same size and kind, as the calling convention requires.
template <class Ours, class Theirs>
static constexpr bool same_kind() {
  return sizeof(Ours) == sizeof(Theirs) &&  // NOLINT(bugprone-sizeof-expression): sizes of pointers, on purpose
         std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
         std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>;
}

template <class... Ours, class... Theirs>
static constexpr bool same_call(int (*)(Ours...), ::CUresult (*)(Theirs...)) {
  if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
    return (same_kind<Ours, Theirs>() && ...);
  } else {
    return false;
  }
}

TEST(CudaAbi, every_entry_point_has_nvidias_parameters) {
  // NOLINTBEGIN(bugprone-macro-parentheses): a parameter list, and a name behind ::
#define DROVER_CUDA(name, version, need, parameters) \
  static_assert(same_call(static_cast<int(*) parameters>(nullptr), static_cast<decltype(&::name)>(nullptr)), #name);
#include "device/cuda/driver.def"
#undef DROVER_CUDA
  // NOLINTEND(bugprone-macro-parentheses)
}

}  // namespace drover::device::cuda

#else

TEST(CudaAbi, needs_a_toolkit) { GTEST_SKIP() << "no cuda.h of CUDA 12.4 or newer on this machine to compare with"; }

#endif
