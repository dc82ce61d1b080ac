#include "model/bell_model.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace drover::model {
namespace {

constexpr int kGiveUp = kMostRingers;      // a choice in addition to the numbers of sleepers
constexpr int kNobody = kMostRingers + 1;  // the only choice of a step that has none

constexpr std::array<std::pair<BellMistake, const char*>, 8> kMistakes = {{
    {BellMistake::nothing_passed_on, "nothing_passed_on"},
    {BellMistake::returned_not_passed_on, "returned_not_passed_on"},
    {BellMistake::look_before_announcement, "look_before_announcement"},
    {BellMistake::look_without_announcement, "look_without_announcement"},
    {BellMistake::bit_cleared_without_wake, "bit_cleared_without_wake"},
    {BellMistake::watcher_keeps_the_wake, "watcher_keeps_the_wake"},
    {BellMistake::leaves_with_the_wake, "leaves_with_the_wake"},
    {BellMistake::no_ring_after_a_death, "no_ring_after_a_death"},
}};

constexpr std::array kNames = {"claim", "publish",      "spin",    "announce", "look",     "sleep",    "asleep",
                               "woken", "pass on",      "look on", "load",     "swap",     "wake one", "load one",
                               "count", "wake or else", "clear",   "fail",     "wake all", "over",     "dead"};

BellProcess& process_at(BellState& state, int process) {
  return state.processes.at(static_cast<std::size_t>(process));
}
const BellProcess& process_at(const BellState& state, int process) {
  return state.processes.at(static_cast<std::size_t>(process));
}

void publish(BellState& state, BellProcess& self) {
  state.published = static_cast<std::uint8_t>(state.published | 1U << self.place);
  self.holds = false;
  self.place = 0;
}

// Returns a record, then rings one.
void give_back(BellState& state, BellProcess& self) {
  ++state.returned;
  ++state.given_back;
  self.holds = false;
  self.at = BellAt::load_one;
}

// Records are taken in order: one published beyond a place that is still being written is not visible.
bool is_next_ready(const BellState& state) { return (state.published >> state.next & 1U) != 0; }
bool has_record(const BellState& state) { return state.returned > 0 || is_next_ready(state); }

}  // namespace

std::vector<BellMistake> all_bell_mistakes() {
  std::vector<BellMistake> all;
  for (const auto& [mistake, name] : kMistakes) all.push_back(mistake);
  return all;
}

std::string to_string(BellMistake mistake) {
  for (const auto& [each, name] : kMistakes) {
    if (each == mistake) return name;
  }
  return "none";
}

BellState BellModel::initial() const {
  BellState state;
  for (int process = 0; process < process_count(); ++process) {
    BellProcess& self = process_at(state, process);
    self.at = is_producer(process) ? BellAt::claim : BellAt::spin;
    self.left = static_cast<std::uint8_t>(is_producer(process) ? config_.messages : config_.takes);
  }
  return state;
}

Action BellModel::make_action(Kind kind, int process, int choice) {
  return static_cast<Action>(static_cast<unsigned>(kind) << 12U | static_cast<unsigned>(process) << 8U |
                             static_cast<unsigned>(choice));
}

// A system call that wakes one has a choice per sleeper, and one if there is none.
bool BellModel::is_possible(const State& state, int process, int choice) const {
  const BellAt at = process_at(state, process).at;
  if (at == BellAt::asleep || at == BellAt::over || at == BellAt::dead) return false;
  if (choice == kGiveUp) {
    const bool may_give_back = at == BellAt::pass_on && state.given_back < config_.give_backs;
    if (at == BellAt::woken) return config_.may_fail;
    return may_give_back || (config_.may_give_up && at == BellAt::look && !has_record(state));
  }
  if (at != BellAt::wake_one && at != BellAt::wake_or_else) return choice == kNobody;
  if (choice != kNobody) return process_at(state, choice).at == BellAt::asleep;
  for (int other = 0; other < process_count(); ++other) {
    if (process_at(state, other).at == BellAt::asleep) return false;
  }
  return true;
}

