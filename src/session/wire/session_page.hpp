// session/wire/session_page.hpp: the participants of a session, as the keeper shows them to all in shared memory.
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

namespace drover {

inline constexpr std::uint32_t kPageMagic = 0x47505244;  // "DRPG"
inline constexpr std::uint16_t kPageVersion = 1;

/// One participant. Words of `name` hold its bytes, zero at the end.
///
/// 1. The keeper alone writes; before it does `version` becomes odd, afterwards even again.
/// 2. A reader believes what it read if `version` was even and the same before and after. All words are atomic, so a
///    read that is thrown away is no data race.
struct alignas(64) ParticipantSlot {
  std::atomic<std::uint32_t> version;
  std::atomic<std::uint32_t> state;  ///< a ParticipantState, or 0 for a free slot
  std::atomic<std::uint32_t> pid;
  std::atomic<std::uint32_t> is_worker;
  std::atomic<std::uint64_t> incarnation;
  std::atomic<std::uint64_t> start_time;
  std::array<std::atomic<std::uint64_t>, 8> name;
};

/// How the session is.
enum class SessionPhase : std::uint32_t {
  running = 1,
  ending = 2,
};

/// The whole page; it has no pointers. The keeper writes, and believes nothing that it reads back.
struct SessionPage {
  std::uint32_t magic;       ///< kPageMagic
  std::uint16_t version;     ///< kPageVersion
  std::uint16_t slot_bytes;  ///< sizeof(ParticipantSlot)
  std::int64_t started_ns;   ///< on the monotonic clock
  std::atomic<SessionPhase> phase;
  /// All counts in one word, so that nobody sees a participant neither on its way nor there: present in the low 12
  /// bits, starting in the next 12, departed above.
  std::atomic<std::uint64_t> population;
  std::array<ParticipantSlot, kMaxParticipants + 1> slots;  ///< by number; the first is not used
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<SessionPhase>::is_always_lock_free);

/// The counts as one word and back.
[[nodiscard]] std::uint64_t pack(const Population& population) noexcept;
[[nodiscard]] Population unpack(std::uint64_t word) noexcept;

/// A reader's view of the page: mapped so that this process cannot write it.
class PageView {
 public:
  /// Empty; usable for nothing.
  PageView() noexcept = default;
  /// Maps the page and checks it. Throws `Errc::corrupt` if the file is none, or of another version.
  explicit PageView(const Fd& file);

  /// Who takes part, by number. A slot that the keeper died over is left out.
  [[nodiscard]] std::vector<ParticipantInfo> participants() const;
  /// The counts.
  [[nodiscard]] Population population() const noexcept;
  /// Whether the keeper has begun to end the session.
  [[nodiscard]] bool is_ending() const noexcept;
  /// Since the session began.
  [[nodiscard]] std::chrono::nanoseconds age() const noexcept;

 private:
  [[nodiscard]] const SessionPage& page() const noexcept {
    return *reinterpret_cast<const SessionPage*>(memory_.data());
  }

  Mapping memory_;
};

}  // namespace drover
