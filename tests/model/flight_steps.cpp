// The steps of a consumer that keeps a record in flight.
#include "model/ring_model.hpp"
#include "model/ring_words.hpp"

namespace drover::model {

void RingModel::keep_step(RingState& state, int process) const {
  Process& self = process_at(state, process);
  Place& slot = state.slots[self.place];
  Place& flight = state.flights[self.index];
  const Word mine{.lap = flight.word.lap, .state = ipc::RingSlotState::writing, .owner = owner_number(process)};
  const bool is_freed = is(Mistake::slot_freed_before_flight);
  switch (self.at) {
    case At::keep_look: keep_look(state, process); return;
    case At::keep_claim:
      if (replace(flight.word, {.lap = mine.lap, .state = ipc::RingSlotState::free, .owner = kNobodyHere}, mine)) {
        self.at = At::keep_first_half;
      } else {
        ++self.index;
        self.at = self.index < config_.flights ? At::keep_look : At::read_first_half;
      }
      return;
    case At::keep_first_half:
      if (!is_freed && slot.record == kHalfWritten) note(state, Wrong::torn);
      flight.record = kHalfWritten;
      flight.position = self.position;
      self.at = At::keep_second_half;
      return;
    case At::keep_second_half:
      flight.record = is_freed ? self.message : slot.record;
      self.at = At::keep_hold;
      return;
    case At::keep_hold:
      flight.word.state = ipc::RingSlotState::reading;
      self.at = is_freed ? At::work_first_half : At::keep_free_slot;
      if (is_freed) self.word = flight.word;
      if (is_freed) self.place = self.index;
      return;
    case At::keep_free_slot:
      if (!replace(slot.word, self.word, next_lap(self.word))) note(state, Wrong::taken_from_the_living);
      self.word = flight.word;
      self.place = self.index;
      self.at = At::work_first_half;
      return;
    default: return;
  }
}

// Without a free flight, the record is used in its slot.
void RingModel::keep_look(RingState& state, int process) const {
  Process& self = process_at(state, process);
  if (state.flights[self.index].word.state == ipc::RingSlotState::free) {
    self.at = At::keep_claim;
  } else if (++self.index == config_.flights) {
    self.index = 0;
    self.at = At::read_first_half;
  }
}

void RingModel::work_step(RingState& state, int process, int choice) const {
  Process& self = process_at(state, process);
  Place& flight = state.flights[self.place];
  const Word returned{.lap = self.word.lap, .state = ipc::RingSlotState::returned, .owner = kNobodyHere};
  switch (self.at) {
    case At::work_first_half:
      self.message = flight.record;
      self.at = At::work_second_half;
      return;
    case At::work_second_half:
      if (flight.record != self.message || self.message == kHalfWritten) note(state, Wrong::torn);
      self.at = At::finish_flight;
      return;
    case At::finish_flight:
      if (!replace(flight.word, self.word, choice == 1 ? returned : next_lap(self.word))) {
        note(state, Wrong::taken_from_the_living);
        return;
      }
      if (choice == 1) {
        ++state.given_back;
        ++fate_of(state, self.message).allowed;
      } else {
        complete(state, self.message);
      }
      self.word = {};
      self.message = kNoMessage;
      self.place = self.position = self.index = 0;
      self.at = choice == 1 ? At::raise_after_giving : At::get_begin;
      return;
    case At::raise_after_giving:
      ++state.epoch;
      self.at = At::get_begin;
      return;
    default: return;
  }
}

}  // namespace drover::model
