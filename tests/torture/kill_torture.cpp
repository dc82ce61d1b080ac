#include "torture/kill_torture.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <random>
#include <stdexcept>

#include <fmt/format.h>

#include "drover/base/clock.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/ipc/semaphore.hpp"
#include "ipc/wake/cell_lock.hpp"
#include "torture/queue_probe.hpp"
#include "torture/torture_session.hpp"

namespace drover::test {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{60};  // without progress: a stall
constexpr std::uint64_t kMostMessagesOfRound = kMostNumber - 1;

std::size_t open_files() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

// Runs all roles until the numbers of a ledger are used up or enough processes are killed; then checks the ledger.
class Round {
 public:
  Round(const Mix& mix, std::uint64_t seed, Mischief mischief, TortureReport& report)
      : mix_(mix),
        random_(seed),
        mischief_(mischief),
        report_(report),
        stage_(make_stage()),
        probe_(session_.object(stage_.queue)) {
    free_bytes_ = probe_.free_bytes();  // NOLINT(cppcoreguidelines-prefer-member-initializer): after the probe
    add(Role::producer, mix.producers);
    add(Role::consumer, mix.consumers);
    add(Role::getter, mix.getters, mix.consumers);
    add(Role::holder, mix.holders);
    for (Participant& each : participants_) start(each);
  }
  ~Round() {
    for (Participant& each : participants_) end(each);
  }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  // One or several deaths at about the same moment.
  void disturb() {
    wait_for_a_moment();
    const std::uint64_t dice = random_() % 20;
    const std::size_t wanted = dice < 16 ? 1 : dice < 19 ? 2 : 3;
    std::vector<Participant*> victims;
    while (victims.size() < std::min(wanted, participants_.size())) {
      Participant* const chosen =
          hunted_ != nullptr ? std::exchange(hunted_, nullptr) : &participants_[random_() % participants_.size()];
      if (std::ranges::find(victims, chosen) == victims.end()) victims.push_back(chosen);
    }
    for (const Participant* each : victims) ::kill(each->pid, SIGKILL);
    for (Participant* each : victims) reap(*each);
    std::ranges::shuffle(victims, random_);
    for (Participant* each : victims) recover(*each);
    do_mischief();
    for (Participant* each : victims) start(*each);
    report_.kills += victims.size();
  }

  [[nodiscard]] bool is_over() const {
    return std::ranges::any_of(stage_.ledger.page().producers,
                               [](const ProducerLedger& each) { return each.intended >= kMostMessagesOfRound; });
  }
  [[nodiscard]] std::uint64_t faults() const { return ledger_.faults().sum(); }

  // Whether nothing has progressed for long.
  [[nodiscard]] bool is_stalled() {
    const LedgerPage& page = ledger_.page();
    std::uint64_t handled = 0;
    for (const ConsumerLedger& each : page.consumers) handled += each.progress;
    std::uint64_t held = 0;
    for (const auto& each : page.holder_progress) held += each;
    const bool has_queue = mix_.producers > 0;
    if (handled != last_handled_ || !has_queue) handled_at_ = steady_clock::now();
    if (held != last_held_ || mix_.holders == 0) held_at_ = steady_clock::now();
    last_handled_ = handled;
    last_held_ = held;
    return steady_clock::now() - std::min(handled_at_, held_at_) > kPatience;
  }

  void finish() {
    for (Participant& each : participants_) ::kill(each.pid, SIGKILL);
    for (Participant& each : participants_) reap(each);
    for (Participant& each : participants_) recover(each);
    drain();
    check_whole();
    const Ledger::Sums sums = ledger_.sum_up();
    report_.sums.published += sums.published;
    report_.sums.deliveries += sums.deliveries;
    report_.sums.repeated += sums.repeated;
    report_.sums.uncertain += sums.uncertain;
    report_.sums.lost += sums.lost;
    report_.faults += faults();
    ++report_.rounds;
    if (sums.lost > may_be_gone_) complain(fmt::format("{} messages are lost, {} may be", sums.lost, may_be_gone_));
    report_.may_be_gone += may_be_gone_;
    tell_faults();
  }

