// A kernel in an object that the loader never unloads: a static of a template is a unique symbol of the process.
#include "drover/device/host_kernel.h"

template <class Type>
struct Kept {
  static inline int uses = 0;
};

extern "C" void tell_number(const HostLaunch* launch) {
  Kept<int>::uses += 1;
  **static_cast<int**>(launch->arguments[0]) = NUMBER;
}
