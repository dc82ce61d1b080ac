// Facts of stalled pools, filled by hand.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "pool/watch/stall_facts.hpp"

namespace drover::test {

/// A process of one sleeping thread.
inline process::ProcessFacts process_facts(pid_t pid, char state = 'S') {
  process::ProcessFacts facts;
  facts.pid = pid;
  facts.parent = 1;
  facts.state = state;
  facts.command = "train --all";
  facts.executable = "/usr/bin/train";
  facts.thread_count = 1;
  process::ThreadFacts thread;
  thread.tid = pid;
  thread.name = "train";
  thread.state = state;
  thread.wait_channel = "futex_wait_queue";
  thread.call = "futex";
  facts.threads.push_back(std::move(thread));
  return facts;
}

/// A worker that runs task 118 for two minutes.
inline pool::WorkerFacts worker_facts(std::size_t slot = 0, pool::WorkerState state = pool::WorkerState::running) {
  pool::WorkerFacts facts;
  facts.worker.slot = slot;
  facts.worker.name = "worker-" + std::to_string(slot);
  facts.worker.pid = static_cast<pid_t>(5000 + slot);
  facts.worker.place = "cuda:0";
  facts.worker.state = state;
  facts.worker.since = std::chrono::minutes(2);
  facts.worker.starts = 1;
  if (state == pool::WorkerState::running || state == pool::WorkerState::sending) {
    facts.worker.task = 118;
    facts.worker.task_name = "resize";
  }
  facts.process = process_facts(facts.worker.pid);
  return facts;
}

/// A worker in a call.
inline pool::WorkerFacts worker_inside(std::string name, pool::WorkerState state = pool::WorkerState::running) {
  auto facts = worker_facts(0, state);
  facts.worker.inside = std::move(name);
  facts.worker.inside_since = std::chrono::seconds(90);
  return facts;
}

/// A pool with these workers, whose application sleeps.
template <class... Workers>
pool::StallFacts stall_facts(Workers... workers) {
  pool::StallFacts facts;
  facts.board.pool = "train";
  facts.board.application = 4000;
  facts.board.age = std::chrono::minutes(5);
  facts.board.in_flight = sizeof...(workers);
  facts.application = process_facts(4000);
  (facts.workers.push_back(std::move(workers)), ...);
  facts.patience = std::chrono::seconds(30);
  return facts;
}

/// A GPU at 0000:1b:00.0 that is cuda:0.
inline DeviceInfo gpu(ComputeMode mode = ComputeMode::shared) {
  DeviceInfo info;
  info.backend = BackendKind::cuda;
  info.pci = "0000:1b:00.0";
  info.compute_mode = mode;
  return info;
}

}  // namespace drover::test
