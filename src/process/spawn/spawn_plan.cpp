#include "process/spawn/spawn_plan.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "process/spawn/limit_names.hpp"
#include "process/spawn/standard_streams.hpp"

namespace drover::process {
namespace {

constexpr unsigned kHighestDescriptor = std::numeric_limits<unsigned>::max();

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

void erase_variable(std::vector<std::string>& variables, const std::string& name) {
  const auto start = name + "=";
  std::erase_if(variables, [&](const std::string& entry) { return entry.starts_with(start); });
}

std::vector<std::string> environment_of(const SpawnOptions& options) {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) variables.emplace_back(*entry);
  for (const auto& name : options.unset) erase_variable(variables, name);
  for (const auto& [name, value] : options.environment) {
    erase_variable(variables, name);
    variables.push_back(fmt::format("{}={}", name, value));
  }
  return variables;
}

// The path is resolved by the kernel after the child has changed its directory, so a relative one is completed here.
std::string path_of_program(const SpawnOptions& options) {
  if (options.placement.folder.empty() || options.executable.starts_with('/')) return options.executable;
  std::error_code failed;
  const auto folder = std::filesystem::current_path(failed);
  if (failed) throw error_from_errno(failed.value(), "getcwd", fmt::format("the program {}", options.executable));
  return (folder / options.executable).string();
}

std::vector<unsigned long> bits_of(const std::vector<int>& cpus) {
  constexpr int kWidth = 8 * sizeof(unsigned long);
  constexpr int kMost = 1 << 16;  // far above the limit of any kernel
  std::vector<unsigned long> bits;
  for (const int cpu : cpus) {
    require(cpu >= 0 && cpu < kMost, "a CPU number of a Placement is out of range");
    const auto word = static_cast<std::size_t>(cpu / kWidth);
    if (word >= bits.size()) bits.resize(word + 1);
    bits[word] |= 1UL << static_cast<unsigned>(cpu % kWidth);
  }
  return bits;
}

KernelLimit resolve(const ResourceLimit& wanted) {
  KernelLimit ours;
  const auto read = [](int resource, KernelLimit* into) {
    return static_cast<int>(::syscall(SYS_prlimit64, 0, resource, nullptr, into));
  };
  if (sys::call("getrlimit", read, wanted.resource, &ours) != 0)
    throw_errno("getrlimit", limit_name(wanted.resource));
  const std::uint64_t hard = wanted.hard.value_or(ours.hard);
  return {.soft = std::min(wanted.soft, hard), .hard = hard};
}

int open_plainly(const char* path, int flags) { return ::open(path, flags, 0644); }

Fd open_stream(const std::string& path, int flags) {
  Fd file(sys::retry("open", open_plainly, path.c_str(), flags | O_CLOEXEC));
  if (file.is_open()) return file;
  if (errno == ENXIO) {
    throw Error(Errc::not_found,
                fmt::format("'{}', a named pipe or device that is given as a standard "
                            "stream of a new process, has no reader",
                            path),
                "open it for reading first, or give a plain file");
  }
  throw_errno("open", fmt::format("'{}', a standard stream of a new process", path));
}

// Opening a named pipe without a reader would block this thread, which serves all others.
Fd open_output(const std::string& path) {
  Fd file = open_stream(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK);
  const auto clear = [](int fd) { return ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK); };
  if (sys::call("fcntl", clear, file.get()) != 0) throw_errno("fcntl(F_SETFL)", fmt::format("'{}'", path));
  return file;
}

void check_text(const std::string& text, const char* what) {
  require(text.find('\0') == std::string::npos, what, "send bytes through a queue or a file");
}

void check_variable_name(const std::string& name) {
  require(!name.empty() && name.find('=') == std::string::npos && name.find('\0') == std::string::npos,
          "the name of an environment variable is empty or contains '=' or a zero byte");
}

// The kernel reads texts up to the first zero byte and would silently cut them.
void check_texts(const SpawnOptions& options) {
  check_text(options.executable, "the path of a program contains a zero byte");
  check_text(options.placement.folder, "the working directory of a new process contains a zero byte");
  for (const auto& argument : options.arguments) {
    check_text(argument, "an argument of a new process contains a zero byte");
  }
  for (const auto& name : options.unset) check_variable_name(name);
  for (const auto& [name, value] : options.environment) {
    check_variable_name(name);
    check_text(value, "the value of an environment variable contains a zero byte");
  }
  for (const auto* const stream : {&options.streams.input, &options.streams.output, &options.streams.error}) {
    check_text(stream->path(), "the path of a standard stream contains a zero byte");
  }
}

