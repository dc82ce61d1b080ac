// Graphs that a program captures while it uses drover, in CUDA's strictest mode, which is the default of torch: a
// forbidden call on any thread invalidates the whole capture.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/backend_suite.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/mapping.hpp"
#include "drover/device/backend.hpp"
#include "support/gpu_capture.hpp"

namespace drover::test {
namespace {

constexpr std::size_t kBytes = 2 * kMiB;

// A use of drover during a capture, none of which becomes part of the graph.
struct Use {
  const char* name;
  std::function<void(Device&)> run;
};

// Objects to be freed are created in advance, so that frees are tested alone too.
struct Made {
  std::unique_ptr<DeviceMemory> memory;
  std::unique_ptr<Slab> slab;
  std::unique_ptr<DeviceMemory> mapped;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<StreamEvent> event;
};

Made make(Device& device) {
  Made made;
  made.memory = device.allocate(kBytes);
  made.slab = backend_of(BackendKind::cuda).create_slab(0, kBytes);
  made.mapped = device.map(*made.slab);
  made.stream = device.create_stream();
  made.event = device.create_event();
  made.stream->record(*made.event);
  return made;
}

std::vector<Use> uses(Made& made) {
  return {
      {"make", [](Device& device) { static_cast<void>(make(device)); }},
      {"copies",
       [&](Device& device) {
         std::uint64_t number = 7;
         device.upload(made.memory->ptr(), &number, sizeof(number));
         device.copy(made.mapped->ptr(), made.memory->ptr(), sizeof(number));
         device.download(&number, made.mapped->ptr(), sizeof(number));
       }},
      {"work", [&](Device&) { made.stream->fill(made.memory->ptr(), 1, kBytes); }},
      {"is idle", [&](Device&) { static_cast<void>(made.stream->is_idle()); }},
      {"has happened", [&](Device&) { static_cast<void>(made.event->has_happened()); }},
      {"wait", [&](Device&) { static_cast<void>(made.stream->synchronize(Deadline::never())); }},
      {"wait for an event", [&](Device&) { static_cast<void>(made.event->synchronize(Deadline::never())); }},
      {"describe", [&](Device& device) { static_cast<void>(device.describe(made.memory->ptr())); }},
      {"handle", [&](Device& device) { static_cast<void>(device.ipc_handle(made.memory->ptr())); }},
      {"export", [&](Device&) { static_cast<void>(made.slab->export_fd()); }},
      {"register",
       [](Device& device) {
         const auto memory = Mapping::shared(make_memory_file("drover-test", kBytes), kBytes);
         static_cast<void>(device.register_host(memory.bytes()));
       }},
      {"free", [&](Device&) { made = {}; }},
  };
}

// The error of a use; empty if it succeeds.
std::string failure_of(const Use& use, Device& device) {
  try {
    use.run(device);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

class CaptureSuite : public BackendSuite {};

TEST_P(CaptureSuite, survives_every_use_of_drover_on_any_thread) {
  const auto captured = device().create_stream();
  for (const bool is_own_thread : {true, false}) {
    Made made = make(device());
    for (const Use& use : uses(made)) {
      const GpuCapture capture(*captured);
      std::string failure;
      const auto run = [&] { failure = failure_of(use, device()); };
      if (is_own_thread) {
        run();
      } else {
        std::thread(run).join();
      }
      EXPECT_EQ(failure, "") << use.name << ", " << is_own_thread;
      EXPECT_TRUE(capture.end()) << use.name << ", " << is_own_thread;
    }
  }
}

// Work in flight would fault in memory that is no longer mapped.
TEST_P(CaptureSuite, survives_calls_that_wait_for_work_and_they_do_wait) {
  const auto captured = device().create_stream();
  Made made = make(device());
  const Gate gate;
  gate.hold(*made.stream);
  made.stream->fill(made.mapped->ptr(), 7, kBytes);
  made.stream->signal(gate.word(1), 1);
  const GpuCapture capture(*captured);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    gate.open();
  });
  made.mapped.reset();
  EXPECT_EQ(timeline_wait(gate.word(1), 1, Deadline::after(std::chrono::seconds(0))), WaitResult::done)
      << "the memory was unmapped before the work was complete";
  opener.join();
  EXPECT_TRUE(capture.end());
}

INSTANTIATE_TEST_SUITE_P(Cuda, CaptureSuite, testing::Values(BackendKind::cuda), backend_name);

}  // namespace drover::test
