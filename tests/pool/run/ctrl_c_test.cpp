// Ctrl-C in a program with a pool: the first one shuts down gracefully, the second one ends the program.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/ipc/queue.hpp"
#include "drover/pool/pool.hpp"
#include "drover/session/process.hpp"
#include "drover/session/worker.hpp"
#include "pool/run/pool_support.hpp"

namespace drover::pool {
namespace {

using namespace std::chrono_literals;
using test::kPatience;

const auto interrupted_sleep = task("interrupted_sleep", [](int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return milliseconds;
});

// An application process, which reports in a queue when its tasks run, and then how they ended.
const auto interrupted_application = entry("interrupted_application", [](Worker& worker) {
  Queue words(worker.session(), ObjectHandle::parse(worker.arguments().at(0)));
  const int milliseconds = std::stoi(worker.arguments().at(1));
  Pool pool({.workers = 2, .devices = "none"});
  static_cast<void>(pool.wait_ready());
  std::vector<Future<int>> futures;
  for (int i = 0; i < 20; ++i) futures.push_back(pool.submit(interrupted_sleep, milliseconds));
  while (pool.statistics().in_flight < 2) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(20ms);
  static_cast<void>(words.put("running"));
  int done = 0;
  int cancelled = 0;
  for (const auto& future : futures) {
    try {
      future.get();
      ++done;
    } catch (const Error& error) {
      cancelled += error.code() == Errc::cancelled ? 1 : 0;
    }
  }
  try {
    pool.submit(interrupted_sleep, 0);
  } catch (const Error& error) {
    static_cast<void>(words.put(error.what()));
  }
  static_cast<void>(words.put(std::to_string(done) + " done, " + std::to_string(cancelled) + " cancelled"));
});

class CtrlC : public ::testing::Test {
 protected:
  Process start(int milliseconds) {
    auto process = Process::start(
        session_,
        {.entry = interrupted_application, .arguments = {words_.handle().to_string(), std::to_string(milliseconds)}});
    EXPECT_EQ(take(), "running");
    return process;
  }
  std::string take() {
    Message message;
    return words_.get(message, Deadline::after(kPatience)) == GetResult::got ? std::string(message.text())
                                                                             : "nothing";
  }

  Session session_ = Session::start();
  Queue words_{session_, {.waits_alone = true}};
};

TEST_F(CtrlC, the_first_ctrl_c_finishes_running_tasks_and_cancels_the_rest) {
  auto process = start(300);
  process.kill(SIGINT);
  EXPECT_NE(take().find("interrupted by Ctrl-C"), std::string::npos);
  const auto words = take();  // on a busy machine one of the two may not have begun
  EXPECT_TRUE(words == "2 done, 18 cancelled" || words == "1 done, 19 cancelled") << words;
  const auto ended = process.wait(Deadline::after(kPatience));
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->is_success()) << ended->to_string();
}

TEST_F(CtrlC, the_second_ctrl_c_ends_the_program) {
  auto process = start(600'000);
  process.kill(SIGINT);
  std::this_thread::sleep_for(100ms);
  process.kill(SIGINT);
  const auto ended = process.wait(Deadline::after(kPatience));
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->signal(), SIGINT) << ended->to_string();
}

TEST_F(CtrlC, a_program_keeps_its_own_handler) {
  struct sigaction before{};
  struct sigaction own{};
  own.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGINT, &own, &before), 0);
  {
    const Pool pool({.workers = 1, .devices = "none"});
    struct sigaction now{};
    ::sigaction(SIGINT, nullptr, &now);
    EXPECT_EQ(now.sa_handler, own.sa_handler);
  }
  ::sigaction(SIGINT, &before, nullptr);
}

TEST_F(CtrlC, the_handler_is_removed_with_the_last_pool) {
  struct sigaction now{};
  {
    const Pool first({.workers = 1, .devices = "none"});
    {
      const Pool second({.workers = 1, .devices = "none"});
    }
    ::sigaction(SIGINT, nullptr, &now);
    EXPECT_NE(now.sa_handler, SIG_DFL);
  }
  ::sigaction(SIGINT, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace drover::pool
