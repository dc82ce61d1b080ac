#include "process/template/template_facts.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <fstream>
#include <map>
#include <utility>

namespace drover::process {
namespace {

constexpr std::array<std::string_view, 20> kLoadPrefixes = {
    "PYTHON", "LD_",   "GLIBC_", "MALLOC_", "LC_",      "LANG",  "TZ=",     "OMP_", "GOMP_", "KMP_",
    "MKL_",   "BLIS_", "NPY_",   "NUMPY_",  "OPENBLAS", "TORCH", "PYTORCH", "JAX_", "CUPY_", "NUMBA_"};
constexpr std::string_view kThreads = "_NUM_THREADS";

std::string root_folder() {
  std::array<char, PATH_MAX> path{};
  const auto length = ::readlink("/proc/self/root", path.data(), path.size());
  return {path.data(), static_cast<std::size_t>(std::max<ssize_t>(0, length))};
}

// Read from this thread, since a child inherits them from it.
std::string rights() {
  constexpr std::array<std::string_view, 10> kKeys = {
      "Uid:",    "Gid:",    "Groups:",     "CapInh:",  "CapPrm:",
      "CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:"};
  std::ifstream file("/proc/thread-self/status");
  std::string all;
  for (std::string line; std::getline(file, line);) {
    if (std::ranges::any_of(kKeys, [&](std::string_view key) { return line.starts_with(key); })) all += line + '\n';
  }
  return all;
}

}  // namespace

bool is_read_at_load(std::string_view assignment) {
  if (assignment.substr(0, assignment.find('=')).ends_with(kThreads)) return false;
  return std::ranges::any_of(kLoadPrefixes, [&](std::string_view prefix) { return assignment.starts_with(prefix); });
}

TemplateFacts template_facts(std::span<char* const> variables) {
  TemplateFacts facts{.user = ::getuid(),
                      .effective_user = ::geteuid(),
                      .group = ::getgid(),
                      .effective_group = ::getegid(),
                      .process_group = ::getpgrp(),
                      .session = ::getsid(0),
                      .root = root_folder(),
                      .rights = rights(),
                      .variables = {}};
  for (const char* const entry : variables) {
    if (entry != nullptr && is_read_at_load(entry)) facts.variables.emplace_back(entry);
  }
  std::ranges::sort(facts.variables);
  return facts;
}

TemplateFacts template_facts_now() {
  std::vector<char*> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) variables.push_back(*entry);
  return template_facts(variables);
}

std::vector<std::pair<int, KernelLimit>> limits_of_child(const SpawnPlan& plan) {
  std::map<int, KernelLimit> limits;
  for (int resource = 0; resource < static_cast<int>(RLIM_NLIMITS); ++resource) {
    KernelLimit ours;
    if (::syscall(SYS_prlimit64, 0, resource, nullptr, &ours) == 0) limits[resource] = ours;
  }
  for (const auto& [resource, limit] : plan.limits) limits[resource] = limit;
  return {limits.begin(), limits.end()};
}

// umask(2) cannot read without writing.
mode_t creation_mask() {
  constexpr std::string_view kKey = "Umask:\t";
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kKey)) continue;
    mode_t mask = 0;
    std::from_chars(line.data() + kKey.size(), line.data() + line.size(), mask, 8);
    return mask;
  }
  return 022;
}

}  // namespace drover::process