  void complain_of_stall() {
    complain(fmt::format("no progress for {} s; {}", kPatience.count(), probe_.not_free()));
  }

 private:
  struct Participant {
    Role role = Role::producer;
    std::uint64_t index = 0;
    pid_t pid = 0;
    Owner owner = kNobody;
  };

  Stage make_stage() {
    const QueueOptions& queue = mix_.queue;
    return {.mix = mix_,
            .ledger = ledger_,
            .queue = session_.create(
                {.kind = ObjectKind::queue, .parameters = {queue.capacity, queue.bytes, queue.in_flight}}),
            .lock = session_.create({.kind = ObjectKind::lock, .parameters = {}}),
            .rlock = session_.create({.kind = ObjectKind::rlock, .parameters = {}}),
            .semaphore = session_.create({.kind = ObjectKind::semaphore, .parameters = {kPermits}})};
  }

  void add(Role role, int count, int first = 0) {
    for (int i = 0; i < count; ++i) {
      participants_.push_back(
          {.role = role, .index = static_cast<std::uint64_t>(first + i), .pid = 0, .owner = kNobody});
    }
  }

  void start(Participant& each) {
    each.owner = session_.admit();
    const std::uint64_t seed = random_();
    const pid_t driver = ::getpid();
    each.pid = ::fork();
    if (each.pid < 0) throw std::runtime_error("fork failed");
    if (each.pid != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != driver) ::_exit(1);
    play(stage_, each.role, each.index, seed, session_.take_part(each.owner));
  }

  void reap(Participant& each) {
    int status = 0;
    if (::waitpid(each.pid, &status, 0) != each.pid) throw std::runtime_error("waitpid failed");
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
      complain(fmt::format("a {} ended on its own with status {}", to_string(each.role), status));
    }
  }

  // Settles the account of a dead participant, then recovers what it held. In this order, because after the recovery
  // others act.
  void recover(Participant& each) {
    report_.writing_by_dead += probe_.held(each.owner, ipc::RingSlotState::writing);
    report_.reading_by_dead += probe_.held(each.owner, ipc::RingSlotState::reading);
    settle(each);
    session_.recover(each.owner, each.pid);
    each.owner = kNobody;
    each.pid = 0;
  }

  void settle(const Participant& each) {
    LedgerPage& page = ledger_.page();
    if (each.role == Role::producer) {
      ProducerLedger& ledger = page.producers[each.index];
      const MessageId id{.producer = each.index, .number = ledger.intended};
      if (id.number == ledger.reported) return;
      if (probe_.held(each.owner, ipc::RingSlotState::writing) > 0) {
        ledger_.forbid(id);
      } else {
        ledger_.note_uncertain(id);
      }
    } else if (each.role == Role::holder) {
      for (const ObjectHandle& handle : {stage_.lock, stage_.rlock}) {
        const auto& cell =
            *reinterpret_cast<const ipc::CellLockLayout*>(ipc::layout_of(session_.object(handle).data));
        report_.locks_by_dead += ipc::full_holder_of(cell).owner == each.owner ? 1U : 0U;
      }
    } else {
      ConsumerLedger& ledger = page.consumers[each.index];
      if (const auto word = ledger.holding.exchange(0); word != 0) ledger_.allow_again(MessageId::from_word(word));
      may_be_gone_ += ledger.is_getting.exchange(0);
    }
  }

  // Waits for a random time; every second time on average it stops early, when some process is in the middle of an
  // operation.
  void wait_for_a_moment() {
    const auto gap = std::chrono::microseconds(1 + random_() % (2 * mix_.mean_gap_us));
    const auto until = steady_clock::now() + gap;
    if (random_() % 2 == 0) {
      ::usleep(static_cast<useconds_t>(gap.count()));
      return;
    }
    ::usleep(static_cast<useconds_t>(gap.count() / 2));
    while (steady_clock::now() < until && hunted_ == nullptr) {
      const Owner owner = probe_.somebody_busy(random_());
      const auto found = std::ranges::find_if(
          participants_, [&](const Participant& each) { return owner != kNobody && each.owner == owner; });
      if (found != participants_.end()) hunted_ = &*found;
    }
  }

