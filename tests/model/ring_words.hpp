// tests/model/ring_words.hpp: arithmetic of positions and words, for the sources of the model.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/ring_state.hpp"

namespace drover::model {

inline constexpr std::uint8_t kNobodyHere = 0;

/// The owner number of a process.
inline std::uint8_t owner_number(int process) { return static_cast<std::uint8_t>(process + 1); }

/// Ring::lap_of and Ring::slot.
inline std::uint8_t lap_at(int position, int capacity) { return static_cast<std::uint8_t>(position / capacity); }
inline Place& slot_at(RingState& state, int position, int capacity) {
  return state.slots[static_cast<std::size_t>(position % capacity)];
}

/// Ring::after.
inline std::uint8_t after(int position, int ahead, int capacity) {
  return static_cast<std::uint8_t>(position + 1 + (std::max(ahead, 1) - 1) * capacity);
}

/// Compare and swap.
inline bool replace(Word& word, const Word& expected, const Word& desired) {
  if (word != expected) return false;
  word = desired;
  return true;
}

inline Process& process_at(RingState& state, int process) {
  return state.processes[static_cast<std::size_t>(process)];
}
inline const Process& process_at(const RingState& state, int process) {
  return state.processes[static_cast<std::size_t>(process)];
}
inline Fate& fate_of(RingState& state, MessageNumber message) {
  return state.fates[static_cast<std::size_t>(message - 1)];
}

/// Keeps the first violation.
inline void note(RingState& state, Wrong wrong) {
  if (state.wrong == Wrong::nothing) state.wrong = wrong;
}

}  // namespace drover::model
