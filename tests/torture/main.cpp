// The long torture test: `make torture KILLS=100000 SEED=7`.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <random>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "torture/kill_torture.hpp"

namespace {

using namespace drover::test;

struct Settings {
  std::uint64_t kills = 100'000;
  std::uint64_t seed = 0;
  std::string mix;
};

// Progress lines overwrite each other on a terminal and are omitted in a file.
void show_progress(const std::string& line) {
  if (::isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r\x1b[K{}", line);
  static_cast<void>(std::fflush(stderr));
}

int run(const Settings& settings) {
  std::uint64_t chosen = 0;
  for (const Mix& mix : all_mixes()) chosen += settings.mix.empty() || settings.mix == mix.name ? 1U : 0U;
  if (chosen == 0) {
    fmt::print(stderr, "no mix is named '{}'\n", settings.mix);
    return 2;
  }
  bool is_right = true;
  std::uint64_t kills = 0;
  for (const Mix& mix : all_mixes()) {
    if (!settings.mix.empty() && settings.mix != mix.name) continue;
    const TortureReport report = torture(
        mix, {.kills = (settings.kills + chosen - 1) / chosen, .seed = settings.seed, .progress = show_progress});
    show_progress("");
    fmt::print("{}\n", report.to_string());
    static_cast<void>(std::fflush(stdout));
    is_right = is_right && report.is_right();
    kills += report.kills;
  }
  fmt::print("{}: {} kills, seed {}\n", is_right ? "all right" : "SOMETHING IS WRONG", kills, settings.seed);
  return is_right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  settings.seed = std::random_device()();
  CLI::App app("Kills producers, consumers and lock holders at random moments and checks that nothing is lost.");
  app.add_option("--kills", settings.kills, "total number of kills over all mixes")->check(CLI::PositiveNumber);
  app.add_option("--seed", settings.seed, "random seed (default: a new one each time)");
  app.add_option("--mix", settings.mix, "run only this mix, e.g. 4:4");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(settings);
  } catch (const std::exception& error) {
    fmt::print(stderr, "torture: {}\n", error.what());
    return 2;
  }
}
