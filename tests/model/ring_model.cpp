#include "model/ring_model.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "model/ring_words.hpp"

namespace drover::model {
namespace {

constexpr int kMostSoloSteps = 500;

constexpr std::array kSteps = {"put_begin",        "put_look",        "put_claim",         "put_stamp",
                               "put_first_half",   "put_second_half", "put_publish",       "put_nothing",
                               "get_begin",        "scan_begin",      "scan_flight",       "scan_take",
                               "scan_slot",        "scan_claim",      "get_hint",          "get_look",
                               "get_claim",        "get_skip",        "read_first_half",   "read_second_half",
                               "finish_slot",      "keep_look",       "keep_claim",        "keep_first_half",
                               "keep_second_half", "keep_hold",       "keep_free_slot",    "work_first_half",
                               "work_second_half", "finish_flight",   "raise_after_giving"};
constexpr std::array kKeeperSteps = {"idle",        "gather",        "look_slot",  "change_slot",
                                     "look_flight", "change_flight", "raise_epoch"};

const char* name_of(At at) { return kSteps.at(static_cast<std::size_t>(at)); }
const char* name_of(KeeperAt at) { return kKeeperSteps.at(static_cast<std::size_t>(at)); }

constexpr std::array kRingMistakes = {
    std::pair(Mistake::no_search_for_returned, "no_search_for_returned"),
    std::pair(Mistake::return_to_ready, "return_to_ready"),
    std::pair(Mistake::owner_stamped_after_claim, "owner_stamped_after_claim"),
    std::pair(Mistake::finish_before_copy, "finish_before_copy"),
    std::pair(Mistake::epoch_raised_before_return, "epoch_raised_before_return"),
    std::pair(Mistake::epoch_read_after_search, "epoch_read_after_search"),
    std::pair(Mistake::epoch_never_raised, "epoch_never_raised"),
    std::pair(Mistake::pass_over_writing, "pass_over_writing"),
    std::pair(Mistake::drop_what_the_dead_read, "drop_what_the_dead_read"),
    std::pair(Mistake::publish_what_the_dead_wrote, "publish_what_the_dead_wrote"),
    std::pair(Mistake::publish_before_write, "publish_before_write"),
    std::pair(Mistake::claim_by_store, "claim_by_store"),
    std::pair(Mistake::keep_lap_on_finish, "keep_lap_on_finish"),
    std::pair(Mistake::hint_beyond_claim, "hint_beyond_claim"),
    std::pair(Mistake::slot_freed_before_flight, "slot_freed_before_flight"),
    std::pair(Mistake::flight_not_compared, "flight_not_compared"),
    std::pair(Mistake::flights_before_slots, "flights_before_slots"),
    std::pair(Mistake::recover_the_living, "recover_the_living"),
};

}  // namespace

std::vector<Mistake> all_mistakes() {
  std::vector<Mistake> mistakes;
  for (const auto& [mistake, name] : kRingMistakes) mistakes.push_back(mistake);
  return mistakes;
}

std::string to_string(Mistake mistake) {
  for (const auto& [known, name] : kRingMistakes) {
    if (known == mistake) return name;
  }
  return "none";
}

std::string to_string(const RingConfig& config) {
  return fmt::format(
      "{} producers, {} consumers, {} slots, {} flights, {} messages each, {} deaths{}, {} given back, {} abandoned, "
      "{}",
      config.producers, config.consumers, config.capacity, config.flights, config.messages, config.deaths,
      config.are_replaced ? " with replacement" : "", config.give_backs, config.abandons, to_string(config.mistake));
}

Action RingModel::make_action(Kind kind, int process, int choice) {
  return static_cast<Action>(static_cast<unsigned>(kind) << 12U | static_cast<unsigned>(process) << 8U |
                             static_cast<unsigned>(choice));
}

Process RingModel::fresh(int process) const {
  Process made;
  if (!is_producer(process)) made.at = At::get_begin;
  return made;
}

RingState RingModel::initial() const {
  RingState state;
  for (int process = 0; process < kMostProcesses; ++process) {
    auto& made = process_at(state, process);
    made = fresh(process);
    if (process >= process_count()) made.life = Life::recovered;
  }
  return state;
}

// A read may return any old hint; a producer may abandon its claim, a consumer may give its record back.
int RingModel::choices(const RingState& state, int process) const {
  const Process& self = process_at(state, process);
  if (self.at == At::put_begin) return std::max(0, state.tail_hint - self.cursor) + 1;
  if (self.at == At::get_hint) return std::max(0, state.head_hint - self.cursor) + 1;
  if (self.at == At::put_publish) return state.abandoned < config_.abandons ? 2 : 1;
  const bool may_give_back = self.at == At::finish_slot || self.at == At::finish_flight;
  return may_give_back && state.given_back < config_.give_backs ? 2 : 1;
}

void RingModel::actions(const RingState& state, std::vector<Action>& into) const {
  for (int process = 0; process < process_count(); ++process) {
    const Process& self = process_at(state, process);
    if (self.life == Life::alive && self.at != At::put_nothing) {
      for (int choice = 0; choice < choices(state, process); ++choice) {
        into.push_back(make_action(Kind::step, process, choice));
      }
      if (state.deaths < config_.deaths) into.push_back(make_action(Kind::kill, process, 0));
    }
    if (self.life == Life::recovered && config_.are_replaced) into.push_back(make_action(Kind::replace, process, 0));
  }
  const bool has_work = std::ranges::any_of(state.processes, [](const Process& p) { return p.life == Life::dead; });
  if (state.keeper.at != KeeperAt::idle || has_work) into.push_back(make_action(Kind::keeper, 0, 0));
}

void RingModel::apply(RingState& state, Action action) const {
  const int process = process_of(action);
  switch (kind_of(action)) {
    case Kind::step: step(state, process, choice_of(action)); return;
    case Kind::kill: kill(state, process); return;
    case Kind::keeper: keeper_step(state); return;
    case Kind::replace: {
      auto& self = process_at(state, process);
      const auto sent = self.sent;
      self = fresh(process);
      self.sent = sent;
      if (is_producer(process) && sent == config_.messages) self.at = At::put_nothing;
      return;
    }
  }
}

void RingModel::begin_delivery(RingState& state, int process, MessageNumber message, std::uint8_t position) const {
  if (message == kHalfWritten) {
    note(state, Wrong::torn);
    return;
  }
  if (message == kNoMessage || fate_of(state, message).is_published == 0) {
    note(state, Wrong::phantom);
    return;
  }
  Fate& fate = fate_of(state, message);
  if (fate.position != position) note(state, Wrong::key_changed);
  if (fate.completed > 0) note(state, Wrong::repeated_after_completion);
  if (++fate.deliveries > fate.allowed) note(state, Wrong::duplicate);
  process_at(state, process).message = message;
  if (state.deaths > 0 || state.given_back > 0) return;
  const int producer = (message - 1) / config_.messages;
  std::uint8_t& claimed = producer == 0 ? state.claimed_by_first : state.claimed_by_second;
  if ((message - 1) % config_.messages != claimed++) note(state, Wrong::out_of_order);
}

void RingModel::complete(RingState& state, MessageNumber message) const {
  if (message == kNoMessage || message == kHalfWritten) {
    note(state, Wrong::torn);
    return;
  }
  Fate& fate = fate_of(state, message);
  if (++fate.completed > 1) note(state, Wrong::repeated_after_completion);
}

bool RingModel::is_at_rest(const RingState& state) const {
  const auto rests = [](const Process& p) {
    return p.life == Life::recovered ||
           (p.life == Life::alive && (p.at == At::put_begin || p.at == At::put_nothing || p.at == At::get_begin));
  };
  return state.keeper.at == KeeperAt::idle && std::ranges::all_of(state.processes, rests);
}

std::string RingModel::check(const RingState& state) const {
  constexpr std::array kTexts = {"",
                                 "a record was read while it was written",
                                 "what was never put was delivered",
                                 "a record was delivered twice although nobody died with it",
                                 "a record was delivered again after it was finished",
                                 "records of one producer were delivered out of order",
                                 "a record was delivered under another key",
                                 "a place was taken from a living process"};
  if (state.wrong != Wrong::nothing) return kTexts.at(static_cast<std::size_t>(state.wrong));
  if (!is_at_rest(state)) return {};
  for (int process = config_.producers; process < process_count(); ++process) {
    if (process_at(state, process).life != Life::alive) continue;
    if (auto text = check_rest(state, process); !text.empty()) return text;
  }
  // A consumer that joins now must find everything too.
  RingState joined = state;
  const int last = process_count() - 1;
  process_at(joined, last) = fresh(last);
  return check_rest(joined, last);
}

// Runs one consumer alone until it finds no more records, then fills the ring once.
std::string RingModel::check_rest(const RingState& resting, int consumer) const {
  RingState state = resting;
  if (!drain(state, consumer)) return "a consumer that runs alone never ends";
  for (const Fate& fate : state.fates) {
    if (fate.is_published > fate.completed) return "a record that was put is never delivered";
  }
  const auto is_free = [](const Place& place) { return place.word.state == ipc::RingSlotState::free; };
  if (!std::ranges::all_of(state.slots, is_free)) return "a slot is never free again";
  if (!std::ranges::all_of(state.flights, is_free)) return "a flight is never free again";
  return can_be_filled(state) ? "" : "an empty ring is full";
}

bool RingModel::drain(RingState& state, int consumer) const {
  const Process& self = process_at(state, consumer);
  const auto completed = [&] {
    int sum = 0;
    for (const Fate& fate : state.fates) sum += fate.completed;
    return sum;
  };
  int steps = 0;
  for (bool found = true; found;) {
    const int before = completed();
    const std::uint8_t seen_before = self.seen_epoch;
    do {
      if (++steps > kMostSoloSteps) return false;
      step(state, consumer, 0);
    } while (self.at != At::get_begin);
    found = completed() > before || self.seen_epoch != seen_before;
  }
  return true;
}

// Like a process that joins now and reads the oldest possible hints.
bool RingModel::can_be_filled(RingState& state) const {
  int cursor = 0;
  int filled = 0;
  for (int looks = 0; filled < config_.capacity && looks < kMostSoloSteps; ++looks) {
    Word& word = slot_at(state, cursor, config_.capacity).word;
    const int ahead = word.lap - lap_at(cursor, config_.capacity);
    if (ahead < 0) return false;
    if (ahead == 0 && word.state == ipc::RingSlotState::free) {
      word.state = ipc::RingSlotState::writing;
      ++filled;
    }
    cursor = after(cursor, ahead, config_.capacity);
  }
  return filled == config_.capacity;
}

std::string RingModel::describe(const std::vector<Action>& actions) const {
  std::string text;
  RingState state = initial();
  for (const Action action : actions) {
    const int process = process_of(action);
    const Process& self = process_at(state, process);
    switch (kind_of(action)) {
      case Kind::step:
        text += fmt::format("{} {}: {}, position {}\n", is_producer(process) ? "producer" : "consumer", process,
                            name_of(self.at), self.cursor + (self.at == At::put_begin ? choice_of(action) : 0));
        break;
      case Kind::kill: text += fmt::format("process {} is killed before {}\n", process, name_of(self.at)); break;
      case Kind::replace: text += fmt::format("process {} is replaced\n", process); break;
      case Kind::keeper: text += fmt::format("keeper: {}\n", name_of(state.keeper.at)); break;
    }
    apply(state, action);
  }
  return text;
}

}  // namespace drover::model
