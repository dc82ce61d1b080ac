// session/keeper/session_tables.hpp: everything a session holds, and the requests that only read or change it.
#pragma once

#include <string>

#include "drover/base/fd.hpp"
#include "ipc/registry/kept_table.hpp"
#include "ipc/registry/object_table.hpp"
#include "session/keeper/deposits.hpp"
#include "session/keeper/participant_table.hpp"
#include "session/wire/connection.hpp"
#include "session/wire/protocol.hpp"

namespace drover::session {

/// A reply and the descriptor that goes with it: a borrowed one, an owned one, or none. A worker that joins also gets
/// a lifeline.
struct Outgoing {
  Reply reply;
  int fd = -1;  ///< borrowed
  Fd owned_fd;
  bool is_last = false;   ///< the connection ends with it
  bool is_later = false;  ///< not now: it is sent when the work is done
  Fd lifeline;            ///< see `Lifeline`
};

/// Participants, shared objects, kept tensors and deposited slabs of one session. Knows nothing of connections. Lives
/// in the keeper. Not synchronised.
class SessionTables {
 public:
  SessionTables() = default;
  SessionTables(const SessionTables&) = delete;
  SessionTables& operator=(const SessionTables&) = delete;

  [[nodiscard]] ParticipantTable& participants() noexcept { return participants_; }
  [[nodiscard]] ipc::ObjectTable& objects() noexcept { return objects_; }

  /// Performs a request that a participant may make; throws `Errc::corrupt` for any other. Files of the message that
  /// the request does not take stay in it.
  [[nodiscard]] Outgoing perform(Participant& participant, const Request& request, IncomingMessage& message);
  /// Reverses what `perform` did for this reply, which could not be sent.
  void undo(Participant& participant, const Reply& reply);

  /// The deposited slab with the next higher number.
  [[nodiscard]] Outgoing list(const Request& request) const;
  /// The counts and the page of participants.
  [[nodiscard]] Outgoing describe(const Request& request) const;
  [[nodiscard]] Outgoing drop_kept(const Request& request);
  /// The kept entry whose name follows the one in the request.
  [[nodiscard]] Outgoing next_kept(const Request& request) const;

 private:
  [[nodiscard]] Outgoing create(Participant& participant, const Request& request, IncomingMessage& message);
  [[nodiscard]] Outgoing hand_over(Participant& participant, const Request& request, const ObjectHandle& handle,
                                   const ObjectSpec& spec);
  static void release_file(Participant& participant, std::uint32_t number);
  [[nodiscard]] Outgoing deposit(const Request& request, IncomingMessage& message);
  [[nodiscard]] Outgoing recall(const Request& request) const;

  ParticipantTable participants_;
  ipc::ObjectTable objects_;
  ipc::KeptTable kept_{objects_};
  Deposits deposits_;
};

}  // namespace drover::session
