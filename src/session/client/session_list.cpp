#include "drover/session/session.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/inspect/process_table.hpp"
#include "session/client/keeper_link.hpp"
#include "session/wire/connection.hpp"
#include "session/wire/process_identity.hpp"
#include "session/wire/session_folder.hpp"
#include "session/wire/session_page.hpp"

namespace drover {
namespace {

constexpr std::chrono::seconds kListPatience{2};
constexpr std::chrono::seconds kListedKeeperGrace{10};
// How long an ending keeper may be busy killing workers.
constexpr std::chrono::seconds kLongestSilence{9};

[[noreturn]] void throw_not_found(const std::string& name) {
  throw Error(Errc::not_found, fmt::format("this user has no session '{}'", name),
              "see `drover session list`; sessions of other users, or with another XDG_RUNTIME_DIR, are not seen");
}

std::vector<SlabInfo> ask_slabs(session::KeeperLink& link) {
  std::vector<SlabInfo> slabs;
  for (;;) {
    const std::uint64_t last = slabs.empty() ? 0 : static_cast<std::uint64_t>(slabs.back().id);
    const session::Reply reply = link.ask({.type = session::RequestType::list, .number = last}).reply;
    if (reply.number <= last) return slabs;
    slabs.push_back({.id = SlabId{reply.number}, .label = reply.text, .bytes = reply.counts.slab_bytes});
  }
}

pid_t holder_or_nobody(const session::SessionFolder& folder, const std::string& name) noexcept {
  try {
    return folder.holder(name).value_or(0);
  } catch (const Error&) {
    return 0;
  }
}

SessionInfo ask_info(session::KeeperLink& link, const std::string& name) {
  const session::Answer answer = link.ask({.type = session::RequestType::describe});
  const session::SessionCounts& counts = answer.reply.counts;
  const session::PageView page(answer.file);
  return {.name = name,
          .keeper_pid = link.keeper_pid(),
          .age = page.age(),
          .idle_limit = std::chrono::seconds(counts.idle_limit_s),
          .population = page.population(),
          .objects = counts.objects,
          .object_bytes = counts.object_bytes,
          .slab_count = counts.slabs,
          .slab_bytes = counts.slab_bytes,
          .participants = page.participants(),
          .slabs = ask_slabs(link),
          .kept = session::ask_kept([&](const session::Request& request) { return link.ask(request); }),
          .problem = {}};
}

// nullopt if the name has no keeper, whatever is in the directory. Throws `Errc::timed_out` if the keeper has not
// accepted connections for so long that its backlog is full.
std::optional<session::KeeperLink> visit(const session::SessionFolder& folder, const std::string& name) {
  bool is_full = false;
  if (auto connection = folder.connect(name, &is_full))
    return session::KeeperLink(std::move(*connection), kListPatience);
  if (is_full) {
    throw Error(Errc::timed_out,
                fmt::format("the keeper (process {}) of session '{}' does not accept connections",
                            folder.holder(name).value_or(0), name),
                "check if it is stopped (kill -CONT), or end it by force");
  }
  folder.remove_if_stale(name);
  return std::nullopt;
}

session::KeeperLink visit_existing(const std::string& name) {
  session::check_session_name(name);
  const auto folder = session::SessionFolder::find();
  std::optional<session::KeeperLink> link = folder ? visit(*folder, name) : std::nullopt;
  if (!link) throw_not_found(name);
  return std::move(*link);
}

// A malformed file must not hide the other sessions.
std::optional<SessionInfo> look_at(const session::SessionFolder& folder, const std::string& name) {
  SessionInfo info{.name = name};
  try {
    std::optional<session::KeeperLink> link = visit(folder, name);
    if (!link) return std::nullopt;
    info.keeper_pid = link->keeper_pid();
    return ask_info(*link, name);
  } catch (const Error& error) {
    if (error.code() == Errc::peer_lost) return std::nullopt;  // it has just ended
    info.problem = error.message();
  }
  if (info.keeper_pid == 0) info.keeper_pid = holder_or_nobody(folder, name);
  return info;
}

void await_end(pid_t pid, const Fd& keeper, bool is_forced) {
  if (process::pidfd_wait(keeper.get(), Deadline::after(kListedKeeperGrace))) return;
  throw Error(Errc::timed_out, fmt::format("the keeper (process {}) does not end", pid),
              is_forced
                  ? "it or a worker is stuck in the kernel, as with a failing device; the machine may need a restart"
                  : "a worker may be stuck in the kernel; end it by force");
}

// nullopt if it has ended.
std::optional<Fd> find_keeper(pid_t pid) {
  try {
    return session::open_pidfd(pid);
  } catch (const Error& error) {
    if (error.code() != Errc::peer_lost) throw;
    return std::nullopt;
  }
}

bool takes_no_connection(const session::SessionFolder& folder, const std::string& name) {
  bool is_full = false;
  return !folder.connect(name, &is_full) && is_full;
}

// The lock has the pid of a keeper that cannot be reached. It is read again after opening the pidfd, which then
// certainly refers to its holder.
void kill_holder(const session::SessionFolder& folder, const std::string& name) {
  const auto pid = folder.holder(name);
  const auto keeper = pid ? find_keeper(*pid) : std::nullopt;
  if (!keeper || folder.holder(name) != pid) return;
  session::kill_process(*keeper);
  await_end(*pid, *keeper, true);
}

bool is_stopped(pid_t pid) {
  const auto process = process::read_process(pid);
  return process && (process->state == 'T' || process->state == 't');
}

// A keeper that received the request, or is already ending, ends by itself. By force, kills one that is stopped, or
// silent for longer than ending takes; not earlier, since it may be killing workers.
void ask_to_end(session::KeeperLink& link, const Fd& keeper, bool is_forced) {
  const auto deadline = Deadline::after(kLongestSilence);
  try {
    link.ask({.type = session::RequestType::end, .number = is_forced ? 1U : 0U});
  } catch (const Error& error) {
    if (error.code() == Errc::peer_lost) return;
    if (!is_forced || error.code() != Errc::timed_out) throw;
    if (is_stopped(link.keeper_pid()) || !process::pidfd_wait(keeper.get(), deadline)) session::kill_process(keeper);
  }
}

}  // namespace

std::vector<SessionInfo> list_sessions() {
  const auto folder = session::SessionFolder::find();
  std::vector<SessionInfo> found;
  if (!folder) return found;
  for (const auto& name : folder->names()) {
    if (auto info = look_at(*folder, name)) found.push_back(std::move(*info));
  }
  return found;
}

SessionInfo describe_session(const std::string& name) {
  session::KeeperLink link = visit_existing(name);
  return ask_info(link, name);
}

void drop_kept(const std::string& session_name, const std::string& kept_name) {
  const session::Request request{.type = session::RequestType::drop, .kept = ipc::make_kept_entry(kept_name, {}, {})};
  visit_existing(session_name).ask(request);
}

void end_session(const std::string& name, bool is_forced) {
  session::check_session_name(name);
  const auto folder = session::SessionFolder::find();
  if (!folder) throw_not_found(name);
  if (is_forced && takes_no_connection(*folder, name)) {
    kill_holder(*folder, name);
  } else {
    std::optional<session::KeeperLink> link = visit(*folder, name);
    if (!link) throw_not_found(name);
    if (const auto keeper = find_keeper(link->keeper_pid())) {
      ask_to_end(*link, *keeper, is_forced);
      await_end(link->keeper_pid(), *keeper, is_forced);
    }
  }
  folder->remove_if_stale(name);  // leftovers of a killed keeper
}

}  // namespace drover
