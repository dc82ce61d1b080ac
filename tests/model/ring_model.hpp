// tests/model/ring_model.hpp: the ring, its users and its recovery, as steps that the explorer interleaves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/explorer.hpp"
#include "model/ring_state.hpp"

namespace drover::model {

/// A mistake that the explorer must find: each breaks the correct model.
enum class Mistake {
  none,
  no_search_for_returned,       ///< consumers check only the slot at their cursor
  return_to_ready,              ///< recovery makes slots read by the dead `ready`; others have passed them
  owner_stamped_after_claim,    ///< in two steps
  finish_before_copy,           ///< the slot is freed, then read
  epoch_raised_before_return,   ///< a consumer searches too early and remembers that it found none
  epoch_read_after_search,      ///< records returned during the search are missed
  epoch_never_raised,           ///< by recovery
  pass_over_writing,            ///< a consumer skips a slot that is still being written
  drop_what_the_dead_read,      ///< recovery frees the slot
  publish_what_the_dead_wrote,  ///< recovery makes the slot ready
  publish_before_write,         ///< the record is written afterwards
  claim_by_store,               ///< instead of compare-and-swap
  keep_lap_on_finish,           ///< the slot becomes free in the same lap
  hint_beyond_claim,            ///< stored before the claim
  slot_freed_before_flight,     ///< frees the slot before it keeps the record in flight
  flight_not_compared,          ///< recovery returns slot and flight of the same record
  flights_before_slots,         ///< recovery returns the flight before it has freed the slot
  recover_the_living,           ///< recovers a process that is still alive
};

/// All mistakes, without `none`.
[[nodiscard]] std::vector<Mistake> all_mistakes();
/// The name as written above.
[[nodiscard]] std::string to_string(Mistake mistake);

/// The participants, and limits on what may happen.
struct RingConfig {
  int producers = 2;
  int consumers = 2;
  int capacity = 2;
  int flights = 0;            ///< with flights, consumers keep records there while they work on them
  int messages = 1;           ///< per producer
  int deaths = 0;             ///< at most, at any step
  bool are_replaced = false;  ///< a recovered process is replaced by one with the same number
  int give_backs = 0;         ///< by consumers, at most
  int abandons = 0;           ///< of claimed slots by producers, at most
  Mistake mistake = Mistake::none;
};
/// "2 producers, 2 consumers, ...".
[[nodiscard]] std::string to_string(const RingConfig& config);

/// The model, for `Explorer`. Processes are numbered from 0, producers first; owners are these numbers plus one.
class RingModel {
 public:
  using State = RingState;

  explicit RingModel(const RingConfig& config) : config_(config) {}

  [[nodiscard]] State initial() const;
  void actions(const State& state, std::vector<Action>& into) const;
  void apply(State& state, Action action) const;
  /// The violation: one noted by a step, or a state at rest that cannot be drained and filled again.
  [[nodiscard]] std::string check(const State& state) const;
  /// One line for each step.
  [[nodiscard]] std::string describe(const std::vector<Action>& actions) const;

 private:
  enum class Kind : std::uint8_t { step, kill, replace, keeper };
  static Action make_action(Kind kind, int process, int choice);
  static Kind kind_of(Action action) { return static_cast<Kind>(action >> 12U); }
  static int process_of(Action action) { return static_cast<int>((action >> 8U) & 0xfU); }
  static int choice_of(Action action) { return static_cast<int>(action & 0xffU); }

  [[nodiscard]] bool is(Mistake mistake) const { return config_.mistake == mistake; }
  [[nodiscard]] bool is_producer(int process) const { return process < config_.producers; }
  [[nodiscard]] int process_count() const { return config_.producers + config_.consumers; }
  [[nodiscard]] Process fresh(int process) const;
  [[nodiscard]] int choices(const State& state, int process) const;
  [[nodiscard]] bool is_at_rest(const State& state) const;
  [[nodiscard]] std::string check_rest(const State& resting, int consumer) const;
  [[nodiscard]] bool drain(State& state, int consumer) const;
  [[nodiscard]] bool can_be_filled(State& state) const;

  void step(State& state, int process, int choice) const;
  void put_step(State& state, int process, int choice) const;
  void put_look(State& state, int process) const;
  void put_claim(State& state, int process) const;
  void put_publish(State& state, int process, int choice) const;
  void search_step(State& state, int process) const;
  void scan_claim(State& state, int process) const;
  void scan_next(State& state, Process& self) const;
  void get_step(State& state, int process, int choice) const;
  void get_look(State& state, int process) const;
  void get_claim(State& state, int process) const;
  void finish_slot(State& state, int process, int choice) const;
  void keep_step(State& state, int process) const;
  void keep_look(State& state, int process) const;
  void work_step(State& state, int process, int choice) const;

  void kill(State& state, int process) const;
  void keeper_step(State& state) const;
  void keeper_next(State& state, KeeperAt from) const;
  void change_slot(State& state) const;
  void change_flight(State& state) const;

  [[nodiscard]] Word next_lap(Word word) const;
  void begin_delivery(State& state, int process, MessageNumber message, std::uint8_t position) const;
  void complete(State& state, MessageNumber message) const;

  RingConfig config_;
};

}  // namespace drover::model
