// The test's side: sends commands to the peer that forks and traces (single_step_tracer.cpp).
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
  const ScopedEnvironment bound("LD_BIND_NOW", "1");  // otherwise the first call of each function runs the loader
  peers_.start();
}

SingleStepper::~SingleStepper() {
  try {
    peers_.channel(0).send("end");
    peers_.expect_success();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the tracing peer: " << error.what();
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
  recover();
  return std::stoul(answer);
}

StepEnd SingleStepper::kill_after(std::size_t instructions) {
  const std::string answer = run(fmt::format("{}", instructions));
  place_ = answer;
  return answer == "finished" ? StepEnd::finished : StepEnd::reached;
}

StepEnd SingleStepper::pause_after(std::size_t instructions) {
  place_ = run(fmt::format("pause {}", instructions));
  return place_ == "finished" ? StepEnd::finished : StepEnd::reached;
}

void SingleStepper::resume() {
  peers_.channel(0).send("resume");
  for (std::string answer = peers_.receive_text(0);; answer = peers_.receive_text(0)) {
    if (answer != "sleeps") {
      EXPECT_EQ(answer, "finished");
      return;
    }
    if (wake_) wake_();
    peers_.channel(0).send(wake_ ? "go on" : "stop");
  }
}

void SingleStepper::recover() { session_.recover(owner_); }

namespace {

// Twice: the first run changes state that later runs see, such as laps, generations and high-water marks.
std::size_t measure_twice(SingleStepper& stepper, const std::function<void()>& prepare,
                          const std::function<void()>& check) {
  std::size_t count = 0;
  for (int run = 0; run < 2; ++run) {
    prepare();
    count = stepper.measure();
    check();
  }
  if (count < 10) throw std::logic_error(fmt::format("the stepped body has only {} instructions", count));
  return count;
}

// The scheduler causes a different path now and then; if the path always differed, nothing would have been tested.
void expect_same_way(std::size_t tried, std::size_t finished) {
  ::testing::Test::RecordProperty("instructions", static_cast<int>(tried));
  EXPECT_LE(finished, tried / 4 + 1) << "the stepped body does not follow the measured path";
}

std::string describe(std::size_t instructions, std::size_t count, const SingleStepper& stepper) {
  return fmt::format("stopped after {} of {} instructions, at {}", instructions, count, stepper.place());
}

}  // namespace

std::size_t kill_at_every_instruction(SingleStepper& stepper, const StepChecks& checks, std::size_t most) {
  const std::size_t count = measure_twice(stepper, checks.prepare, checks.check_recovered);
  const std::size_t stride = most == 0 ? 1 : std::max<std::size_t>(1, count / most);
  std::size_t kills = 0;
  std::size_t finished = 0;
  for (std::size_t instructions = 0; instructions < count; instructions += stride) {
    checks.prepare();
    const StepEnd end = stepper.kill_after(instructions);
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, describe(instructions, count, stepper));
    end == StepEnd::reached ? ++kills : ++finished;
    if (checks.check_dead) checks.check_dead();
    stepper.recover();
    checks.check_recovered();
    if (::testing::Test::HasFailure()) break;
  }
  expect_same_way(kills + finished, finished);
  return kills;
}

std::size_t overtake_at_every_instruction(SingleStepper& stepper, const OvertakeChecks& checks) {
  const std::size_t count = measure_twice(stepper, checks.prepare, checks.check);
  std::size_t stops = 0;
  std::size_t finished = 0;
  for (std::size_t instructions = 0; instructions < count; ++instructions) {
    checks.prepare();
    const StepEnd end = stepper.pause_after(instructions);
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, describe(instructions, count, stepper));
    end == StepEnd::reached ? ++stops : ++finished;
    checks.overtake();
    stepper.resume();
    stepper.recover();
    checks.check();
    if (::testing::Test::HasFailure()) break;
  }
  expect_same_way(stops + finished, finished);
  return stops;
}

}  // namespace drover::test
