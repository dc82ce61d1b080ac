// tests/model/bell_model.hpp: a bell that is rung in turn, its sleepers and ringers, as steps that the explorer
// interleaves. Nobody wakes by itself here, as it does in life: what sleeps for ever is a lost wake-up.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "model/explorer.hpp"

namespace drover::model {

/// A mistake to be found: each turns the right model into a wrong one.
enum class BellMistake {
  none,
  nothing_passed_on,          ///< who takes does not look whether there is more
  returned_not_passed_on,     ///< it looks, but not for what others gave back
  look_before_announcement,   ///< a sleeper sets the bit after its last look
  look_without_announcement,  ///< who was woken looks before it sets the bit again
  bit_cleared_without_wake,   ///< the ringer goes on without the system call
  watcher_keeps_the_wake,     ///< who only looks does not ring for one who takes
  leaves_with_the_wake,       ///< who was woken and fails before it looks rings for nobody
  no_ring_after_a_death,      ///< recovery returns what the dead held, and tells nobody
};

/// All of them, without `none`.
[[nodiscard]] std::vector<BellMistake> all_bell_mistakes();
/// The name as written above.
[[nodiscard]] std::string to_string(BellMistake mistake);

/// Who takes part, and how much may happen.
struct BellConfig {
  int producers = 1;
  int consumers = 2;
  int watchers = 0;          ///< wait until there is something, and take nothing
  int messages = 1;          ///< of each producer
  int takes = 1;             ///< of each consumer, which then works for ever
  int deaths = 0;            ///< at most, at any moment
  int give_backs = 0;        ///< of what consumers took, at most
  bool may_give_up = false;  ///< consumers and watchers may leave whenever they find nothing
  bool may_fail = false;     ///< and as soon as they are woken, by an error
  BellMistake mistake = BellMistake::none;
};

/// Where a process is: what it does next.
enum class BellAt : std::uint8_t {
  claim,     ///< a producer: takes a place in the ring
  publish,   ///< a producer
  spin,      ///< looks without having announced a sleep
  announce,  ///< sets the bit
  look,      ///< takes, or is told, or goes on to sleep
  sleep,     ///< the system call: sleeps if the word is what was announced
  asleep,
  woken,         ///< looks at its session
  pass_on,       ///< has taken: does anybody sleep?
  look_on,       ///< somebody may: is there more?
  load,          ///< to ring in turn: is the bit set?
  swap,          ///< counts the ring and clears the bit
  wake_one,      ///< the system call
  load_one,      ///< to ring one: is the bit set?
  count,         ///< counts the ring, and keeps the bit
  wake_or_else,  ///< the system call; if nobody slept the bit goes
  clear,         ///< the bit, if nothing has changed
  fail,          ///< leaves by an error: counts a ring
  wake_all,      ///< the system call
  over,
  dead,
};

inline constexpr int kMostRingers = 6;

/// Of one process.
struct BellProcess {
  BellAt at = BellAt::over;
  bool is_current = false;  ///< the word is what it announced or loaded; once changed it never is again
  bool holds = false;       ///< a place that it claimed, or a record that it took
  std::uint8_t left = 0;    ///< to put or to take
  std::uint8_t place = 0;   ///< claimed

  auto operator<=>(const BellProcess&) const = default;
};

/// Of all.
struct BellState {
  bool is_set = false;          ///< the bit: somebody may be asleep
  std::uint8_t claimed = 0;     ///< places
  std::uint8_t published = 0;   ///< a bit for each place
  std::uint8_t next = 0;        ///< place to be taken
  std::uint8_t returned = 0;    ///< records that recovery or a consumer gave back
  std::uint8_t given_back = 0;  ///< by consumers
  std::uint8_t deaths = 0;
  std::uint8_t mourned = 0;   ///< deaths that recovery has seen to
  std::uint8_t rung_for = 0;  ///< deaths after which it has woken everybody
  std::array<BellProcess, kMostRingers> processes{};
};

/// The model, for `Explorer`. Producers are numbered first, then consumers, then watchers. Those of one kind are
/// alike: after every step they are put in order, so that crowds that differ by a permutation are one state.
class BellModel {
 public:
  using State = BellState;

  explicit BellModel(const BellConfig& config) : config_(config) {}

  [[nodiscard]] State initial() const;
  void actions(const State& state, std::vector<Action>& into) const;
  void apply(State& state, Action action) const;
  /// Whether somebody sleeps for ever although there is a record.
  [[nodiscard]] std::string check(const State& state) const;
  /// One line for each step.
  [[nodiscard]] std::string describe(const std::vector<Action>& actions) const;

 private:
  enum class Kind : std::uint8_t { step, kill, mourn, ring };
  static Action make_action(Kind kind, int process, int choice);

  [[nodiscard]] bool is(BellMistake mistake) const { return config_.mistake == mistake; }
  [[nodiscard]] bool is_producer(int process) const { return process < config_.producers; }
  [[nodiscard]] bool is_watcher(int process) const { return process >= config_.producers + config_.consumers; }
  [[nodiscard]] int process_count() const { return config_.producers + config_.consumers + config_.watchers; }
  [[nodiscard]] bool is_possible(const State& state, int process, int choice) const;

  void step(State& state, int process, int choice) const;
  void step_woken(State& state, int process, int choice) const;
  void ring_step(State& state, int process, int choice) const;
  void look(State& state, int process, BellAt otherwise) const;
  static void change(State& state, BellProcess* self, bool is_set);
  void announce(State& state, int process) const;
  void swap(State& state, BellProcess& self) const;
  void mourn(State& state) const;
  void put_in_order(State& state) const;
  void wake(State& state, int sleeper) const;
  void wake_all(State& state) const;
  void go_on(BellProcess& self, int process) const;

  BellConfig config_;
};

}  // namespace drover::model
