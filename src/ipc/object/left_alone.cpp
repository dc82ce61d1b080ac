#include "ipc/object/left_alone.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "base/own_thread.hpp"
#include "drover/base/error.hpp"
#include "ipc/object/object_layout.hpp"

namespace drover::ipc {
namespace {

std::atomic<int> expecting{0};

// Those that programs handle; the others report a fault of the thread itself.
constexpr std::array kHandledSignals{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGIO};

bool is_handled(int number) {
  struct sigaction action{};
  if (::sigaction(number, nullptr, &action) != 0) return true;
  return (action.sa_flags & SA_SIGINFO) != 0 || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

// Read after the library's own were counted: a thread that starts in between counts as one of the program's.
bool has_threads_of_program() {
  const int own = OwnThread::present();
  std::error_code error;
  const std::filesystem::directory_iterator tasks("/proc/self/task", error);
  if (error) return true;
  return std::distance(begin(tasks), end(tasks)) > own + 1;
}

}  // namespace

ExpectedPeers::ExpectedPeers() noexcept { ++expecting; }

ExpectedPeers::~ExpectedPeers() { --expecting; }

bool expects_peers() noexcept { return expecting > 0; }

// The population is one word: a participant that joins is counted as starting or as present.
bool are_others_gone(const SharedObject& object) noexcept {
  const Membership& membership = object.membership();
  const Population population = membership.population();
  return population.present <= 1 && population.starting == 0 &&
         population.departed != header_of(object.data()).departed_before && !expects_peers() &&
         !membership.is_open_to_all();
}

bool can_be_ended_here() { return has_threads_of_program() || std::ranges::any_of(kHandledSignals, is_handled); }

void fail_left_alone(const SharedObject& object) {
  const std::uint32_t lost = header_of(object.data()).last_lost.load();
  const std::string who = lost == 0 ? std::string("every other process of the session has ended")
                                    : fmt::format(
                                          "process {}, which had it open, has died, and no other process of "
                                          "the session is left",
                                          lost);
  throw Error(Errc::peer_lost,
              fmt::format("the wait for the {} {} would never end: {}", to_string(object.handle().kind),
                          object.handle().to_string(), who),
              "check why it ended; to wait for a process that is started later, pass a deadline (a timeout)");
}

}  // namespace drover::ipc