std::pair<Fd, Fd> make_pipe() {
  std::array<int, 2> ends{};
  if (sys::call("pipe2", ::pipe2, ends.data(), O_CLOEXEC) != 0) {
    throw_errno("pipe2", "a standard stream of a new process");
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

// Duplicates to a number of at least `least`, beyond every number that the child needs.
Fd lifted(int fd, int least) {
  const auto lift = [](int from, int to) { return ::fcntl(from, F_DUPFD_CLOEXEC, to); };
  Fd copy(sys::call("fcntl", lift, fd, least));
  if (!copy.is_open()) throw_errno("fcntl(F_DUPFD_CLOEXEC)", fmt::format("inherited descriptor {}", fd));
  return copy;
}

}  // namespace

const char* call_of(SpawnStep step, ChildGroup group) noexcept {
  switch (step) {
    case SpawnStep::group: return group == ChildGroup::own_session ? "setsid" : "setpgid";
    case SpawnStep::parent_death: return "prctl";
    case SpawnStep::niceness: return "setpriority";
    case SpawnStep::cpus: return "sched_setaffinity";
    case SpawnStep::folder: return "chdir";
    case SpawnStep::descriptors: return "dup3";
    case SpawnStep::closing: return "close_range";
    case SpawnStep::limits: return "prlimit";
    case SpawnStep::program: break;
  }
  return "execve";
}

SpawnPreparation::SpawnPreparation(const SpawnOptions& options) {
  prepare_texts(options);
  prepare_placement(options.placement);
  prepare_streams(options.streams);
  prepare_descriptors(options.inherit);
  plan_.group = options.group;
  plan_.parent_death_signal = options.parent_death_signal;
  plan_.parent = ::getpid();
  prepare_faults();
}

void SpawnPreparation::prepare_texts(const SpawnOptions& options) {
  check_texts(options);
  plan_.program = path_of_program(options);
  argument_texts_ = {options.executable};
  argument_texts_.insert(argument_texts_.end(), options.arguments.begin(), options.arguments.end());
  variable_texts_ = environment_of(options);
  plan_.arguments = pointers_to(argument_texts_);
  plan_.variables = pointers_to(variable_texts_);
}

void SpawnPreparation::prepare_placement(const Placement& placement) {
  plan_.cpus = bits_of(placement.cpus);
  plan_.folder = placement.folder;
  for (const auto& limit : placement.limits) plan_.limits.emplace_back(limit.resource, resolve(limit));
  if (!placement.niceness) return;
  require(*placement.niceness >= -20 && *placement.niceness <= 19, "a niceness is a number from -20 to 19");
  plan_.has_niceness = true;
  plan_.niceness = *placement.niceness;
}

void SpawnPreparation::prepare_streams(const StandardStreams& streams) {
  const std::array<const StandardStream*, 3> all = {&streams.input, &streams.output, &streams.error};
  std::array<bool, 3> is_there{};  // checked before a descriptor opened here can get these numbers
  for (int number = 0; number < 3; ++number) is_there[static_cast<std::size_t>(number)] = is_standard_stream(number);
  for (int number = 0; number < 3; ++number) {
    const StandardStream& stream = *all[static_cast<std::size_t>(number)];
    const bool is_input = number == STDIN_FILENO;
    const bool is_missing =
        stream.kind() == StandardStream::Kind::inherited && !is_there[static_cast<std::size_t>(number)];
    if (stream.kind() == StandardStream::Kind::null || is_missing) {
      lead(number, open_stream("/dev/null", is_input ? O_RDONLY : O_WRONLY));
    } else if (stream.kind() == StandardStream::Kind::file) {
      lead(number, is_input ? open_stream(stream.path(), O_RDONLY) : open_output(stream.path()));
    } else if (stream.kind() == StandardStream::Kind::pipe) {
      auto [reader, writer] = make_pipe();
      pipes_[static_cast<std::size_t>(number)] = std::move(is_input ? writer : reader);
      lead(number, std::move(is_input ? reader : writer));
    }
  }
}

void SpawnPreparation::lead(int number, Fd fd) {
  streams_.emplace_back(fd.get(), number);
  held_.push_back(std::move(fd));
}

// Only requested descriptors are inherited: a forgotten one would keep shared and device memory alive.
void SpawnPreparation::prepare_descriptors(const std::vector<std::pair<int, int>>& inherit) {
  auto wanted = streams_;
  wanted.insert(wanted.end(), inherit.begin(), inherit.end());
  std::set<int> given = {STDERR_FILENO};
  for (const auto& [ours, theirs] : wanted) given.insert(theirs);
  const int highest = *given.rbegin();
  for (const auto& [ours, theirs] : wanted) {
    const auto& copy = held_.emplace_back(lifted(ours, highest + 1));
    plan_.moves.emplace_back(copy.get(), theirs);
  }
  auto next = static_cast<unsigned>(STDERR_FILENO) + 1;
  for (const int number : given) {
    if (number < STDERR_FILENO + 1) continue;
    const auto kept = static_cast<unsigned>(number);
    if (next < kept) plan_.closings.emplace_back(next, kept - 1);
    next = kept + 1;
  }
  plan_.closings.emplace_back(next, kHighestDescriptor);
}

// Queried here, since the child may not use the parent's fault seam.
void SpawnPreparation::prepare_faults() {
  const auto ask = [this](SpawnStep step, bool is_made) {
    if (is_made) plan_.faults[static_cast<std::size_t>(step)] = sys::injected(call_of(step, plan_.group));
  };
  ask(SpawnStep::group, plan_.group != ChildGroup::ours);
  ask(SpawnStep::parent_death, plan_.parent_death_signal != 0);
  ask(SpawnStep::niceness, plan_.has_niceness);
  ask(SpawnStep::cpus, !plan_.cpus.empty());
  ask(SpawnStep::folder, !plan_.folder.empty());
  ask(SpawnStep::descriptors, !plan_.moves.empty());
  ask(SpawnStep::closing, true);
  ask(SpawnStep::limits, !plan_.limits.empty());
  ask(SpawnStep::program, true);
}

}  // namespace drover::process
