#include "pool/watch/stack_sampler.hpp"

#include <execinfo.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <future>
#include <span>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "base/thread.hpp"
#include "drover/base/error.hpp"
#include "drover/pool/this_worker.hpp"
#include "process/inspect/proc_files.hpp"
#include "process/inspect/process_facts.hpp"
#include "process/inspect/symbols.hpp"

namespace drover {
namespace {

constexpr std::size_t kExtraFrames = 8;  // frames of the handler itself
constexpr std::size_t kAlternateStackBytes = std::size_t{128} * 1024;
constexpr std::chrono::microseconds kPause{200};
constexpr const char* kTextFileName = "drover-stack-text";
constexpr std::size_t kMostTextBytes = 16384;
constexpr std::size_t kMostTextLines = 100;
constexpr std::size_t kMostTextColumns = 400;

std::atomic<pool::BoardWorker*> answering{nullptr};
static_assert(std::atomic<pool::BoardWorker*>::is_always_lock_free);

struct TextSource {
  StackTextWriter write;
  int argument;
  int file;
  ino_t number;  // inode of the file: a task that closes all descriptors may reuse the number
};

std::atomic<const TextSource*> text_source{nullptr};
std::atomic<pid_t> helper{0};
static_assert(std::atomic<const TextSource*>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);

pid_t own_thread() noexcept { return static_cast<pid_t>(::syscall(SYS_gettid)); }

std::uint64_t interrupted_at([[maybe_unused]] const void* context) noexcept {
#if defined(__x86_64__)
  return static_cast<std::uint64_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<const ucontext_t*>(context)->uc_mcontext.pc;
#else
  return 0;
#endif
}

// Runs in the handler. The frames above the interrupted address are the handler's own.
void write_stack(pool::BoardWorker& slot, std::uint64_t interrupted) noexcept {
  std::array<void*, pool::BoardWorker::kMostFrames + kExtraFrames> frames{};
  const int depth = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  const std::span<void* const> all(frames.data(), static_cast<std::size_t>(std::max(depth, 0)));
  const auto first =
      std::ranges::find_if(all, [&](void* frame) { return reinterpret_cast<std::uint64_t>(frame) == interrupted; });
  std::uint32_t count = 0;
  const auto add = [&](std::uint64_t address) {
    if (count == pool::BoardWorker::kMostFrames) return;
    std::atomic_ref<std::uint64_t>(slot.stack.at(count)).store(address, std::memory_order_relaxed);
    ++count;
  };
  if (first == all.end()) add(interrupted);  // not found: write all frames, and the address
  for (auto frame = first == all.end() ? all.begin() : first; frame != all.end(); ++frame) {
    add(reinterpret_cast<std::uint64_t>(*frame));
  }
  slot.stack_depth.store(count, std::memory_order_relaxed);
}

// Runs in the handler.
void write_text() noexcept {
  const TextSource* const source = text_source.load(std::memory_order_acquire);
  struct stat now{};
  if (source == nullptr || ::fstat(source->file, &now) != 0 || now.st_ino != source->number) return;
  if (::ftruncate(source->file, 0) == 0 && ::lseek(source->file, 0, SEEK_SET) == 0) source->write(source->argument);
}

extern "C" void drover_answer_stack(int /*signal*/, siginfo_t* info, void* context) {
  const int error = errno;
  pool::BoardWorker* const slot = answering.load(std::memory_order_acquire);
  if (slot != nullptr && info->si_code == SI_QUEUE) {
    const auto number = static_cast<std::uint32_t>(info->si_value.sival_int);
    if (slot->stack_asked.load(std::memory_order_acquire) == number) {
      const pid_t own = own_thread();
      slot->stack_depth.store(0, std::memory_order_relaxed);
      if (own != helper.load(std::memory_order_relaxed)) write_stack(*slot, interrupted_at(context));
      write_text();
      slot->stack_thread.store(static_cast<std::uint32_t>(own), std::memory_order_relaxed);
      slot->stack_given.store(number, std::memory_order_release);
    }
  }
  errno = error;
}

// Keeps an existing stack, even a small one. Ours is never freed, because the thread may run until the process exits.
void ensure_alternate_stack() {
  stack_t present{};
  if (::sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
  void* const memory = sys::call("mmap", ::mmap, static_cast<void*>(nullptr), kAlternateStackBytes,
                                 PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, off_t{0});
  if (memory == MAP_FAILED)
    return;  // NOLINT(performance-no-int-to-ptr): defined so; the handler also runs without it
  stack_t ours{};
  ours.ss_sp = memory;
  ours.ss_size = kAlternateStackBytes;
  ::sigaltstack(&ours, nullptr);
}

int send_with_number(pid_t pid, pid_t tid, std::uint32_t number) noexcept {
  siginfo_t info{};
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_int = static_cast<int>(number);
  return static_cast<int>(::syscall(SYS_rt_tgsigqueueinfo, pid, tid, pool::stack_signal(), &info));
}

// Calls that fail with EINTR after a handler has run, even with SA_RESTART (signal(7)).
std::string_view interruptible_call(const process::ThreadFacts& thread) {
  constexpr std::array<std::string_view, 18> kCalls = {
      "nanosleep",  "clock_nanosleep", "poll",          "ppoll",           "select",       "pselect6",
      "epoll_wait", "epoll_pwait",     "epoll_pwait2",  "semop",           "semtimedop",   "msgrcv",
      "msgsnd",     "pause",           "rt_sigsuspend", "rt_sigtimedwait", "io_getevents", "restart_syscall"};
  const auto name = std::string_view(thread.call).substr(0, thread.call.find('('));
  return std::ranges::find(kCalls, name) == kCalls.end() ? std::string_view() : name;
}

// Compares the inode of the memory file of `slot`, because its name is not unique.
bool has_board_open(pid_t pid, const pool::BoardWorker& slot, const std::filesystem::path& proc) {
  const auto address = reinterpret_cast<std::uint64_t>(&slot);
  const auto pieces = process::read_mapped_pieces(::getpid());
  const auto board = std::ranges::find_if(
      pieces, [&](const process::MappedPiece& each) { return address >= each.begin && address < each.end; });
  if (board == pieces.end() || board->inode == 0) return false;
  const auto folder = proc / std::to_string(pid) / "fd";
  const auto name = std::string("/memfd:") + pool::kBoardFileName;
  const auto files = process::numbers_in(folder);
  return std::ranges::any_of(files, [&](int number) {
    const auto path = folder / std::to_string(number);
    struct stat status{};
    return process::read_proc_link(path).starts_with(name) && ::stat(path.c_str(), &status) == 0 &&
           status.st_ino == board->inode;
  });
}

std::uint64_t signal_bit() noexcept { return std::uint64_t{1} << static_cast<unsigned>(pool::stack_signal() - 1); }

char state_of(const process::ProcessFacts& facts, pid_t tid) {
  const auto thread = std::ranges::find(facts.threads, tid, &process::ThreadFacts::tid);
  return thread == facts.threads.end() ? facts.state : thread->state;
}

// Why no thread of the process can answer; empty if one can.
std::string reason_for_silence(const process::ProcessFacts& facts, pid_t tid) {
  if (facts.is_zombie()) return "it has ended";
  const char state = state_of(facts, tid);
  if (state == 'T' || state == 't') return fmt::format("it is {}", process::state_text(state));
  return (facts.caught_signals & signal_bit()) == 0 ? "it does not answer such requests" : "";
}

// Why this thread cannot answer, or must not be disturbed; empty if neither.
std::string reason_not_to_disturb(const process::ProcessFacts& facts, pid_t tid) {
  if (const char state = state_of(facts, tid); state == 'D')
    return fmt::format("it is {}", process::state_text(state));
  if (tid == facts.pid && (facts.blocked_signals & signal_bit()) != 0) return "its main thread blocks the signal";
  const auto thread = std::ranges::find(facts.threads, tid, &process::ThreadFacts::tid);
  const auto spared = thread == facts.threads.end() ? std::string_view() : interruptible_call(*thread);
  if (!spared.empty()) return fmt::format("asleep in {}, not disturbed", spared);
  return {};
}

pool::StackSample failed(std::string problem) { return {.addresses = {}, .problem = std::move(problem), .text = {}}; }

std::vector<std::uint64_t> copy_stack(pool::BoardWorker& slot) {
  std::vector<std::uint64_t> addresses;
  const auto depth = std::min<std::size_t>(slot.stack_depth.load(), pool::BoardWorker::kMostFrames);
  for (std::size_t i = 0; i < depth; ++i) {
    addresses.push_back(std::atomic_ref<std::uint64_t>(slot.stack.at(i)).load(std::memory_order_relaxed));
  }
  return addresses;
}

// The content is not trusted: the lines are limited, and made printable.
std::vector<std::string> read_text(pid_t pid, const std::filesystem::path& proc) {
  const auto folder = proc / std::to_string(pid) / "fd";
  const auto name = std::string("/memfd:") + kTextFileName;
  std::vector<std::string> lines;
  for (const int number : process::numbers_in(folder)) {
    const auto path = folder / std::to_string(number);
    if (!process::read_proc_link(path).starts_with(name)) continue;
    std::istringstream text(process::read_proc_text(path, kMostTextBytes).value_or(""));
    for (std::string line; lines.size() < kMostTextLines && std::getline(text, line);) {
      lines.push_back(process::printable(line, kMostTextColumns));
    }
    break;
  }
  return lines;
}

// Only handles signals, until the process exits.
void run_helper(std::promise<pid_t>& ready) {
  sigset_t all_others{};
  ::sigfillset(&all_others);
  ::sigdelset(&all_others, pool::stack_signal());
  ::pthread_sigmask(SIG_SETMASK, &all_others, nullptr);
  ready.set_value(own_thread());
  while (true) ::pause();
}

}  // namespace

int pool::stack_signal() noexcept { return SIGRTMIN + 3; }

int stack_text_file() {
  static const int file = [] {  // never closed, because handlers write to it
    const int made = sys::call("memfd_create", ::memfd_create, kTextFileName, MFD_CLOEXEC);
    if (made < 0) throw_errno("memfd_create", "for the stacks of an interpreter");
    return made;
  }();
  return file;
}

void set_stack_text_writer(StackTextWriter write, int argument) {
  pool::BoardWorker* const slot = answering.load(std::memory_order_acquire);
  require(slot != nullptr && text_source.load() == nullptr,
          "a worker of a pool can set one writer for stacks of an interpreter",
          "call set_stack_text_writer in PoolOptions::init, once");
  struct stat made{};
  if (::fstat(stack_text_file(), &made) != 0) throw_errno("fstat", "the file for the stacks of an interpreter");
  text_source.store(new TextSource{write, argument, stack_text_file(), made.st_ino}, std::memory_order_release);
  std::promise<pid_t> ready;
  auto number = ready.get_future();
  start_thread("the thread that writes the stacks of an interpreter", [&ready] { run_helper(ready); }).detach();
  helper.store(number.get(), std::memory_order_relaxed);
  slot->stack_helper.store(static_cast<std::uint32_t>(helper.load()), std::memory_order_release);
}

void pool::answer_stack_requests(pool::BoardWorker& slot) {
  // The first call loads a library and allocates, which a handler may not.
  std::array<void*, 4> warm_up{};
  static_cast<void>(::backtrace(warm_up.data(), static_cast<int>(warm_up.size())));
  ensure_alternate_stack();
  answering.store(&slot, std::memory_order_release);
  struct sigaction action{};
  action.sa_sigaction = drover_answer_stack;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  ::sigfillset(&action.sa_mask);
  if (sys::call("sigaction", ::sigaction, pool::stack_signal(), static_cast<const struct sigaction*>(&action),
                static_cast<struct sigaction*>(nullptr)) != 0) {
    throw_errno("sigaction", "the signal that requests stacks");
  }
}

pool::StackSample pool::sample_stack(pid_t pid, pid_t tid, pool::BoardWorker& slot, Deadline deadline,
                                     const std::filesystem::path& proc) {
  if (tid == 0) tid = pid;
  const auto facts = process::read_process_facts(pid, proc);
  if (!facts) return failed("it is gone");
  if (auto reason = reason_for_silence(*facts, tid); !reason.empty()) return failed(std::move(reason));
  auto spared = reason_not_to_disturb(*facts, tid);
  const auto other = static_cast<pid_t>(slot.stack_helper.load(std::memory_order_acquire));
  if (!spared.empty()) {
    const bool has_helper =
        other != 0 && (std::ranges::find(facts->threads, other, &process::ThreadFacts::tid) != facts->threads.end());
    if (!has_helper) return failed(std::move(spared));
    tid = other;
  }
  if (!has_board_open(pid, slot, proc)) return failed("it does not have this board open");
  const std::uint32_t number = slot.stack_asked.fetch_add(1) + 1;
  if (sys::call("rt_tgsigqueueinfo", send_with_number, pid, tid, number) != 0) {
    return failed(fmt::format("it cannot be signalled: {}", std::strerror(errno)));
  }
  while (slot.stack_given.load(std::memory_order_acquire) != number) {
    if (deadline.has_passed()) return failed("no answer");
    std::this_thread::sleep_for(kPause);
  }
  return {.addresses = copy_stack(slot),
          .problem = std::move(spared),
          .text = other != 0 ? read_text(pid, proc) : std::vector<std::string>()};
}

}  // namespace drover
