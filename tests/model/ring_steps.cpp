// The steps of producers and consumers: claim, publish, search, claim, finish.
#include <algorithm>

#include "model/ring_model.hpp"
#include "model/ring_words.hpp"

namespace drover::model {

void RingModel::step(RingState& state, int process, int choice) const {
  switch (process_at(state, process).at) {
    case At::put_begin:
    case At::put_look:
    case At::put_claim:
    case At::put_stamp:
    case At::put_first_half:
    case At::put_second_half:
    case At::put_publish:
    case At::put_nothing: put_step(state, process, choice); return;
    case At::get_begin:
    case At::scan_begin:
    case At::scan_slot:
    case At::scan_claim:
    case At::scan_flight:
    case At::scan_take: search_step(state, process); return;
    case At::get_hint:
    case At::get_look:
    case At::get_claim:
    case At::get_skip:
    case At::read_first_half:
    case At::read_second_half:
    case At::finish_slot: get_step(state, process, choice); return;
    case At::keep_look:
    case At::keep_claim:
    case At::keep_first_half:
    case At::keep_second_half:
    case At::keep_hold:
    case At::keep_free_slot: keep_step(state, process); return;
    case At::work_first_half:
    case At::work_second_half:
    case At::finish_flight:
    case At::raise_after_giving: work_step(state, process, choice); return;
  }
}

Word RingModel::next_lap(Word word) const {
  const int laps = is(Mistake::keep_lap_on_finish) ? 0 : 1;
  return {.lap = static_cast<std::uint8_t>(word.lap + laps), .state = ipc::RingSlotState::free, .owner = kNobodyHere};
}

void RingModel::put_step(RingState& state, int process, int choice) const {
  Process& self = process_at(state, process);
  const auto message = static_cast<MessageNumber>(process * config_.messages + self.sent + 1);
  Place& slot = slot_at(state, self.cursor, config_.capacity);
  switch (self.at) {
    case At::put_begin:
      self.cursor = static_cast<std::uint8_t>(self.cursor + choice);
      self.at = At::put_look;
      return;
    case At::put_look: put_look(state, process); return;
    case At::put_claim: put_claim(state, process); return;
    case At::put_stamp:
      slot.word.owner = owner_number(process);
      self.at = At::put_first_half;
      return;
    case At::put_first_half:
      slot.record = kHalfWritten;
      self.at = At::put_second_half;
      return;
    case At::put_second_half:
      slot.record = message;
      if (!is(Mistake::publish_before_write)) {
        self.at = At::put_publish;
        return;
      }
      self.at = self.sent == config_.messages ? At::put_nothing : At::put_begin;
      return;
    case At::put_publish: put_publish(state, process, choice); return;
    default: return;
  }
}

void RingModel::put_look(RingState& state, int process) const {
  Process& self = process_at(state, process);
  const std::uint8_t lap = lap_at(self.cursor, config_.capacity);
  const Word word = slot_at(state, self.cursor, config_.capacity).word;
  if (is(Mistake::hint_beyond_claim)) state.tail_hint = std::max<std::uint8_t>(state.tail_hint, self.cursor + 1);
  if (word == Word{.lap = lap, .state = ipc::RingSlotState::free, .owner = kNobodyHere}) {
    self.word = word;
    self.at = At::put_claim;
  } else if (word.lap < lap) {
    self.at = At::put_begin;  // full
  } else {
    self.cursor = after(self.cursor, word.lap - lap, config_.capacity);
  }
}

void RingModel::put_claim(RingState& state, int process) const {
  Process& self = process_at(state, process);
  Word& word = slot_at(state, self.cursor, config_.capacity).word;
  const std::uint8_t stamp = is(Mistake::owner_stamped_after_claim) ? kNobodyHere : owner_number(process);
  const Word mine{.lap = self.word.lap, .state = ipc::RingSlotState::writing, .owner = stamp};
  if (!is(Mistake::claim_by_store) && word != self.word) {
    // The failed swap returns the word: the same decision as after a load.
    self.word = {};
    put_look(state, process);
    return;
  }
  word = mine;
  self.word = mine;
  state.tail_hint = std::max<std::uint8_t>(state.tail_hint, self.cursor + 1);
  self.at = is(Mistake::owner_stamped_after_claim) ? At::put_stamp : At::put_first_half;
  if (is(Mistake::publish_before_write)) self.at = At::put_publish;
}

void RingModel::put_publish(RingState& state, int process, int choice) const {
  Process& self = process_at(state, process);
  const auto message = static_cast<MessageNumber>(process * config_.messages + self.sent + 1);
  Word& word = slot_at(state, self.cursor, config_.capacity).word;
  const Word mine{.lap = self.word.lap, .state = ipc::RingSlotState::writing, .owner = owner_number(process)};
  const ipc::RingSlotState next = choice == 1 ? ipc::RingSlotState::skip : ipc::RingSlotState::ready;
  if (!replace(word, mine, {.lap = mine.lap, .state = next, .owner = kNobodyHere})) {
    note(state, Wrong::taken_from_the_living);
    return;
  }
  if (choice == 1) {
    ++state.abandoned;
    ++self.cursor;
    self.word = {};
    self.at = At::put_begin;
    return;
  }
  Fate& fate = fate_of(state, message);
  fate.is_published = 1;
  fate.position = self.cursor;
  self.word = {};
  if (is(Mistake::publish_before_write)) {
    self.at = At::put_first_half;
    return;  // keep `sent`, so that the record gets its message
  }
  ++self.cursor;
  ++self.sent;
  self.at = self.sent == config_.messages ? At::put_nothing : At::put_begin;
}

void RingModel::search_step(RingState& state, int process) const {
  Process& self = process_at(state, process);
  switch (self.at) {
    case At::get_begin: {
      const bool is_new = state.epoch != self.seen_epoch && !is(Mistake::no_search_for_returned);
      self.at = is_new ? At::scan_begin : At::get_hint;
      return;
    }
    case At::scan_begin:
      self.epoch = state.epoch;
      self.index = 0;
      self.at = config_.flights > 0 ? At::scan_flight : At::scan_slot;
      return;
    case At::scan_flight:
    case At::scan_slot:
      self.word = (self.at == At::scan_slot ? state.slots[self.index] : state.flights[self.index]).word;
      if (self.word.state != ipc::RingSlotState::returned) {
        scan_next(state, self);
      } else {
        self.at = self.at == At::scan_slot ? At::scan_claim : At::scan_take;
      }
      return;
    default: scan_claim(state, process); return;
  }
}

void RingModel::scan_claim(RingState& state, int process) const {
  Process& self = process_at(state, process);
  const bool is_slot = self.at == At::scan_claim;
  Place& place = is_slot ? state.slots[self.index] : state.flights[self.index];
  const Word mine{.lap = self.word.lap, .state = ipc::RingSlotState::reading, .owner = owner_number(process)};
  if (!replace(place.word, self.word, mine)) {
    scan_next(state, self);
    return;
  }
  self.word = mine;
  self.place = self.index;
  self.position = is_slot ? static_cast<std::uint8_t>(mine.lap * config_.capacity + self.index) : place.position;
  self.epoch = 0;
  begin_delivery(state, process, place.record, self.position);
  self.at = At::work_first_half;
  if (!is_slot) return;
  self.at = config_.flights > 0 ? At::keep_look : At::read_first_half;
  self.index = 0;
}

void RingModel::scan_next(RingState& state, Process& self) const {
  self.word = {};
  const bool is_slot = self.at == At::scan_slot || self.at == At::scan_claim;
  self.at = is_slot ? At::scan_slot : At::scan_flight;
  if (++self.index < (is_slot ? config_.capacity : config_.flights)) return;
  self.index = 0;
  if (!is_slot) {
    self.at = At::scan_slot;
    return;
  }
  self.seen_epoch = is(Mistake::epoch_read_after_search) ? state.epoch : self.epoch;
  self.epoch = 0;
  self.at = At::get_hint;
}

void RingModel::get_step(RingState& state, int process, int choice) const {
  Process& self = process_at(state, process);
  Place& held = state.slots[self.place];
  switch (self.at) {
    case At::get_hint:
      self.cursor = static_cast<std::uint8_t>(self.cursor + choice);
      self.at = At::get_look;
      return;
    case At::get_look: get_look(state, process); return;
    case At::get_claim: get_claim(state, process); return;
    case At::get_skip:
      replace(slot_at(state, self.cursor, config_.capacity).word, self.word, next_lap(self.word));
      self.word = {};
      ++self.cursor;
      self.at = At::get_look;
      return;
    case At::read_first_half:
      self.message = held.record;
      self.at = At::read_second_half;
      return;
    case At::read_second_half:
      if (held.record != self.message || self.message == kHalfWritten) note(state, Wrong::torn);
      if (is(Mistake::finish_before_copy)) {
        self.message = kNoMessage;
        self.at = At::get_begin;
        return;
      }
      self.at = At::finish_slot;
      return;
    case At::finish_slot: finish_slot(state, process, choice); return;
    default: return;
  }
}

void RingModel::get_look(RingState& state, int process) const {
  Process& self = process_at(state, process);
  const std::uint8_t lap = lap_at(self.cursor, config_.capacity);
  const Word word = slot_at(state, self.cursor, config_.capacity).word;
  const bool is_unwritten = word.state == ipc::RingSlotState::free ||
                            (word.state == ipc::RingSlotState::writing && !is(Mistake::pass_over_writing));
  if (word.lap < lap || (word.lap == lap && is_unwritten)) {
    self.at = At::get_begin;  // empty
  } else if (word.lap == lap && (word.state == ipc::RingSlotState::ready || word.state == ipc::RingSlotState::skip)) {
    self.word = word;
    self.at = word.state == ipc::RingSlotState::ready ? At::get_claim : At::get_skip;
  } else {
    self.cursor = after(self.cursor, word.lap - lap, config_.capacity);
  }
}

void RingModel::get_claim(RingState& state, int process) const {
  Process& self = process_at(state, process);
  Place& slot = slot_at(state, self.cursor, config_.capacity);
  const Word mine{.lap = self.word.lap, .state = ipc::RingSlotState::reading, .owner = owner_number(process)};
  if (!is(Mistake::claim_by_store) && slot.word != self.word) {
    self.word = {};
    self.at = At::get_look;
    return;
  }
  slot.word = mine;
  self.word = mine;
  self.place = static_cast<std::uint8_t>(self.cursor % config_.capacity);
  self.position = self.cursor;
  begin_delivery(state, process, slot.record, self.position);
  ++self.cursor;
  state.head_hint = std::max(state.head_hint, self.cursor);
  self.at = config_.flights > 0 ? At::keep_look : At::read_first_half;
  if (is(Mistake::finish_before_copy) || (is(Mistake::slot_freed_before_flight) && config_.flights > 0)) {
    self.at = At::finish_slot;
  }
  self.index = 0;
}

void RingModel::finish_slot(RingState& state, int process, int choice) const {
  Process& self = process_at(state, process);
  Place& slot = state.slots[self.place];
  const bool is_given_back = choice == 1;
  const Word returned{.lap = self.word.lap, .state = ipc::RingSlotState::returned, .owner = kNobodyHere};
  const bool is_kept_later = is(Mistake::slot_freed_before_flight) && config_.flights > 0;
  if (is_kept_later) self.message = slot.record;
  if (!replace(slot.word, self.word, is_given_back ? returned : next_lap(self.word))) {
    note(state, Wrong::taken_from_the_living);
    return;
  }
  self.word = {};
  if (is_kept_later) {
    self.at = At::keep_look;
    return;
  }
  if (is_given_back) {
    ++state.given_back;
    ++fate_of(state, self.message).allowed;
  } else {
    complete(state, is(Mistake::finish_before_copy) ? slot.record : self.message);
  }
  self.message = kNoMessage;
  self.place = self.position = 0;
  self.at = is_given_back ? At::raise_after_giving : At::get_begin;
  if (is(Mistake::finish_before_copy)) {
    self.place = static_cast<std::uint8_t>((self.cursor + config_.capacity - 1) % config_.capacity);
    self.at = At::read_first_half;
  }
}

}  // namespace drover::model
