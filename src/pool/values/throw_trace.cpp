#include "pool/values/throw_trace.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "process/inspect/symbols.hpp"

namespace drover::pool {
namespace {

constexpr std::size_t kMostFrames = 48;
constexpr std::size_t kMostShown = 16;

struct Trace {
  bool is_wanted = false;
  int depth = 0;
  std::array<void*, kMostFrames> frames{};
};
thread_local constinit Trace trace;

}  // namespace

ThrowTrace::ThrowTrace() noexcept {
  trace.depth = 0;
  trace.is_wanted = true;
}
ThrowTrace::~ThrowTrace() { trace.is_wanted = false; }

std::string ThrowTrace::last() {
  constexpr int kOurs = 1;  // __cxa_throw itself
  std::vector<std::uint64_t> addresses;
  for (int i = kOurs; i < trace.depth && addresses.size() < kMostShown; ++i)
    addresses.push_back(reinterpret_cast<std::uint64_t>(trace.frames.at(static_cast<std::size_t>(i))));
  trace.depth = 0;
  if (addresses.empty()) return {};
  std::string text;
  for (const auto& line : process::Symbolizer(::getpid()).describe_stack(addresses)) {
    if (line.starts_with("drover::WorkerLoop")) break;  // the frames from here on are the same for all tasks
    text += "    " + line + "\n";
  }
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace drover::pool

// Intercepts every throw of the program, and calls the function of the standard library. Outside of tasks it costs a
// load and a branch. Weak, because a program that links the standard library statically has that function already;
// then there are no stacks.
extern "C" [[noreturn]] void drover_throw(void* exception, void* type, void (*destroy)(void*)) asm("__cxa_throw");

extern "C" [[noreturn, gnu::weak]] void drover_throw(void* exception, void* type, void (*destroy)(void*)) {
  using Throw = void (*)(void*, void*, void (*)(void*));
  static const auto next = reinterpret_cast<Throw>(::dlsym(RTLD_NEXT, "__cxa_throw"));
  if (drover::pool::trace.is_wanted)
    drover::pool::trace.depth =
        ::backtrace(drover::pool::trace.frames.data(), static_cast<int>(drover::pool::trace.frames.size()));
  if (next != nullptr) next(exception, type, destroy);
  std::abort();
}
