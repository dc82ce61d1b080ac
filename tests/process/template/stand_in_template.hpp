// tests/process/template/stand_in_template.hpp: a template that forks shells, in many manners of misbehaving.
#pragma once

#include <string>

#include "drover/process/spawn_options.hpp"
#include "process/template/template.hpp"

namespace drover::test {

/// This test program, started as a template. Manners: "serves", "stays" (its children run no shell), "refuses",
/// "dies at an order", "stops at an order", "loses its children", "stops its children" (on their way), "ends" (before
/// it is ready), "waits for a word" (which it then reports), "waits for a moment" (for one), "hands over" (to a
/// process for each order).
[[nodiscard]] process::TemplateCommand stand_in(const std::string& manner);

/// A child that such a template can stand for: a shell that runs a command. Also started in the usual way it is one.
[[nodiscard]] SpawnOptions shell(const std::string& command);

}  // namespace drover::test
