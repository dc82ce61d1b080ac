#include "session/worker/session_tie.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "session/wire/process_identity.hpp"

namespace drover::session {
namespace {

// The only participant of an unnamed session that was not invited.
void depend_on_application(process::DeathWatch& watch, const Session& session) {
  const auto all = session.participants();
  const auto application = std::ranges::find(all, false, &ParticipantInfo::is_worker);
  if (application == all.end()) throw Error(Errc::peer_lost, "the program that started this session has left it");
  Fd pidfd = open_pidfd(application->pid);
  if (process_start_time(application->pid) != application->start_time) {
    throw Error(Errc::peer_lost,
                fmt::format("the program that started this session, process {}, has ended", application->pid));
  }
  // Nobody is left who would read it.
  watch.depend_on_parent(
      std::move(pidfd), application->pid,
      fmt::format("this process ends because its program, process {}, has ended", application->pid), LogLevel::info);
}

}  // namespace

void depend_on_keeper(process::DeathWatch& watch, const Session& session, std::string_view what) {
  const pid_t keeper = session.keeper_pid();
  Fd pidfd = open_pidfd(keeper);
  session.check();  // so the pidfd refers to the keeper and not to a later process
  watch.depend_on(std::move(pidfd),
                  fmt::format("{} ends because the keeper of its session, process {}, has ended", what, keeper));
}

void tie_to_session(const Session& session) {
  process::DeathWatch watch([](const std::string&) {});
  if (session.name().empty()) depend_on_application(watch, session);
  depend_on_keeper(watch, session, "this process");
  // A process that is stopped when its parent ends must be continued to notice.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
}

}  // namespace drover::session
