#include "drover/session/session_list.hpp"

#include <poll.h>

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "session/connection.hpp"
#include "session/keeper_link.hpp"
#include "session/process_identity.hpp"
#include "session/session_folder.hpp"
#include "session/session_page.hpp"

namespace drover {
namespace {

constexpr std::chrono::seconds kPatience{2};
constexpr std::chrono::seconds kKeeperGrace{10};

[[noreturn]] void throw_not_found(const std::string& name) {
  throw Error(Errc::not_found, fmt::format("this user has no session '{}'", name),
              "see `drover session list`; sessions of other users, or with another XDG_RUNTIME_DIR, are not seen");
}

std::vector<SlabInfo> ask_slabs(KeeperLink& link) {
  std::vector<SlabInfo> slabs;
  for (;;) {
    const std::uint64_t last = slabs.empty() ? 0 : static_cast<std::uint64_t>(slabs.back().id);
    const Reply reply = link.ask({.type = RequestType::list, .number = last}).reply;
    if (reply.number <= last) return slabs;
    slabs.push_back({.id = SlabId{reply.number}, .label = reply.text, .bytes = reply.counts.deposit_bytes});
  }
}

SessionInfo ask_info(KeeperLink& link, const std::string& name) {
  const Answer answer = link.ask({.type = RequestType::describe});
  const SessionCounts& counts = answer.reply.counts;
  const PageView page(answer.file);
  return {.name = name,
          .keeper_pid = link.keeper_pid(),
          .age = page.age(),
          .idle_limit = std::chrono::seconds(counts.idle_limit_s),
          .population = page.population(),
          .objects = counts.objects,
          .object_bytes = counts.object_bytes,
          .slab_bytes = counts.deposit_bytes,
          .participants = page.participants(),
          .slabs = ask_slabs(link),
          .problem = {}};
}

// Nothing if no keeper is behind the name, whatever lies in the folder.
std::optional<KeeperLink> visit(const SessionFolder& folder, const std::string& name) {
  if (auto connection = folder.connect(name)) return KeeperLink(std::move(*connection), kPatience);
  folder.remove_if_stale(name);
  return std::nullopt;
}

std::optional<SessionInfo> look_at(const SessionFolder& folder, const std::string& name) {
  std::optional<KeeperLink> link = visit(folder, name);
  if (!link) return std::nullopt;
  try {
    return ask_info(*link, name);
  } catch (const Error& error) {
    if (error.code() == Errc::peer_lost) return std::nullopt;  // it has just ended
    SessionInfo info{.name = name};
    info.keeper_pid = link->keeper_pid();
    info.problem = error.message();
    return info;
  }
}

void await_end(const KeeperLink& link, const Fd& keeper) {
  pollfd ended{.fd = keeper.get(), .events = POLLIN, .revents = 0};
  const Deadline deadline = Deadline::after(kKeeperGrace);
  while (::poll(&ended, 1, deadline.poll_timeout()) <= 0) {
    if (!deadline.has_passed()) continue;
    throw Error(Errc::timed_out, fmt::format("the keeper (process {}) does not end", link.keeper_pid()),
                "a worker may be stuck in the kernel; end it by force");
  }
}

}  // namespace

std::vector<SessionInfo> list_sessions() {
  const auto folder = SessionFolder::find();
  std::vector<SessionInfo> found;
  if (!folder) return found;
  for (const auto& name : folder->names()) {
    if (auto info = look_at(*folder, name)) found.push_back(std::move(*info));
  }
  return found;
}

SessionInfo describe_session(const std::string& name) {
  check_session_name(name);
  const auto folder = SessionFolder::find();
  std::optional<KeeperLink> link = folder ? visit(*folder, name) : std::nullopt;
  if (!link) throw_not_found(name);
  return ask_info(*link, name);
}

void end_session(const std::string& name, bool is_forced) {
  check_session_name(name);
  const auto folder = SessionFolder::find();
  std::optional<KeeperLink> link = folder ? visit(*folder, name) : std::nullopt;
  if (!link) throw_not_found(name);
  const Fd keeper = open_pidfd(link->keeper_pid());
  try {
    link->ask({.type = RequestType::end, .number = is_forced ? 1U : 0U});
  } catch (const Error& error) {
    const bool is_ending = error.code() == Errc::peer_lost;
    if (!is_ending && (!is_forced || error.code() != Errc::timed_out)) throw;
    if (!is_ending) kill_process(keeper);
  }
  await_end(*link, keeper);
  folder->remove_if_stale(name);  // what a keeper leaves that had to be killed
}

}  // namespace drover
