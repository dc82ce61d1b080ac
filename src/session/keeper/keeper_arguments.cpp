#include "session/keeper/keeper_arguments.hpp"

#include <charconv>
#include <string_view>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::session {
namespace {

constexpr std::string_view kRole = "--drover-role=keeper";
constexpr std::string_view kName = "--drover-keeper-name=";
constexpr std::string_view kIdleLimit = "--drover-keeper-idle-limit=";
constexpr std::string_view kLauncher = "--drover-keeper-launcher";

[[noreturn]] void throw_unknown(std::string_view argument) {
  throw Error(Errc::invalid_argument, fmt::format("'{}' is not a valid argument of a keeper", argument),
              "set DROVER_KEEPER to a program with the same version of drover");
}

std::chrono::seconds parse_seconds(std::string_view argument, std::string_view text) {
  std::uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size()) throw_unknown(argument);
  return std::chrono::seconds(seconds);
}

}  // namespace

std::vector<std::string> to_arguments(const KeeperArguments& arguments) {
  const KeeperSettings& settings = arguments.settings;
  std::vector<std::string> texts = {std::string(kRole), fmt::format("{}{}", kIdleLimit, settings.idle_limit.count())};
  if (!settings.name.empty()) texts.push_back(fmt::format("{}{}", kName, settings.name));
  if (arguments.is_launcher) texts.emplace_back(kLauncher);
  return texts;
}

KeeperArguments parse_keeper_arguments(std::span<char* const> arguments) {
  KeeperArguments parsed;
  for (const std::string_view argument : arguments.subspan(arguments.empty() ? 0 : 1)) {
    if (argument == kRole) continue;
    if (argument == kLauncher) {
      parsed.is_launcher = true;
    } else if (argument.starts_with(kName)) {
      parsed.settings.name = argument.substr(kName.size());
      check_session_name(parsed.settings.name);
    } else if (argument.starts_with(kIdleLimit)) {
      parsed.settings.idle_limit = parse_seconds(argument, argument.substr(kIdleLimit.size()));
    } else {
      throw_unknown(argument);
    }
  }
  return parsed;
}

}  // namespace drover::session
