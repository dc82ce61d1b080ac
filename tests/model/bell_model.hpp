// tests/model/bell_model.hpp: a bell that is rung in turn, with its sleepers and ringers, as steps that the explorer
// interleaves. Unlike in reality, no sleeper wakes spontaneously, so that a process that sleeps forever shows a lost
// wake-up.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "model/explorer.hpp"

namespace drover::model {

/// A mistake that the explorer must find: each breaks the correct model.
enum class BellMistake {
  none,
  nothing_passed_on,          ///< a taker does not check if there is more
  returned_not_passed_on,     ///< it checks, but not for records that others gave back
  look_before_announcement,   ///< a sleeper sets the bit after its last check
  look_without_announcement,  ///< a woken sleeper checks before it sets the bit again
  bit_cleared_without_wake,   ///< the ringer skips the system call
  watcher_keeps_the_wake,     ///< a watcher does not wake a consumer in its place
  leaves_with_the_wake,       ///< a sleeper that fails on waking wakes no other
  no_ring_after_a_death,      ///< recovery returns what the dead held, but rings for nobody
};

/// All mistakes, without `none`.
[[nodiscard]] std::vector<BellMistake> all_bell_mistakes();
/// The name as written above.
[[nodiscard]] std::string to_string(BellMistake mistake);

/// The participants, and limits on what may happen.
struct BellConfig {
  int producers = 1;
  int consumers = 2;
  int watchers = 0;          ///< wait for a record, but take none
  int messages = 1;          ///< per producer
  int takes = 1;             ///< per consumer, which then works forever
  int deaths = 0;            ///< at most, at any step
  int give_backs = 0;        ///< by consumers, at most
  bool may_give_up = false;  ///< consumers and watchers may leave when they find nothing
  bool may_fail = false;     ///< and may fail as soon as they are woken
  BellMistake mistake = BellMistake::none;
};

/// The next step of a process.
enum class BellAt : std::uint8_t {
  claim,     ///< a producer: claims a place in the ring
  publish,   ///< a producer
  spin,      ///< checks before it has announced a sleep
  announce,  ///< sets the bit
  look,      ///< takes or notices a record, or continues to sleep
  sleep,     ///< the system call: sleeps if the word is the announced one
  asleep,
  woken,         ///< checks its session
  pass_on,       ///< has taken: is the bit set?
  look_on,       ///< a sleeper may exist: is there more?
  load,          ///< to ring in turn: is the bit set?
  swap,          ///< counts the ring and clears the bit
  wake_one,      ///< the system call
  load_one,      ///< to ring one: is the bit set?
  count,         ///< counts the ring, and keeps the bit
  wake_or_else,  ///< the system call; if nobody slept, clears the bit next
  clear,         ///< clears the bit, if the word has not changed
  fail,          ///< leaves by an error: counts a ring
  wake_all,      ///< the system call
  over,
  dead,
};

inline constexpr int kMostRingers = 6;

/// The state of one process.
struct BellProcess {
  BellAt at = BellAt::over;
  bool is_current = false;  ///< the word is the one it announced or loaded; false forever once it has changed
  bool holds = false;       ///< it has a claimed place or a taken record
  std::uint8_t left = 0;    ///< records left to put or take
  std::uint8_t place = 0;   ///< its claimed place

  auto operator<=>(const BellProcess&) const = default;
};

/// The state of the whole system.
struct BellState {
  bool is_set = false;          ///< the bit: a process may be asleep
  std::uint8_t claimed = 0;     ///< places
  std::uint8_t published = 0;   ///< a bit for each place
  std::uint8_t next = 0;        ///< next place to take
  std::uint8_t returned = 0;    ///< records that recovery or consumers gave back
  std::uint8_t given_back = 0;  ///< records that consumers gave back
  std::uint8_t deaths = 0;
  std::uint8_t mourned = 0;   ///< deaths that have been recovered
  std::uint8_t rung_for = 0;  ///< deaths after which recovery has woken everybody
  std::array<BellProcess, kMostRingers> processes{};
};

/// The model, for `Explorer`. Producers are numbered first, then consumers, then watchers. Processes of a kind are
/// interchangeable: they are sorted after every step, so that permutations are one state.
class BellModel {
 public:
  using State = BellState;

  explicit BellModel(const BellConfig& config) : config_(config) {}

  [[nodiscard]] State initial() const;
  void actions(const State& state, std::vector<Action>& into) const;
  void apply(State& state, Action action) const;
  /// Whether a process sleeps forever although there is a record.
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
