// device/cuda/api_types.hpp: our own declarations of the driver API's types, so that building needs no CUDA toolkit.
// Layouts and values are NVIDIA's ABI; tests/device/cuda_abi_test.cpp compares them with cuda.h if it is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace drover::device::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUmemHandle = unsigned long long;  // CUmemGenericAllocationHandle

struct CUuuid {
  unsigned char bytes[16];
};

struct CUipcMemHandle {
  char reserved[64];
};

struct CUmemLocation {
  int type;
  int id;
};

struct CUmemAllocationProp {
  int type;
  int requested_handle_types;
  CUmemLocation location;
  void* win32_handle_meta_data;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};

struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;
};

static_assert(sizeof(CUmemAllocationProp) == 32 && sizeof(CUmemAccessDesc) == 12);

// Results that are handled individually.
inline constexpr CUresult kSuccess = 0;
inline constexpr CUresult kInvalidValue = 1;
inline constexpr CUresult kOutOfMemory = 2;
inline constexpr CUresult kNotInitialized = 3;
inline constexpr CUresult kDeinitialized = 4;
inline constexpr CUresult kInvalidContext = 201;
inline constexpr CUresult kMapFailed = 205;
inline constexpr CUresult kInvalidHandle = 400;
inline constexpr CUresult kNotFound = 500;
inline constexpr CUresult kNotReady = 600;
inline constexpr CUresult kNotSupported = 801;
inline constexpr CUresult kCaptureImplicit = 906;

// Flags and attributes.
inline constexpr int kAttributeRdmaVmm = 110;
inline constexpr int kAttributeMemOps64 = 122;
inline constexpr int kAllocationPinned = 1;
inline constexpr int kHandlePosixFd = 1;
inline constexpr int kLocationDevice = 1;
inline constexpr int kAccessReadWrite = 3;
inline constexpr int kGranularityMinimum = 0;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterDeviceMap = 2;
inline constexpr int kCaptureRelaxed = 2;
inline constexpr int kCaptureNone = 0;
inline constexpr unsigned kWaitGeq = 0;
inline constexpr unsigned kWriteDefault = 0;
inline constexpr unsigned kIpcLazyPeerAccess = 1;
inline constexpr int kJitErrorLog = 5;
inline constexpr int kJitErrorLogBytes = 6;
inline constexpr std::uintptr_t kStreamLegacy = 1;  // the default streams, passed as pointers; 0 is one too
inline constexpr std::uintptr_t kStreamPerThread = 2;

// Attributes of an address.
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerBufferId = 7;
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kPointerIsLegacyIpcCapable = 10;
inline constexpr int kPointerRangeStart = 11;
inline constexpr int kPointerRangeSize = 12;
inline constexpr int kPointerAllowedHandles = 14;
inline constexpr int kPointerPool = 17;
inline constexpr int kPointerMappingSize = 18;
inline constexpr int kPointerMappingBase = 19;
inline constexpr std::uint64_t kMemoryTypeDevice = 2;

}  // namespace drover::device::cuda
