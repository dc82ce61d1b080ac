// Deaths, and the steps of the keeper.
#include <algorithm>

#include "model/ring_model.hpp"
#include "model/ring_words.hpp"

namespace drover::model {

void RingModel::kill(RingState& state, int process) const {
  Process& self = process_at(state, process);
  ++state.deaths;
  // Whatever it held may be delivered once more.
  for (const Place& place : state.slots) {
    if (place.word.owner == owner_number(process) && place.word.state == ipc::RingSlotState::reading) {
      ++fate_of(state, place.record).allowed;
    }
  }
  for (const Place& place : state.flights) {
    const bool is_held = place.word.owner == owner_number(process) && place.word.state == ipc::RingSlotState::reading;
    if (is_held && self.at != At::keep_free_slot) ++fate_of(state, place.record).allowed;
  }
  const auto sent = self.sent;
  const bool is_suspected_only = is(Mistake::recover_the_living);
  if (!is_suspected_only) self = Process{};
  self.sent = sent;
  if (!is_suspected_only) self.life = Life::dead;
  if (is_suspected_only && state.keeper.at == KeeperAt::idle) {
    state.keeper = Keeper{
        .at = KeeperAt::gather, .dead = static_cast<std::uint8_t>(process), .index = 0, .word = {}, .positions = 0};
    keeper_next(state, KeeperAt::idle);
  }
}

// The steps of recover_queue.
void RingModel::keeper_step(RingState& state) const {
  Keeper& keeper = state.keeper;
  switch (keeper.at) {
    case KeeperAt::idle: {
      auto* const dead = std::ranges::find_if(state.processes, [](const Process& p) { return p.life == Life::dead; });
      keeper.dead = static_cast<std::uint8_t>(dead - state.processes.begin());
      keeper_next(state, KeeperAt::idle);
      return;
    }
    case KeeperAt::gather: {
      const Place& flight = state.flights[keeper.index];
      const bool is_held =
          (flight.word.state == ipc::RingSlotState::reading && flight.word.owner == owner_number(keeper.dead)) ||
          (flight.word.state == ipc::RingSlotState::returned && is(Mistake::flights_before_slots));
      if (is_held && !is(Mistake::flight_not_compared)) {
        keeper.positions = static_cast<std::uint8_t>(keeper.positions | 1U << flight.position);
      }
      if (++keeper.index == config_.flights) keeper_next(state, KeeperAt::gather);
      return;
    }
    case KeeperAt::look_slot:
    case KeeperAt::look_flight: {
      const bool is_slot = keeper.at == KeeperAt::look_slot;
      keeper.word = is_slot ? state.slots[keeper.index].word : state.flights[keeper.index].word;
      const bool is_taken =
          keeper.word.state == ipc::RingSlotState::writing || keeper.word.state == ipc::RingSlotState::reading;
      if (is_taken && keeper.word.owner == owner_number(keeper.dead)) {
        keeper.at = is_slot ? KeeperAt::change_slot : KeeperAt::change_flight;
        return;
      }
      keeper.word = {};
      if (++keeper.index == (is_slot ? config_.capacity : config_.flights)) keeper_next(state, keeper.at);
      return;
    }
    case KeeperAt::change_slot: change_slot(state); return;
    case KeeperAt::change_flight: change_flight(state); return;
    case KeeperAt::raise_epoch:
      if (!is(Mistake::epoch_never_raised)) ++state.epoch;
      keeper_next(state, KeeperAt::raise_epoch);
      return;
  }
}

// The order of recovery. Slots before flights: once a flight is returned, another process may finish it, and then
// nothing shows that the dead process held its slot too.
void RingModel::keeper_next(RingState& state, KeeperAt from) const {
  using enum KeeperAt;
  std::vector<KeeperAt> order = {gather, look_slot, look_flight, raise_epoch};
  if (is(Mistake::flights_before_slots)) order = {look_flight, gather, look_slot, raise_epoch};
  if (is(Mistake::epoch_raised_before_return)) order = {raise_epoch, gather, look_slot, look_flight};
  if (config_.flights == 0) std::erase_if(order, [](KeeperAt at) { return at == gather || at == look_flight; });
  Keeper& keeper = state.keeper;
  keeper.index = 0;
  keeper.word = {};
  const auto here = std::ranges::find(order, from);
  const auto next = from == idle ? order.begin() : std::next(here);
  if (next != order.end()) {
    keeper.at = *next;
    return;
  }
  Process& dead = state.processes[keeper.dead];
  if (dead.life == Life::dead) dead.life = Life::recovered;
  keeper = Keeper{};
}

void RingModel::change_slot(RingState& state) const {
  Keeper& keeper = state.keeper;
  Place& slot = state.slots[keeper.index];
  Word next{.lap = keeper.word.lap, .state = ipc::RingSlotState::skip, .owner = kNobodyHere};
  if (keeper.word.state == ipc::RingSlotState::writing && is(Mistake::publish_what_the_dead_wrote))
    next.state = ipc::RingSlotState::ready;
  if (keeper.word.state == ipc::RingSlotState::reading) {
    const auto position = static_cast<unsigned>(keeper.word.lap * config_.capacity + keeper.index);
    next.state = is(Mistake::return_to_ready) ? ipc::RingSlotState::ready : ipc::RingSlotState::returned;
    const bool is_in_flight = (unsigned{keeper.positions} >> position & 1U) != 0;
    if (is_in_flight || is(Mistake::drop_what_the_dead_read)) next = next_lap(keeper.word);
  }
  replace(slot.word, keeper.word, next);
  keeper.word = {};
  keeper.at = KeeperAt::look_slot;
  if (++keeper.index == config_.capacity) keeper_next(state, KeeperAt::look_slot);
}

void RingModel::change_flight(RingState& state) const {
  Keeper& keeper = state.keeper;
  Place& flight = state.flights[keeper.index];
  const Word returned{.lap = keeper.word.lap, .state = ipc::RingSlotState::returned, .owner = kNobodyHere};
  replace(flight.word, keeper.word,
          keeper.word.state == ipc::RingSlotState::writing ? next_lap(keeper.word) : returned);
  keeper.word = {};
  keeper.at = KeeperAt::look_flight;
  if (++keeper.index == config_.flights) keeper_next(state, KeeperAt::look_flight);
}

}  // namespace drover::model
