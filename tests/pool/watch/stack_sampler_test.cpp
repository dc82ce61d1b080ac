#include "pool/watch/stack_sampler.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/pool/this_worker.hpp"
#include "pool/watch/board_support.hpp"
#include "process/inspect/symbols.hpp"
#include "support/build.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/peer_group.hpp"
#include "support/waiting_child.hpp"

namespace drover::pool {

// Not in an unnamed namespace and not inlined, because the tests search for their names.
__attribute__((noinline)) void wait_at_a_known_place(const std::atomic<bool>& is_over) {
  is_over.wait(false);
  asm volatile("");
}
__attribute__((noinline)) void spin_at_a_known_place(const std::atomic<bool>& is_over) {
  while (!is_over.load()) asm volatile("");
}

namespace {

using namespace std::chrono_literals;
using test::PeerGroup;
using test::PeerMode;
using test::PeerShape;
using test::TestBoard;

Deadline soon() { return Deadline::after(60s); }

bool has_frame(const std::vector<std::string>& lines, const std::string& name) {
  return std::ranges::any_of(lines, [&](const auto& line) { return line.find(name) != std::string::npos; });
}

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const auto& line : lines) all += line + "\n";
  return all;
}

// A handler that claims more frames than there is room for.
std::atomic<BoardWorker*> lying_slot{nullptr};
void lie_about_the_depth(int /*signal*/, siginfo_t* info, void* /*context*/) {
  BoardWorker& slot = *lying_slot.load();
  slot.stack_depth = 0xFFFFFFFF;
  slot.stack_given = static_cast<std::uint32_t>(info->si_value.sival_int);
}