void BellModel::actions(const State& state, std::vector<Action>& into) const {
  for (int process = 0; process < process_count(); ++process) {
    for (int choice = 0; choice <= kNobody; ++choice) {
      if (is_possible(state, process, choice)) into.push_back(make_action(Kind::step, process, choice));
    }
    const BellAt at = process_at(state, process).at;
    if (state.deaths < config_.deaths && at != BellAt::dead && at != BellAt::over) {
      into.push_back(make_action(Kind::kill, process, 0));
    }
  }
  if (state.mourned < state.deaths) into.push_back(make_action(Kind::mourn, 0, 0));
  if (state.rung_for < state.mourned) into.push_back(make_action(Kind::ring, 0, 0));
}

void BellModel::apply(State& state, Action action) const {
  const int process = static_cast<int>((action >> 8U) & 0xfU);
  switch (static_cast<Kind>(action >> 12U)) {
    case Kind::step: step(state, process, static_cast<int>(action & 0xffU)); break;
    case Kind::kill:
      process_at(state, process).at = BellAt::dead;
      ++state.deaths;
      break;
    case Kind::mourn: mourn(state); break;
    case Kind::ring:
      state.rung_for = state.mourned;
      if (!is(BellMistake::no_ring_after_a_death)) wake_all(state);
      break;
  }
  put_in_order(state);
}

void BellModel::put_in_order(State& state) const {
  auto* const producers = state.processes.data();
  auto* const consumers = producers + config_.producers;
  auto* const watchers = consumers + config_.consumers;
  std::sort(producers, consumers);
  std::sort(consumers, watchers);
  std::sort(watchers, watchers + config_.watchers);
}

// Publishes the places that dead producers had claimed, returns what dead consumers held, and counts a ring.
void BellModel::mourn(State& state) const {
  for (int process = 0; process < process_count(); ++process) {
    BellProcess& self = process_at(state, process);
    if (self.at != BellAt::dead || !self.holds) continue;
    is_producer(process) ? publish(state, self) : static_cast<void>(++state.returned);
    self.holds = false;
  }
  state.mourned = state.deaths;
  change(state, nullptr, state.is_set);
}

void BellModel::step(State& state, int process, int choice) const {
  BellProcess& self = process_at(state, process);
  switch (self.at) {
    case BellAt::claim:
      self.place = state.claimed++;
      self.holds = true;
      self.at = BellAt::publish;
      break;
    case BellAt::publish:
      publish(state, self);
      --self.left;
      self.at = BellAt::load;
      break;
    case BellAt::spin: look(state, process, BellAt::announce); break;
    case BellAt::woken: step_woken(state, process, choice); break;
    case BellAt::announce: announce(state, process); break;
    case BellAt::look:
      if (choice == kGiveUp) {
        self.at = BellAt::over;
      } else {
        look(state, process, BellAt::sleep);
      }
      break;
    case BellAt::sleep:
      self.at = self.is_current ? BellAt::asleep : BellAt::announce;
      self.is_current = false;
      break;
    case BellAt::pass_on:
      if (choice == kGiveUp) {
        give_back(state, self);
        break;
      }
      self.at = BellAt::look_on;
      if (!state.is_set || is(BellMistake::nothing_passed_on)) go_on(self, process);
      break;
    case BellAt::look_on: {
      const bool is_more = is_next_ready(state) || (state.returned > 0 && !is(BellMistake::returned_not_passed_on));
      self.at = BellAt::load;
      if (!is_more) go_on(self, process);
      break;
    }
    default: ring_step(state, process, choice); break;
  }
}

// Checks its session; without the mistake, nothing else.
void BellModel::step_woken(State& state, int process, int choice) const {
  BellProcess& self = process_at(state, process);
  self.at = choice == kGiveUp ? BellAt::fail : BellAt::announce;
  if (choice != kGiveUp && is(BellMistake::look_without_announcement)) look(state, process, BellAt::announce);
}

