// Streams, events and timelines: order, and that work runs asynchronously.
#include <atomic>
#include <chrono>
#include <thread>

#include "conformance/backend_suite.hpp"
#include "drover/base/bytes.hpp"
#include "support/expect_error.hpp"

namespace drover::test {

using std::chrono::milliseconds;

constexpr std::size_t kStreamCount = 4096;
constexpr std::size_t kStreamBytes = kStreamCount * sizeof(std::uint32_t);

TEST_P(BackendSuite, new_stream_is_idle) {
  const auto stream = device().create_stream();
  EXPECT_TRUE(stream->is_idle());
  EXPECT_EQ(stream->synchronize(Deadline::after({})), WaitResult::done);
}

TEST_P(BackendSuite, work_of_a_stream_runs_in_order) {
  const auto stream = device().create_stream();
  const auto a = device().allocate(kStreamBytes);
  const auto b = device().allocate(kStreamBytes);
  const auto host = registered(2 * kStreamBytes);
  auto* const values = reinterpret_cast<std::uint32_t*>(host.memory.data());
  const auto expected = numbers(kStreamCount, 5);
  std::ranges::copy(expected, values);
  stream->upload(a->ptr(), values, kStreamBytes);
  stream->copy(b->ptr(), a->ptr(), kStreamBytes);
  stream->fill(a->ptr(), 0xff, kStreamBytes);
  stream->download(values + kStreamCount, b->ptr(), kStreamBytes);
  EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_EQ(std::vector(values + kStreamCount, values + 2 * kStreamCount), expected);
  EXPECT_EQ(read(*a, 1).front(), 0xffff'ffffU);
}

TEST_P(BackendSuite, work_behind_a_wait_has_not_run_when_the_call_returns) {
  const auto stream = device().create_stream();
  const auto memory = device().allocate(kStreamBytes);
  const auto before = numbers(kStreamCount, 1);
  device().upload(memory->ptr(), before.data(), kStreamBytes);
  const Gate gate;
  gate.hold(*stream);
  stream->fill(memory->ptr(), 0, kStreamBytes);
  EXPECT_FALSE(stream->is_idle());
  EXPECT_EQ(stream->synchronize(Deadline::after(milliseconds(20))), WaitResult::timed_out);
  EXPECT_EQ(read(*memory, kStreamCount), before) << "the fill ran although its stream waits";
  gate.open();
  EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_EQ(read(*memory, 1).front(), 0U);
  EXPECT_TRUE(stream->is_idle());
}

TEST_P(BackendSuite, registered_host_memory_is_read_when_the_work_runs_not_when_it_is_submitted) {
  const auto source = registered(4096);
  const auto stream = device().create_stream();
  const auto memory = device().allocate(8);
  source.word().store(1);
  const Gate gate;
  gate.hold(*stream);
  stream->upload(memory->ptr(), source.memory.data(), 8);
  source.word().store(2);  // too early, like a missing synchronisation
  gate.open();
  EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_EQ(read(*memory, 1).front(), 2U);
}

TEST_P(BackendSuite, streams_do_not_wait_for_each_other) {
  const auto blocked = device().create_stream();
  const auto free = device().create_stream();
  const auto memory = device().allocate(kStreamBytes);
  const Gate gate;
  gate.hold(*blocked);
  free->fill(memory->ptr(), 1, kStreamBytes);
  EXPECT_EQ(free->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_FALSE(blocked->is_idle());
  gate.open();
  EXPECT_EQ(blocked->synchronize(Deadline::never()), WaitResult::done);
}

TEST_P(BackendSuite, destroying_a_stream_does_not_lose_its_work) {
  const auto memory = device().allocate(kStreamBytes);
  const auto done = device().create_event();
  const Gate gate;
  {
    const auto stream = device().create_stream();
    gate.hold(*stream);
    stream->fill(memory->ptr(), 3, kStreamBytes);
    stream->record(*done);
  }
  EXPECT_FALSE(done->has_happened());
  gate.open();
  EXPECT_EQ(done->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_EQ(read(*memory, 1).front(), 0x0303'0303U);
}

TEST_P(BackendSuite, event_that_was_never_recorded_has_happened) {
  const auto event = device().create_event();
  const auto stream = device().create_stream();
  EXPECT_TRUE(event->has_happened());
  stream->wait(*event);
  EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
}

TEST_P(BackendSuite, event_happens_after_the_work_before_it) {
  const auto stream = device().create_stream();
  const auto event = device().create_event();
  const Gate gate;
  gate.hold(*stream);
  stream->record(*event);
  EXPECT_FALSE(event->has_happened());
  EXPECT_EQ(event->synchronize(Deadline::after(milliseconds(5))), WaitResult::timed_out);
  gate.open();
  EXPECT_EQ(event->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_EQ(event->synchronize(Deadline::after(milliseconds(5))), WaitResult::done);
  EXPECT_TRUE(event->has_happened());
}

TEST_P(BackendSuite, recording_an_event_again_does_not_release_waiters_for_the_earlier_record) {
  const auto slow = device().create_stream();
  const auto quick = device().create_stream();
  const auto waiting = device().create_stream();
  const auto event = device().create_event();
  const Gate gate;
  gate.hold(*slow);
  slow->record(*event);
  waiting->wait(*event);
  quick->record(*event);
  ASSERT_EQ(quick->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_TRUE(event->has_happened()) << "the latest record has happened";
  EXPECT_EQ(waiting->synchronize(Deadline::after(milliseconds(20))), WaitResult::timed_out);
  gate.open();
  EXPECT_EQ(waiting->synchronize(Deadline::never()), WaitResult::done);
}

TEST_P(BackendSuite, blocking_copies_work_while_fewer_streams_wait_than_a_gpu_has_queues) {
  const auto memory = device().allocate(kStreamBytes);
  std::vector<std::unique_ptr<Stream>> waiting;
  waiting.reserve(7);
  for (int i = 0; i < 7; ++i) waiting.push_back(device().create_stream());
  const Gate gate;
  for (const auto& stream : waiting) gate.hold(*stream);
  std::atomic<bool> is_copied = false;
  std::thread rescuer([&] {  // so that a copy that waits for the streams ends too, if late
    for (int look = 0; look < 1000 && !is_copied; ++look) std::this_thread::sleep_for(milliseconds(10));
    gate.open();
  });
  const auto values = numbers(kStreamCount, 17);
  device().upload(memory->ptr(), values.data(), kStreamBytes);
  EXPECT_EQ(read(*memory, kStreamCount), values);
  EXPECT_EQ(gate.word(0).load(), 0U) << "the copies waited for unrelated streams";
  is_copied = true;
  rescuer.join();
  for (const auto& stream : waiting) EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
}

TEST_P(BackendSuite, many_streams_wait_for_values_whose_stores_were_submitted_earlier) {
  const auto words = registered(4096);
  const auto producer = device().create_stream();
  std::vector<std::unique_ptr<Stream>> consumers;
  consumers.reserve(64);
  for (int i = 0; i < 64; ++i) consumers.push_back(device().create_stream());
  for (std::size_t i = 0; i < 64; ++i) {
    producer->signal(words.word(i), 1);
    consumers[i]->wait(words.word(i), 1);
  }
  for (const auto& stream : consumers) EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
}

TEST_P(BackendSuite, copy_of_unregistered_host_memory_is_complete_on_return) {
  const auto stream = device().create_stream();
  const auto memory = device().allocate(kStreamBytes);
  auto values = numbers(kStreamCount, 1);
  const auto expected = values;
  stream->upload(memory->ptr(), values.data(), kStreamBytes);
  std::ranges::fill(values, 0);
  std::vector<std::uint32_t> seen(kStreamCount);
  stream->download(seen.data(), memory->ptr(), kStreamBytes);
  EXPECT_EQ(seen, expected);
}

TEST_P(BackendSuite, stream_waits_for_an_event_of_another_stream) {
  const auto producer = device().create_stream();
  const auto consumer = device().create_stream();
  const auto ready = device().create_event();
  const auto a = device().allocate(kStreamBytes);
  const auto b = device().allocate(kStreamBytes);
  const Gate gate;
  gate.hold(*producer);
  producer->fill(a->ptr(), 9, kStreamBytes);
  producer->record(*ready);
  consumer->wait(*ready);
  consumer->copy(b->ptr(), a->ptr(), kStreamBytes);
  EXPECT_EQ(consumer->synchronize(Deadline::after(milliseconds(20))), WaitResult::timed_out);
  gate.open();
  EXPECT_EQ(consumer->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_EQ(read(*b, 1).front(), 0x0909'0909U);
}

TEST_P(BackendSuite, time_between_events_is_positive_and_needs_both_to_have_happened) {
  const auto stream = device().create_stream();
  const auto begin = device().create_event();
  const auto end = device().create_event();
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(end->milliseconds_since(*begin)); }, {"record"});
  stream->record(*begin);
  const Gate gate;
  gate.hold(*stream);
  stream->record(*end);
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(end->milliseconds_since(*begin)); });
  std::this_thread::sleep_for(milliseconds(2));
  gate.open();
  ASSERT_EQ(end->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_GT(end->milliseconds_since(*begin), 0.0);
}

TEST_P(BackendSuite, signal_is_stored_after_the_work_before_it) {
  const auto stream = device().create_stream();
  const auto memory = device().allocate(kStreamBytes);
  const Gate gate;
  gate.hold(*stream);
  stream->fill(memory->ptr(), 4, kStreamBytes);
  stream->signal(gate.word(1), 41);
  EXPECT_EQ(timeline_wait(gate.word(1), 41, Deadline::after(milliseconds(10))), WaitResult::timed_out);
  gate.open();
  EXPECT_EQ(timeline_wait(gate.word(1), 41, Deadline::never()), WaitResult::done);
  EXPECT_EQ(read(*memory, 1).front(), 0x0404'0404U);
}

TEST_P(BackendSuite, streams_are_ordered_by_a_timeline) {
  const auto words = registered(4096);
  const auto producer = device().create_stream();
  const auto consumer = device().create_stream();
  const auto memory = device().allocate(kStreamBytes);
  const auto copy = device().allocate(kStreamBytes);
  for (std::uint64_t step = 1; step <= 100; ++step) {
    consumer->wait(words.word(0), step);
    consumer->copy(copy->ptr(), memory->ptr(), kStreamBytes);
    consumer->signal(words.word(1), step);
    producer->fill(memory->ptr(), static_cast<std::uint8_t>(step), kStreamBytes);
    producer->signal(words.word(0), step);
    producer->wait(words.word(1), step);
  }
  ASSERT_EQ(producer->synchronize(Deadline::never()), WaitResult::done);
  EXPECT_EQ(words.word(1).load(), 100U);
  EXPECT_EQ(read(*copy, 1).front(), 0x6464'6464U);
}

TEST_P(BackendSuite, poison_releases_a_stream_that_waits_for_a_dead_producer) {
  const auto words = registered(4096);
  const auto stream = device().create_stream();
  stream->wait(words.word(), 1'000'000);
  EXPECT_EQ(stream->synchronize(Deadline::after(milliseconds(10))), WaitResult::timed_out);
  timeline_store(words.word(), kTimelinePoison);
  EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
}

TEST_P(BackendSuite, word_outside_registered_memory_is_an_error) {
  const auto stream = device().create_stream();
  const auto plain = Mapping::anonymous(4096);
  auto& word = *reinterpret_cast<TimelineWord*>(plain.data());
  expect_error(Errc::invalid_argument, [&] { stream->signal(word, 1); }, {"register_host"});
  expect_error(Errc::invalid_argument, [&] { stream->wait(word, 1); }, {"register_host"});
}

TEST_P(BackendSuite, submitted_range_outside_live_memory_is_an_error_at_once) {
  const auto stream = device().create_stream();
  const auto memory = device().allocate(2 * kMiB);
  const auto host = registered(4 * kMiB);
  expect_error(Errc::invalid_argument, [&] { stream->upload(memory->ptr(), host.memory.data(), 4 * kMiB); });
  expect_error(Errc::invalid_argument, [&] { stream->download(host.memory.data(), memory->ptr(), 4 * kMiB); });
  expect_error(Errc::invalid_argument, [&] { stream->copy(memory->ptr(), memory->ptr() + kMiB, 2 * kMiB); });
  expect_error(Errc::invalid_argument, [&] { stream->fill(memory->ptr(), 1, 4 * kMiB); });
  EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
}

TEST_P(BackendSuite, freeing_memory_waits_for_the_work_that_uses_it) {
  const auto slab = backend().create_slab(0, kStreamBytes);
  for (const bool is_mapped : {false, true}) {
    const auto host = registered(kStreamBytes);
    const auto stream = device().create_stream();
    auto memory = is_mapped ? device().map(*slab) : device().allocate(kStreamBytes);
    const auto values = numbers(kStreamCount, 11);
    device().upload(memory->ptr(), values.data(), kStreamBytes);
    const Gate gate;
    gate.hold(*stream);
    stream->download(host.memory.data(), memory->ptr(), kStreamBytes);
    std::thread opener([&] {
      std::this_thread::sleep_for(milliseconds(10));
      gate.open();
    });
    memory.reset();
    opener.join();
    EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
    EXPECT_EQ(reinterpret_cast<std::uint32_t*>(host.memory.data())[kStreamCount - 1], values.back()) << is_mapped;
  }
}

TEST_P(BackendSuite, many_threads_share_one_stream) {
  const auto stream = device().create_stream();
  const auto words = registered(4096);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (std::size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (std::uint64_t step = 1; step <= 50; ++step) stream->signal(words.word(i), step);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(stream->synchronize(Deadline::never()), WaitResult::done);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(words.word(i).load(), 50U);
}

}  // namespace drover::test
