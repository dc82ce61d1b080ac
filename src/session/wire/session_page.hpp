// session/wire/session_page.hpp: the participants of a session, published by the keeper in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "drover/base/fd.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/membership.hpp"
#include "drover/session/session.hpp"

namespace drover::session {

inline constexpr std::uint32_t kPageMagic = 0x47505244;  // "DRPG"
inline constexpr std::uint16_t kPageVersion = 2;

/// A participant. The words of `name` hold its zero-padded bytes.
///
/// 1. Only the keeper writes; it makes `version` odd before and even after.
/// 2. A read is valid if `version` was even and the same before and after. All words are atomic, so an invalid read
///    is not a data race.
struct alignas(64) ParticipantSlot {
  std::atomic<std::uint32_t> version;
  std::atomic<std::uint32_t> state;  ///< a ParticipantState, or 0 if the slot is free
  std::atomic<std::uint32_t> pid;
  std::atomic<std::uint32_t> is_worker;
  std::atomic<std::uint64_t> incarnation;
  std::atomic<std::uint64_t> start_time;
  std::array<std::atomic<std::uint64_t>, 8> name;
};

/// The whole page, without pointers. The keeper writes it and never relies on reading it back.
struct SessionPage {
  std::uint32_t magic;       ///< kPageMagic
  std::uint16_t version;     ///< kPageVersion
  std::uint16_t slot_bytes;  ///< sizeof(ParticipantSlot)
  std::int64_t started_ns;   ///< on the monotonic clock
  drover::detail::SessionLife life;
  /// All counts in one word, so that a joining participant is always counted as starting or as present: present in
  /// the low 12 bits, starting in the next 12, departed above.
  std::atomic<std::uint64_t> population;
  std::array<ParticipantSlot, kMaxParticipants + 1> slots;  ///< by number; the first is unused
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Convert the counts to one word and back.
[[nodiscard]] std::uint64_t pack(const Population& population) noexcept;
[[nodiscard]] Population unpack(std::uint64_t word) noexcept;

/// A read-only mapping of the page.
class PageView {
 public:
  /// Empty.
  PageView() noexcept = default;
  /// Maps the page and checks it. Throws `Errc::corrupt` if the file is not a page or of another version.
  explicit PageView(const Fd& file);

  /// The participants by number. Skips a slot that the keeper was writing when it died.
  [[nodiscard]] std::vector<ParticipantInfo> participants() const;
  /// The numbers of participants.
  [[nodiscard]] Population population() const noexcept;
  /// Whether the keeper has begun to end the session.
  [[nodiscard]] bool is_ending() const noexcept;
  /// Whether the session is over, and why.
  [[nodiscard]] const drover::detail::SessionLife& life() const noexcept { return page().life; }
  /// Whether a participant has this number.
  [[nodiscard]] bool has_participant(Owner number) const noexcept;
  /// Time since the session started.
  [[nodiscard]] std::chrono::nanoseconds age() const noexcept;

 private:
  [[nodiscard]] const SessionPage& page() const noexcept {
    return *reinterpret_cast<const SessionPage*>(memory_.data());
  }

  Mapping memory_;
};

}  // namespace drover::session
