// drover session: the named sessions of this user: list, show, drop, end.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "device_json.hpp"
#include "drover/base/bytes.hpp"
#include "drover/session/session.hpp"
#include "output.hpp"

namespace drover::cli {
namespace {

struct SessionCommandOptions {
  std::string name;
  std::string kept_name;
  bool is_json = false;
  bool is_forced = false;
};

std::string duration_text(std::chrono::seconds duration) {
  const auto seconds = duration.count();
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  if (seconds < 86400) return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{} d {} h", seconds / 86400, seconds / 3600 % 24);
}

std::chrono::seconds age_of(const SessionInfo& info) { return std::chrono::floor<std::chrono::seconds>(info.age); }

std::string limit_text(const SessionInfo& info) {
  return info.idle_limit.count() == 0 ? "never" : "after " + duration_text(info.idle_limit) + " without participants";
}

Json session_json(const SessionInfo& info) {
  const bool is_known = info.problem.empty();
  const auto known = [&](Json value) { return is_known ? std::move(value) : Json(nullptr); };
  return {{"name", info.name},
          {"keeper_pid", info.keeper_pid},
          {"participants", known(info.population.present)},
          {"starting", known(info.population.starting)},
          {"departed", known(info.population.departed)},
          {"objects", known(info.objects)},
          {"object_bytes", known(info.object_bytes)},
          {"slabs", known(info.slab_count)},
          {"slab_bytes", known(info.slab_bytes)},
          {"age_seconds", known(age_of(info).count())},
          {"idle_limit_seconds", known(info.idle_limit.count())},
          {"problem", is_known ? Json(nullptr) : Json(info.problem)}};
}

Json details_json(const SessionInfo& info) {
  auto participants = Json::array();
  for (const auto& each : info.participants) {
    participants.push_back({{"number", each.number},
                            {"incarnation", each.incarnation},
                            {"pid", each.pid},
                            {"name", each.name},
                            {"state", to_string(each.state)},
                            {"is_worker", each.is_worker}});
  }
  auto slabs = Json::array();
  for (const auto& each : info.slabs) {
    slabs.push_back({{"id", static_cast<std::uint64_t>(each.id)}, {"label", each.label}, {"bytes", each.bytes}});
  }
  auto kept = Json::array();
  for (const auto& each : info.kept) {
    kept.push_back({{"name", each.name},
                    {"description", each.description},
                    {"bytes", each.bytes},
                    {"leases", each.leases},
                    {"since", each.since.time_since_epoch().count()}});
  }
  return {{"session", session_json(info)},
          {"participants", std::move(participants)},
          {"slabs", std::move(slabs)},
          {"kept", std::move(kept)}};
}

std::string list_json(const std::vector<SessionInfo>& sessions) {
  auto list = Json::array();
  for (const auto& info : sessions) list.push_back(session_json(info));
  return dumped({{"sessions", std::move(list)}}, 2);
}

std::string list_text(const std::vector<SessionInfo>& sessions) {
  if (sessions.empty()) return "no named sessions\n";
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "KEEPER", "PARTICIPANTS", "OBJECTS", "SLABS", "BYTES", "AGE"}};
  std::string problems;
  for (const auto& info : sessions) {
    const bool is_known = info.problem.empty();
    const auto known = [&](std::string text) { return is_known ? std::move(text) : std::string("?"); };
    rows.push_back({info.name, std::to_string(info.keeper_pid), known(std::to_string(info.population.present)),
                    known(std::to_string(info.objects)), known(std::to_string(info.slab_count)),
                    known(format_bytes(info.object_bytes + info.slab_bytes)), known(duration_text(age_of(info)))});
    if (!is_known) problems += fmt::format("{}: {}\n", info.name, info.problem);
  }
  return format_table(rows) + problems;
}

std::string participants_text(const SessionInfo& info) {
  std::vector<std::vector<std::string>> rows = {{"NUMBER", "PID", "ROLE", "STATE", "NAME"}};
  for (const auto& each : info.participants) {
    rows.push_back({std::to_string(each.number), std::to_string(each.pid), each.is_worker ? "worker" : "opener",
                    std::string(to_string(each.state)), each.name});
  }
  return rows.size() == 1 ? "" : "\n" + format_table(rows);
}