void write_a_text(int number) {
  const std::string text = "Thread " + std::to_string(number) + ":\n  in \x1b a handler\n";
  EXPECT_EQ(::write(stack_text_file(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

// A worker that answers, and then waits for a message of the test.
DROVER_PEER_BODY(stack_worker) {
  ChannelMessage message;
  ASSERT_EQ(peer.channel().receive(message, soon()), ReceiveResult::message);
  const TestBoard board(std::move(message.fds.at(0)));
  if (message.bytes == "answer") answer_stack_requests(board->workers[0]);
  if (message.bytes == "block") {
    answer_stack_requests(board->workers[0]);
    sigset_t all{};
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  }
  if (message.bytes == "text") {
    answer_stack_requests(board->workers[0]);
    set_stack_text_writer(write_a_text, 17);
  }
  if (message.bytes == "poll" || message.bytes == "poll with text") {
    answer_stack_requests(board->workers[0]);
    if (message.bytes != "poll") set_stack_text_writer(write_a_text, 18);
    peer.channel().send("ready");
    pollfd nothing{.fd = -1, .events = 0, .revents = 0};
    while (board->workers[1].stack_asked.load() == 0) ::poll(&nothing, 1, 1000);
    static_cast<void>(peer.receive_text());
    return;
  }
  if (message.bytes == "liar") {
    lying_slot = &board->workers[0];
    struct sigaction action{};
    action.sa_sigaction = lie_about_the_depth;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ASSERT_EQ(::sigaction(stack_signal(), &action, nullptr), 0);
  }
  std::atomic<bool> is_over{false};
  std::thread listener([&] {
    static_cast<void>(peer.receive_text());
    is_over = true;
    is_over.notify_one();
  });
  peer.channel().send("ready");  // not earlier: signals are blocked while a thread is created
  wait_at_a_known_place(is_over);
  listener.join();
}

class StackSampler : public testing::Test {
 protected:
  void SetUp() override {
    if (test::kIsThreadSanitized) GTEST_SKIP() << "the thread sanitizer delays signals and runs handlers elsewhere";
  }
  void start(const std::string& how) {
    group_.start();
    const int file = board_.file().get();
    group_.channel(0).send(how, std::span(&file, 1));
    ASSERT_EQ(group_.receive_text(0), "ready");
  }
  void TearDown() override {
    if (IsSkipped()) return;
    group_.channel(0).send("end");
    group_.expect_success();
  }
  [[nodiscard]] StackSample sample(Deadline deadline) {
    return sample_stack(group_.pid(0), 0, board_->workers[0], deadline);
  }

  TestBoard board_;
  PeerGroup group_{"stack_worker", PeerShape{.mode = PeerMode::processes, .size = 1}};
};

TEST_F(StackSampler, a_waiting_worker_shows_its_stack) {
  start("answer");
  std::vector<std::string> lines;
  EXPECT_TRUE(test::comes_true([&] {  // the thread may not have reached it yet
    const auto sample = this->sample(soon());
    EXPECT_EQ(sample.problem, "");
    lines = process::Symbolizer(group_.pid(0)).describe_stack(sample.addresses);
    return has_frame(lines, "drover::pool::wait_at_a_known_place(...)");
  })) << joined(lines);
  EXPECT_TRUE(has_frame(lines, "main")) << joined(lines);
  EXPECT_FALSE(has_frame(lines, "drover_answer_stack")) << joined(lines);
  EXPECT_EQ(board_->workers[0].stack_thread.load(), static_cast<std::uint32_t>(group_.pid(0)));
}

TEST_F(StackSampler, an_interpreter_adds_its_own_stack) {
  start("text");
  for (int i = 0; i < 3; ++i) {  // each request gets a new text
    const auto sample = this->sample(soon());
    EXPECT_EQ(sample.problem, "");
    EXPECT_FALSE(sample.addresses.empty());
    EXPECT_EQ(sample.text, (std::vector<std::string>{"Thread 17:", "  in ? a handler"}));
  }
}

TEST_F(StackSampler, another_thread_answers_for_a_sleeping_one) {
  start("poll with text");
  StackSample sample;
  EXPECT_TRUE(test::comes_true([&] {  // the thread may not have reached it yet
    sample = this->sample(soon());
    return sample.problem.find("not disturbed") != std::string::npos;
  }));
  EXPECT_TRUE(sample.addresses.empty());
  EXPECT_EQ(sample.text, (std::vector<std::string>{"Thread 18:", "  in ? a handler"}));
  EXPECT_EQ(board_->workers[0].stack_thread.load(), board_->workers[0].stack_helper.load());
  board_->workers[1].stack_asked = 1;
}

TEST(StackSamplerAlone, only_a_worker_can_set_a_stack_text_writer) {
  test::expect_error(Errc::invalid_argument, [] { set_stack_text_writer(write_a_text, 1); }, {"worker"});
}

TEST_F(StackSampler, a_worker_without_a_handler_gets_no_signal) {
  start("nothing");
  EXPECT_EQ(sample(soon()).problem, "it does not answer such requests");
}

TEST_F(StackSampler, a_worker_that_blocks_signals_fails_immediately) {
  start("block");
  EXPECT_EQ(sample(soon()).problem, "its main thread blocks the signal");
}

TEST_F(StackSampler, a_stopped_worker_fails_immediately) {
  start("answer");
  ::kill(group_.pid(0), SIGSTOP);
  test::facts_once(group_.pid(0), [](const auto& seen) { return seen.is_stopped(); });
  EXPECT_EQ(sample(soon()).problem, "it is stopped");
  ::kill(group_.pid(0), SIGCONT);
  test::facts_once(group_.pid(0), [](const auto& seen) { return !seen.is_stopped(); });
  EXPECT_EQ(sample(soon()).problem, "");
}

TEST_F(StackSampler, an_interruptible_sleep_is_not_disturbed) {
  start("poll");
  test::facts_once(group_.pid(0), [](const auto& seen) { return seen.threads.at(0).call == "poll"; });
  std::string problem;
  EXPECT_TRUE(test::comes_true([&] {  // it may be between two sleeps
    problem = sample(Deadline::after(20ms)).problem;
    return problem == "asleep in poll, not disturbed";
  })) << problem;
  board_->workers[1].stack_asked = 1;  // releases it
}

TEST_F(StackSampler, a_process_with_another_board_gets_no_signal) {
  start("answer");
  const TestBoard other;
  EXPECT_EQ(sample_stack(group_.pid(0), 0, other->workers[0], soon()).problem, "it does not have this board open");
  EXPECT_EQ(other->workers[0].stack_asked.load(), 0U);
  BoardWorker outside;  // not in a file
  EXPECT_EQ(sample_stack(group_.pid(0), 0, outside, soon()).problem, "it does not have this board open");
}

TEST_F(StackSampler, the_depth_is_not_trusted) {
  start("liar");
  const auto sample = this->sample(soon());
  EXPECT_EQ(sample.problem, "");
  EXPECT_EQ(sample.addresses.size(), BoardWorker::kMostFrames);
}

TEST_F(StackSampler, a_failed_signal_is_reported) {
  start("answer");
  const test::FaultSeam fail("rt_tgsigqueueinfo", EPERM);
  EXPECT_NE(sample(soon()).problem.find("cannot be signalled"), std::string::npos);
}

TEST_F(StackSampler, a_missing_answer_times_out) {
  start("answer");
  // It answers in its own slot, which is another one.
  const auto sample = sample_stack(group_.pid(0), 0, board_->workers[1], Deadline::after(1s));
  EXPECT_EQ(sample.problem, "no answer");
  EXPECT_TRUE(sample.addresses.empty());
}

TEST(StackSamplerAlone, a_process_that_is_gone_has_no_stack) {
  const TestBoard board;
  EXPECT_EQ(sample_stack(0x7FFFFFF0, 0, board->workers[0], soon()).problem, "it is gone");
  auto child = test::start_child("/bin/true", {});
  test::await_end(child);
  EXPECT_EQ(sample_stack(child.pid(), 0, board->workers[0], soon()).problem, "it has ended");
}

// Restores the handler of this process.
class HandlerKept {
 public:
  HandlerKept() { ::sigaction(stack_signal(), nullptr, &before_); }
  ~HandlerKept() { ::sigaction(stack_signal(), &before_, nullptr); }
  HandlerKept(const HandlerKept&) = delete;
  HandlerKept& operator=(const HandlerKept&) = delete;

 private:
  struct sigaction before_{};
};

TEST(StackSamplerAlone, a_computing_thread_of_this_process_is_sampled) {
  const TestBoard board;  // destroyed after the handler
  auto& slot = board->workers[0];
  const HandlerKept kept;
  answer_stack_requests(slot);
  std::atomic<pid_t> tid{0};
  std::atomic<bool> is_over{false};
  std::thread busy([&] {
    tid = static_cast<pid_t>(::syscall(SYS_gettid));
    spin_at_a_known_place(is_over);
  });
  ASSERT_TRUE(test::comes_true([&] { return tid != 0; }));
  ASSERT_TRUE(test::comes_true([&] {
    const auto sample = sample_stack(::getpid(), tid, slot, soon());
    const auto lines = process::Symbolizer(::getpid()).describe_stack(sample.addresses);
    return has_frame(lines, "drover::pool::spin_at_a_known_place(...)");
  }));
  EXPECT_EQ(slot.stack_thread.load(), static_cast<std::uint32_t>(tid));
  is_over = true;
  busy.join();
}

TEST(StackSamplerAlone, a_foreign_signal_is_ignored) {
  const TestBoard board;  // destroyed after the handler
  auto& slot = board->workers[0];
  const HandlerKept kept;
  answer_stack_requests(slot);
  const auto given = slot.stack_given.load();
  slot.stack_asked = given + 1;
  ASSERT_EQ(::raise(stack_signal()), 0);
  EXPECT_EQ(slot.stack_given.load(), given);
}

TEST(StackSamplerAlone, failing_to_install_the_handler_is_an_error) {
  const TestBoard board;
  auto& slot = board->workers[0];
  const HandlerKept kept;
  const test::FaultSeam fail("sigaction", EINVAL);
  test::expect_error(Errc::invalid_argument, [&] { answer_stack_requests(slot); }, {"sigaction"});
}

}  // namespace
}  // namespace drover::pool
