#include "drover/pool/pool.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "pool/run/pool_core.hpp"
#include "pool/run/task_table.hpp"

namespace drover {
namespace {

constexpr std::size_t kInFlightPerWorker = 1024;

}  // namespace

Pool::Pool(const WorkerPlanOptions& workers, const PoolOptions& options) : Pool(Session::start(), workers, options) {}

Pool::Pool(const Session& session, const WorkerPlanOptions& workers, const PoolOptions& options)
    : core_(std::make_shared<pool::PoolCore>(session, workers, options)) {
  core_->start();
}

Pool::~Pool() { core_->end(std::chrono::seconds(1)); }

void Pool::start_call(const std::shared_ptr<detail::TaskCall>& call) { core_->submit(call); }

std::size_t Pool::default_in_flight() const { return kInFlightPerWorker * std::max<std::size_t>(size(), 1); }

const RegisteredTask* Pool::find(const std::string& name, const std::string& signature) {
  const RegisteredTask& found = pool::TaskTable::instance().find(name);
  if (found.signature != signature) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("the task '{}' has the types {}, but was submitted with {}", name, found.signature, signature),
        "use exactly the types of the task, or submit the object that drover::task returned, which converts");
  }
  return &found;
}

std::size_t Pool::size() const { return core_->size(); }
std::vector<std::size_t> Pool::numbers() const { return core_->numbers(); }
void Pool::resize(std::size_t workers) { core_->resize(workers); }
WaitResult Pool::wait_ready(Deadline deadline) { return core_->wait_ready(deadline); }
WaitResult Pool::join(Deadline deadline) { return core_->join(deadline); }
void Pool::end(Duration grace) { core_->end(grace); }
const PoolOptions& Pool::options() const noexcept { return core_->options(); }
const Session& Pool::session() const noexcept { return core_->session(); }
const Memory& Pool::memory() const noexcept { return core_->memory(); }
std::vector<PoolWorkerInfo> Pool::workers() const { return core_->workers(); }
PoolStatistics Pool::statistics() const { return core_->statistics(); }
std::string Pool::stall_report() const { return core_->stall_text(); }

}  // namespace drover