std::string slabs_text(const SessionInfo& info) {
  std::vector<std::vector<std::string>> rows = {{"SLAB", "BYTES", "LABEL"}};
  std::uint64_t rest = info.slab_bytes;
  for (const auto& each : info.slabs) {
    rows.push_back({std::to_string(static_cast<std::uint64_t>(each.id)), format_bytes(each.bytes), each.label});
    rest -= each.bytes;
  }
  if (info.slab_count > info.slabs.size()) {
    rows.push_back({"-", format_bytes(rest), fmt::format("of {} objects", info.slab_count - info.slabs.size())});
  }
  return rows.size() == 1 ? "" : "\n" + format_table(rows);
}

std::string kept_text(const SessionInfo& info) {
  std::vector<std::vector<std::string>> rows = {{"KEPT", "BYTES", "DESCRIPTION"}};
  for (const auto& each : info.kept) rows.push_back({each.name, format_bytes(each.bytes), each.description});
  return rows.size() == 1 ? "" : "\n" + format_table(rows);
}

std::string details_text(const SessionInfo& info) {
  return fmt::format(
             "session '{}', kept by process {} for {}; ends {}\n"
             "{} participants, {} starting, {} departed; {} objects in {}; {} slabs of {}\n",
             info.name, info.keeper_pid, duration_text(age_of(info)), limit_text(info), info.population.present,
             info.population.starting, info.population.departed, info.objects, format_bytes(info.object_bytes),
             info.slab_count, format_bytes(info.slab_bytes)) +
         participants_text(info) + slabs_text(info) + kept_text(info);
}

constexpr const char* kSessionFooter =
    R"(A named session outlives the programs that open it. It ends by this command, or after it had no participants for its
idle limit. Sessions without a name end with their application and are not shown.

Examples:
  drover session list
  drover session list --json | jq -r '.sessions[].name'
  drover session show train                      its participants, slabs and kept items
  drover session show train --json | jq '.kept'
  drover session drop train weights              removes the item; processes that recalled it still have it
  drover session end train                       refused while it has participants
  drover session end train --force               kills its workers; other participants get errors)";

// Shared with the callbacks, which outlive the functions that make them.
using Shared = std::shared_ptr<SessionCommandOptions>;

void add_list(CLI::App& parent, const Shared& options, Run& run) {
  auto* const command = parent.add_subcommand("list", "List the named sessions of this user");
  command->add_flag("--json", options->is_json, "Print JSON");
  command->callback([options, &run] {
    run = [options] {
      const auto sessions = list_sessions();
      write_output(options->is_json ? list_json(sessions) : list_text(sessions));
      return exit_good;
    };
  });
}

void add_show(CLI::App& parent, const Shared& options, Run& run) {
  auto* const command = parent.add_subcommand("show", "Show one session: participants, slabs, kept items");
  command->add_option("name", options->name, "Name of the session")->required();
  command->add_flag("--json", options->is_json, "Print JSON");
  command->callback([options, &run] {
    run = [options] {
      const auto info = describe_session(options->name);
      write_output(options->is_json ? dumped(details_json(info), 2) : details_text(info));
      return exit_good;
    };
  });
}

void add_drop(CLI::App& parent, const Shared& options, Run& run) {
  auto* const command = parent.add_subcommand("drop", "Remove an item that a session keeps under a name");
  command->add_option("name", options->name, "Name of the session")->required();
  command->add_option("kept", options->kept_name, "Name of the kept item")->required();
  command->callback([options, &run] {
    run = [options] {
      drop_kept(options->name, options->kept_name);
      return exit_good;
    };
  });
}

void add_end(CLI::App& parent, const Shared& options, Run& run) {
  auto* const command = parent.add_subcommand("end", "End a session and free its memory");
  command->add_option("name", options->name, "Name of the session")->required();
  command->add_flag("--force", options->is_forced, "Even with participants: kill workers, fail the others");
  command->callback([options, &run] {
    run = [options] {
      end_session(options->name, options->is_forced);
      return exit_good;
    };
  });
}

}  // namespace

void add_session(CLI::App& app, Run& run) {
  auto* const command = app.add_subcommand("session", "List, show and end named sessions; drop kept items");
  const auto options = std::make_shared<SessionCommandOptions>();
  command->require_subcommand(1);
  command->footer(kSessionFooter);
  add_list(*command, options, run);
  add_show(*command, options, run);
  add_drop(*command, options, run);
  add_end(*command, options, run);
}

}  // namespace drover::cli