  void drain() {
    Queue queue(session_.driver(), stage_.queue);
    for (Message message; queue.try_get(message) == GetResult::got;) {
      static_cast<void>(take_note(ledger_, message.bytes(), message.key(), message.is_redelivered()));
    }
  }

  void check_whole() {
    if (const auto text = probe_.not_free(); !text.empty()) complain("not free at the end: " + text);
    if (probe_.used_blocks() != 0) complain(fmt::format("{} blocks are in use at the end", probe_.used_blocks()));
    if (probe_.free_bytes() != free_bytes_) complain("bytes of the pool are missing at the end");
    if (!is_acquired(Lock(session_.driver(), stage_.lock).try_acquire())) complain("the lock is held at the end");
    if (!is_acquired(RLock(session_.driver(), stage_.rlock).try_acquire())) complain("the rlock is held at the end");
    const std::uint64_t permits = Semaphore(session_.driver(), stage_.semaphore).value();
    if (permits != kPermits) complain(fmt::format("the semaphore has {} permits instead of {}", permits, kPermits));
  }

  void do_mischief() {
    if (mischief_ == Mischief::none) return;
    if (mischief_ == Mischief::recover_the_living) {
      for (int looks = 0; looks < 10'000; ++looks) {
        if (const Owner owner = probe_.somebody_busy(random_()); owner != kNobody) session_.recover_alive(owner);
      }
      return;
    }
    if (mischief_ == Mischief::enter_a_lock) {
      ledger_.page().lock.inside = 1;
      return;
    }
    Queue queue(session_.driver(), stage_.queue);
    Message message;
    const auto soon = [] { return Deadline::after(std::chrono::milliseconds(100)); };
    if (mischief_ == Mischief::keep_a_block) {
      if (!kept_.is_open()) kept_ = queue.loan(2000, soon());
    } else if (mischief_ == Mischief::forge || mischief_ == Mischief::tear) {
      std::string text = numbered_message(MessageId{.producer = kMostProducers - 1, .number = 1}.to_word(), 64);
      if (mischief_ == Mischief::tear) text.back() ^= 1;
      static_cast<void>(queue.put(text, soon()));
    } else if (queue.get(message, soon()) == GetResult::got && mischief_ == Mischief::repeat) {
      static_cast<void>(take_note(ledger_, message.bytes(), message.key(), message.is_redelivered()));
      static_cast<void>(queue.put(message.bytes(), soon()));
    }
  }

  void tell_faults() {
    const Faults& faults = ledger_.faults();
    const auto tell = [&](const char* what, std::uint64_t count) {
      if (count != 0) complain(fmt::format("{}: {}", what, count));
    };
    tell("torn", faults.torn);
    tell("phantoms", faults.phantoms);
    tell("wrong duplicates", faults.wrong_duplicates);
    tell("repeated after done", faults.repeated_after_done);
    tell("wrong keys", faults.wrong_keys);
    tell("repeats without a mark", faults.unmarked_repeats);
    tell("broken locks", faults.broken_locks);
    tell("exceptions", faults.exceptions);
  }

  void complain(std::string text) { report_.complaints.push_back(std::move(text)); }

  static void end(Participant& each) {
    if (each.pid == 0) return;
    ::kill(each.pid, SIGKILL);
    ::waitpid(each.pid, nullptr, 0);
  }

