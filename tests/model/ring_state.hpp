// tests/model/ring_state.hpp: the state of a queue's ring, its users and its keeper, in a few bytes.
#pragma once

#include <array>
#include <cstdint>

#include "ipc/queue/ring_layout.hpp"

namespace drover::model {

inline constexpr int kMostSlots = 3;
inline constexpr int kMostFlights = 2;
inline constexpr int kMostProcesses = 4;
inline constexpr int kMostMessages = 4;

/// The number of a message, counted from 1.
using MessageNumber = std::uint8_t;
inline constexpr MessageNumber kNoMessage = 0;
inline constexpr MessageNumber kHalfWritten = 0xff;  ///< a record between its first and its last byte

/// SlotWord, with few laps.
struct Word {
  std::uint8_t lap = 0;
  ipc::RingSlotState state = ipc::RingSlotState::free;
  std::uint8_t owner = 0;
  friend bool operator==(const Word&, const Word&) = default;
};

/// RingSlot, or Flight. The record is one message.
struct Place {
  Word word;
  MessageNumber record = kNoMessage;
  std::uint8_t position = 0;  ///< for a Flight
};

/// The next step of a process. Each step is one access to shared memory, together with the private work that follows.
/// The functions are those of src/ipc.
enum class At : std::uint8_t {
  put_begin,        ///< Ring::claim_for_writing: reads the hint
  put_look,         ///< ... loads a slot word
  put_claim,        ///< ... swaps free for writing
  put_stamp,        ///< not a step of the ring; for a mistake
  put_first_half,   ///< QueueCore::publish_record: writes the record ...
  put_second_half,  ///< ... which takes more than one access
  put_publish,      ///< Ring::publish, or Ring::abandon
  put_nothing,      ///< has no message left to put
  get_begin,        ///< QueueCore::try_take_now: compares returned_epoch
  scan_begin,       ///< QueueCore::try_take_returned: reads it again
  scan_flight,      ///< ... loads a flight's word
  scan_take,        ///< ... swaps returned for reading
  scan_slot,        ///< Ring::claim_returned: loads a slot word
  scan_claim,       ///< ... swaps returned for reading
  get_hint,         ///< Ring::claim_for_reading: reads the hint
  get_look,         ///< ... loads a slot word
  get_claim,        ///< ... swaps ready for reading
  get_skip,         ///< ... swaps skip for the next lap
  read_first_half,  ///< copies the record out ...
  read_second_half,
  finish_slot,         ///< Ring::finish, or Ring::give_back
  keep_look,           ///< QueueView::copy_to_flight: loads a flight's word
  keep_claim,          ///< ... swaps free for writing
  keep_first_half,     ///< ... copies record and position
  keep_second_half,    ///< ...
  keep_hold,           ///< ... writing becomes reading
  keep_free_slot,      ///< ... Ring::finish
  work_first_half,     ///< uses the record of a flight
  work_second_half,    ///< ...
  finish_flight,       ///< QueueCore::done, or give_back
  raise_after_giving,  ///< QueueCore::give_back raises the epoch
};

/// The next step of the keeper, in recover_queue.
enum class KeeperAt : std::uint8_t {
  idle,
  gather,         ///< reads a flight's word and position
  look_slot,      ///< Ring::recover: loads a slot word
  change_slot,    ///< ... swaps it
  look_flight,    ///< recover_flights: loads a flight's word
  change_flight,  ///< ... swaps it
  raise_epoch,    ///< ++returned_epoch
};

enum class Life : std::uint8_t { alive, dead, recovered };

/// A producer or consumer.
struct Process {
  Life life = Life::alive;
  At at = At::put_begin;
  std::uint8_t cursor = 0;             ///< RingCursors::write or read
  std::uint8_t seen_epoch = 0;         ///< RingCursors::seen_epoch
  std::uint8_t epoch = 0;              ///< read before a search
  std::uint8_t index = 0;              ///< of a search, or of the flight being claimed
  std::uint8_t place = 0;              ///< index of the slot or flight that is held
  std::uint8_t position = 0;           ///< of the record held
  Word word;                           ///< last loaded word
  MessageNumber message = kNoMessage;  ///< message read
  std::uint8_t sent = 0;               ///< messages that a producer has published
};

struct Keeper {
  KeeperAt at = KeeperAt::idle;
  std::uint8_t dead = 0;  ///< process being recovered
  std::uint8_t index = 0;
  Word word;
  std::uint8_t positions = 0;  ///< bit set of positions that flights hold; there are fewer than eight
};

/// The history of a message. Not part of the ring; used to check its properties.
struct Fate {
  std::uint8_t is_published = 0;
  std::uint8_t position = 0xff;
  std::uint8_t deliveries = 0;  ///< started deliveries
  std::uint8_t allowed = 1;     ///< allowed deliveries: one, plus one for each holder that died or gave it back
  std::uint8_t completed = 0;   ///< deliveries finished by a consumer
};

/// A violation.
enum class Wrong : std::uint8_t {
  nothing,
  torn,
  phantom,
  duplicate,
  repeated_after_completion,
  out_of_order,
  key_changed,
  taken_from_the_living,
};

struct RingState {
  std::array<Place, kMostSlots> slots{};
  std::array<Place, kMostFlights> flights{};
  std::array<Process, kMostProcesses> processes{};
  std::array<Fate, kMostMessages> fates{};
  Keeper keeper;
  std::uint8_t epoch = 0;
  std::uint8_t tail_hint = 0;  ///< largest value ever stored; a read may return any smaller one
  std::uint8_t head_hint = 0;
  std::uint8_t deaths = 0;
  std::uint8_t given_back = 0;
  std::uint8_t abandoned = 0;
  Wrong wrong = Wrong::nothing;
  std::uint8_t claimed_by_first = 0;   ///< messages of the first producer claimed for reading
  std::uint8_t claimed_by_second = 0;  ///< same, of the second
};

}  // namespace drover::model
