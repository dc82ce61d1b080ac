#include "process/spawn/outlet.hpp"

#include <cerrno>
#include <climits>

#include "process/spawn/write_now.hpp"

namespace drover {

void Outlet::put(std::string_view line) {
  bytes_ += line.size();
  put_ += line.size();
  if (batches_.empty() || batches_.back().size() + line.size() > PIPE_BUF) batches_.emplace_back();
  batches_.back().append(line);
}

void Outlet::write_some() {
  while (!batches_.empty()) {
    std::string& batch = batches_.front();
    const auto written = write_now(fd_, batch);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) return drop();
    bytes_ -= static_cast<std::size_t>(written);
    batch.erase(0, static_cast<std::size_t>(written));
    if (!batch.empty()) return;
    batches_.pop_front();
  }
}

void Outlet::drop() noexcept {
  batches_.clear();
  bytes_ = 0;
}

}  // namespace drover
