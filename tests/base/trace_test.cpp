#include "drover/base/trace.hpp"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/mutex.hpp"

namespace drover {
namespace {

Mutex records_mutex;
std::vector<TraceRecord> records DROVER_GUARDED_BY(records_mutex);

void keep(const TraceRecord& record) noexcept {
  const MutexLock lock(records_mutex);
  records.push_back(record);
}

std::vector<TraceRecord> take_records() {
  const MutexLock lock(records_mutex);
  return std::exchange(records, {});
}

class Trace : public ::testing::Test {
 protected:
  void TearDown() override {
    set_trace_sink(nullptr);
    static_cast<void>(take_records());
  }
};

TEST_F(Trace, tracing_is_off_by_default) {
  EXPECT_FALSE(is_tracing());
  {
    const TraceSpan span("unheard");
  }
  EXPECT_TRUE(take_records().empty());
}

TEST_F(Trace, span_reports_name_value_and_times) {
  set_trace_sink(&keep);
  EXPECT_TRUE(is_tracing());
  const auto before = Clock::now();
  {
    const TraceSpan span("test.work", 4096);
  }
  const auto found = take_records();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_STREQ(found[0].name, "test.work");
  EXPECT_EQ(found[0].value, 4096U);
  EXPECT_LE(before, found[0].begin);
  EXPECT_LE(found[0].begin, found[0].end);
  EXPECT_LE(found[0].end, Clock::now());
}

TEST_F(Trace, inner_span_is_reported_first_and_lies_within_the_outer) {
  set_trace_sink(&keep);
  {
    const TraceSpan outer("outer");
    const TraceSpan inner("inner");
  }
  const auto found = take_records();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_STREQ(found[0].name, "inner");
  EXPECT_LE(found[1].begin, found[0].begin);
  EXPECT_LE(found[0].end, found[1].end);
}

TEST_F(Trace, span_that_began_without_a_sink_is_not_reported) {
  {
    const TraceSpan span("half");
    set_trace_sink(&keep);
  }
  EXPECT_TRUE(take_records().empty());
}

TEST_F(Trace, span_whose_sink_was_removed_is_not_reported) {
  set_trace_sink(&keep);
  {
    const TraceSpan span("half");
    EXPECT_EQ(set_trace_sink(nullptr), &keep);
  }
  EXPECT_TRUE(take_records().empty());
}

TEST_F(Trace, sink_may_come_and_go_while_threads_work) {
  std::vector<std::thread> workers;
  workers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    workers.emplace_back([] {
      for (int round = 0; round < 2000; ++round) const TraceSpan span("busy", 1);
    });
  }
  for (int i = 0; i < 200; ++i) {
    set_trace_sink(&keep);
    set_trace_sink(nullptr);
  }
  for (auto& worker : workers) worker.join();
  for (const auto& record : take_records()) EXPECT_LE(record.begin, record.end);
}

}  // namespace
}  // namespace drover