  const Mix& mix_;
  std::mt19937_64 random_;
  Mischief mischief_;
  TortureReport& report_;
  TortureSession session_;
  Ledger ledger_;
  Stage stage_;
  QueueProbe probe_;
  std::vector<Participant> participants_;
  Participant* hunted_ = nullptr;
  Loan kept_;
  std::uint64_t free_bytes_ = 0;
  std::uint64_t may_be_gone_ = 0;
  std::uint64_t last_handled_ = 0;
  std::uint64_t last_held_ = 0;
  steady_clock::time_point handled_at_ = steady_clock::now();
  steady_clock::time_point held_at_ = steady_clock::now();
};

}  // namespace

std::string TortureReport::to_string() const {
  std::string text = fmt::format(
      "{} {:<18} seed {} {:.1f} s: {} kills, dead had {} half written, {} unfinished, {} locks; {} put and {} cut "
      "off, "
      "{} deliveries ({:.2f} M/s), {} repeated, {} gone with getters of at most {}",
      is_right() ? "right" : "WRONG", mix, seed, seconds, kills, writing_by_dead, reading_by_dead, locks_by_dead,
      sums.published, sums.uncertain, sums.deliveries, static_cast<double>(sums.deliveries) / seconds / 1e6,
      sums.repeated, sums.lost, may_be_gone);
  for (const auto& complaint : complaints) text += "\n  " + complaint;
  return text;
}

TortureReport torture(const Mix& mix, const TortureOptions& options) {
  TortureReport report;
  report.mix = mix.name;
  report.seed = options.seed;
  const std::size_t files_before = open_files();
  const auto begin = steady_clock::now();
  auto shown = begin;
  while (report.kills < options.kills && report.is_right()) {
    Round round(mix, options.seed + report.rounds, options.mischief, report);
    while (report.kills < options.kills && !round.is_over() && round.faults() == 0 && report.is_right()) {
      round.disturb();
      if (round.is_stalled()) round.complain_of_stall();
      if (!options.progress || seconds_since(shown) < 1) continue;
      shown = steady_clock::now();
      options.progress(fmt::format("{}: {} of {} kills", mix.name, report.kills, options.kills));
    }
    round.finish();
  }
  report.seconds = seconds_since(begin);
  if (open_files() != files_before) report.complaints.emplace_back("open files were left");
  if (::waitpid(-1, nullptr, WNOHANG) >= 0) report.complaints.emplace_back("processes were left");
  return report;
}

const std::vector<Mix>& all_mixes() {
  static const std::vector<Mix> mixes = {
      {.name = "1:1", .producers = 1, .consumers = 1},
      {.name = "4:4", .producers = 4, .consumers = 4},
      {.name = "2:6", .producers = 2, .consumers = 6},
      {.name = "8:2", .producers = 8, .consumers = 2},
      {.name = "2:2 one slot",
       .producers = 2,
       .consumers = 2,
       .queue = {.capacity = 1, .bytes = 4096, .in_flight = 1}},
      {.name = "3:3 three slots",
       .producers = 3,
       .consumers = 3,
       .queue = {.capacity = 3, .bytes = 4096, .in_flight = 2},
       .sizes = {8, 300}},
      {.name = "2:2 no flights",
       .producers = 2,
       .consumers = 2,
       .queue = {.capacity = 4, .bytes = 4096, .in_flight = 0}},
      {.name = "2:2 large, loans",
       .producers = 2,
       .consumers = 2,
       .queue = {.capacity = 8, .bytes = 65536, .in_flight = 4},
       .sizes = {2000, 5000, 20000},
       .has_loans = true},
      {.name = "3:2+2 mixed",
       .producers = 3,
       .consumers = 2,
       .getters = 2,
       .queue = {.capacity = 16, .bytes = 32768, .in_flight = 4},
       .sizes = {8, 48, 49, 104, 105, 1024, 1025, 4000},
       .has_loans = true},
      {.name = "2:0+2 getters", .producers = 2, .consumers = 0, .getters = 2},
      {.name = "4 holders", .producers = 0, .consumers = 0, .holders = 4},
      {.name = "2:2 and 3 holders", .producers = 2, .consumers = 2, .holders = 3},
  };
  return mixes;
}

}  // namespace drover::test
