#include "queue/sleeper.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::bench {
namespace {

constexpr std::size_t kPartner = 1;
constexpr std::int64_t kRest = 200'000;
constexpr std::int64_t kPatience = 10'000'000'000;

void check_patience(std::int64_t begin, const char* what) {
  if (now_ns() - begin > kPatience) throw std::runtime_error(what);
}

Fd open_status(pid_t pid) {
  const auto path = fmt::format("/proc/{0}/task/{0}/stat", pid);
  Fd status(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!status.is_open()) throw_errno("open", path);
  return status;
}

// The letter after the name, which is in brackets and may contain any character.
bool is_asleep(const Fd& status) {
  std::array<char, 512> text{};
  const auto length = ::pread(status.get(), text.data(), text.size(), 0);
  const std::string_view line(text.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  const auto bracket = line.rfind(')');
  return bracket != std::string_view::npos && bracket + 2 < line.size() && line[bracket + 2] == 'S';
}

}  // namespace

Sleeper::Sleeper(const Order& order, Post& post) : order_(order), post_(post), status_(open_status(order.partner)) {}

void Sleeper::wait_until_asleep() const {
  const std::int64_t begin = now_ns();
  while (!is_asleep(status_)) check_patience(begin, "the partner does not fall asleep");
  const std::int64_t asleep = now_ns();
  while (now_ns() - asleep < kRest) {
  }
}

std::int64_t Sleeper::wait_until_awake(std::uint64_t number) const {
  const Progress& progress = post_.board().progress[kPartner];
  const std::int64_t begin = now_ns();
  while (progress.count.load(std::memory_order_acquire) <= number) check_patience(begin, "the partner did not wake");
  return progress.moments[number % Progress::kMoments].load(std::memory_order_relaxed);
}

}  // namespace drover::bench
