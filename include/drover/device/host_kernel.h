/* drover/device/host_kernel.h: the argument of kernels for the `host` backend. Plain C, so that code compiled
 * separately from drover can include it. */
#pragma once

#include <stdint.h>

/** One launch. Passed to `extern "C" void NAME(const HostLaunch*)`, which does the work of all blocks. */
typedef struct HostLaunch { /* NOLINT(modernize-use-using): C */
  uint32_t grid[3];         /**< blocks in x, y, z */
  uint32_t block[3];        /**< threads per block in x, y, z */
  uint32_t shared_bytes;    /**< dynamic shared memory per block */
  uint32_t argument_count;  /**< number of arguments */
  void* const* arguments;   /**< address of each argument's bytes, aligned to 16 bytes */
} HostLaunch;
