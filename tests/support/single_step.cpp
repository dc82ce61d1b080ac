// The test's side: commands to the peer that forks and traces, see single_step_tracer.cpp.
#include "support/single_step.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/scoped_environment.hpp"

namespace drover::test {

SingleStepper::SingleStepper(TestSession& session, std::string body, std::vector<ObjectHandle> objects)
    : session_(session),
      objects_(std::move(objects)),
      peers_("step_processes", {.mode = PeerMode::processes, .size = 1}, {{"body", std::move(body)}}) {
  const ScopedEnvironment bound("LD_BIND_NOW", "1");  // else the first call of each function is the loader's work
  peers_.start();
}

SingleStepper::~SingleStepper() {
  try {
    peers_.channel(0).send("end");
    peers_.expect_success();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the peer that traces: " << error.what();
  }
}

std::string SingleStepper::run(const std::string& command) {
  peers_.channel(0).send(command);
  owner_ = session_.invite(peers_.channel(0), objects_);
  for (;;) {
    std::string answer = peers_.receive_text(0);
    if (answer != "sleeps") return answer;
    if (wake_) wake_();
    peers_.channel(0).send(wake_ ? "go on" : "stop");
  }
}

std::size_t SingleStepper::measure() {
  const std::string answer = run("measure");
  bury();
  return std::stoul(answer);
}

StepEnd SingleStepper::kill_after(std::size_t instructions) {
  const std::string answer = run(fmt::format("{}", instructions));
  place_ = answer;
  return answer == "finished" ? StepEnd::finished : StepEnd::killed;
}

void SingleStepper::bury() { session_.bury(owner_); }

std::size_t kill_at_every_instruction(SingleStepper& stepper, const StepChecks& checks, std::size_t most) {
  std::size_t count = 0;
  for (int run = 0; run < 2; ++run) {  // the first changes what the others find: laps, generations, high water
    checks.prepare();
    count = stepper.measure();
    checks.check_buried();
  }
  if (count < 10) throw std::logic_error(fmt::format("the stepped body has only {} instructions", count));
  const std::size_t stride = most == 0 ? 1 : std::max<std::size_t>(1, count / most);
  std::size_t kills = 0;
  std::size_t finished = 0;
  for (std::size_t instructions = 0; instructions < count; instructions += stride) {
    checks.prepare();
    const StepEnd end = stepper.kill_after(instructions);
    const ::testing::ScopedTrace trace(
        __FILE__, __LINE__,
        fmt::format("killed after {} of {} instructions, at {}", instructions, count, stepper.place()));
    end == StepEnd::killed ? ++kills : ++finished;
    if (checks.check_dead) checks.check_dead();
    stepper.bury();
    checks.check_buried();
    if (::testing::Test::HasFailure()) break;
  }
  // Another way now and then is the scheduler's; another way always would mean that nothing was tried.
  ::testing::Test::RecordProperty("instructions", static_cast<int>(count));
  ::testing::Test::RecordProperty("kills", static_cast<int>(kills));
  EXPECT_LE(finished, count / stride / 4 + 1) << "the stepped body does not follow the way that was measured";
  return kills;
}

}  // namespace drover::test