void BellModel::ring_step(State& state, int process, int choice) const {
  BellProcess& self = process_at(state, process);
  switch (self.at) {
    case BellAt::load:
      self.is_current = state.is_set;
      self.at = BellAt::swap;
      if (!state.is_set) go_on(self, process);
      break;
    case BellAt::swap: swap(state, self); break;
    case BellAt::wake_one:
      wake(state, choice);
      go_on(self, process);
      break;
    case BellAt::load_one: self.at = state.is_set ? BellAt::count : BellAt::over; break;
    case BellAt::count:
      change(state, &self, state.is_set);
      self.at = BellAt::wake_or_else;
      break;
    case BellAt::wake_or_else:
      wake(state, choice);
      self.at = choice == kNobody ? BellAt::clear : BellAt::over;
      break;
    case BellAt::clear:
      self.at = self.is_current ? BellAt::wake_all : BellAt::over;
      if (self.is_current) change(state, nullptr, false);
      break;
    case BellAt::fail:
      change(state, nullptr, state.is_set);
      self.at = is(BellMistake::leaves_with_the_wake) ? BellAt::over : BellAt::wake_all;
      break;
    case BellAt::wake_all:
      wake_all(state);
      self.at = BellAt::over;
      break;
    default: break;
  }
}

// Changes the word; only `self` knows the new one.
void BellModel::change(State& state, BellProcess* self, bool is_set) {
  for (BellProcess& each : state.processes) each.is_current = &each == self;
  state.is_set = is_set;
}

void BellModel::announce(State& state, int process) const {
  BellProcess& self = process_at(state, process);
  const bool looks_first = is(BellMistake::look_before_announcement);
  if (looks_first && has_record(state)) {
    look(state, process, BellAt::announce);
    return;
  }
  if (!state.is_set) change(state, &self, true);
  self.is_current = true;
  self.at = looks_first ? BellAt::sleep : BellAt::look;
}

// Takes a record or, as a watcher, notices it; without a record continues with `otherwise`.
void BellModel::look(State& state, int process, BellAt otherwise) const {
  BellProcess& self = process_at(state, process);
  if (!has_record(state)) {
    self.at = otherwise;
    return;
  }
  if (is_watcher(process)) {  // a watcher that has not slept has no wake-up to pass on
    const bool is_silent = self.at == BellAt::spin || is(BellMistake::watcher_keeps_the_wake);
    self.at = is_silent ? BellAt::over : BellAt::load_one;
    return;
  }
  state.returned > 0 ? --state.returned : ++state.next;
  self.holds = true;
  self.at = BellAt::pass_on;
}

// A failed swap checks the bit again.
void BellModel::swap(State& state, BellProcess& self) const {
  if (!self.is_current) {
    self.at = BellAt::load;
    return;
  }
  change(state, nullptr, false);
  self.at = is(BellMistake::bit_cleared_without_wake) ? BellAt::load : BellAt::wake_one;
}

void BellModel::wake(State& state, int sleeper) const {
  if (sleeper >= kMostRingers) return;
  process_at(state, sleeper).at = BellAt::woken;
}

void BellModel::wake_all(State& state) const {
  for (int process = 0; process < process_count(); ++process) {
    if (process_at(state, process).at == BellAt::asleep) wake(state, process);
  }
}

// After a put or a take.
void BellModel::go_on(BellProcess& self, int process) const {
  if (is_producer(process)) {
    self.at = self.left > 0 ? BellAt::claim : BellAt::over;
    return;
  }
  self.holds = false;
  self.at = --self.left > 0 ? BellAt::spin : BellAt::over;
}

std::string BellModel::check(const State& state) const {
  if (!has_record(state)) return {};
  std::vector<Action> possible;
  actions(state, possible);
  bool is_at_rest = state.mourned == state.deaths;
  for (const Action action : possible) is_at_rest = is_at_rest && static_cast<Kind>(action >> 12U) == Kind::kill;
  if (!is_at_rest) return {};
  for (int process = 0; process < process_count(); ++process) {
    if (process_at(state, process).at == BellAt::asleep) return "somebody sleeps although there is a record";
  }
  return {};
}

std::string BellModel::describe(const std::vector<Action>& actions) const {
  std::string text;
  State state = initial();
  for (const Action action : actions) {
    const int process = static_cast<int>((action >> 8U) & 0xfU);
    const char* const next = kNames.at(static_cast<std::size_t>(process_at(state, process).at));
    switch (static_cast<Kind>(action >> 12U)) {
      case Kind::step: text += fmt::format("process {}: {} ({})\n", process, next, action & 0xffU); break;
      case Kind::kill: text += fmt::format("process {} is killed before {}\n", process, next); break;
      case Kind::mourn: text += "keeper: returns what the dead held\n"; break;
      case Kind::ring: text += "keeper: wakes all\n"; break;
    }
    apply(state, action);
  }
  return text;
}

}  // namespace drover::model
