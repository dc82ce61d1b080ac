// Names of shared objects: text from a command line or another process.
#include "drover/base/error.hpp"
#include "drover/ipc/membership.hpp"
#include "fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace drover;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const ObjectHandle handle = ObjectHandle::parse(text);
    fuzz::check(ObjectHandle::parse(handle.to_string()) == handle);
  } catch (const Error& error) {
    fuzz::check(error.code() == Errc::invalid_argument);
  }
  return 0;
}
