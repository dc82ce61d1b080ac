// session/wire/protocol.hpp: what participants and the keeper say to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "drover/base/errc.hpp"
#include "drover/base/error.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/ledger/kept_entry.hpp"

namespace drover {

inline constexpr std::uint32_t kProtocolMagic = 0x52565244;  // "DRVR"
inline constexpr std::uint16_t kProtocolVersion = 2;
inline constexpr std::size_t kMostNameBytes = 63;  ///< of a participant, a label, a session

/// What is asked for. A connection begins as a visitor's; `join` makes it a participant's.
enum class RequestType : std::uint16_t {
  hello = 1,  ///< never asked: the keeper's first word to who started it
  join,       ///< take part
  create,     ///< make an object and open it
  open,       ///< open an object
  close,      ///< end an opening; has no reply
  invite,     ///< announce one more participant
  deposit,    ///< give a slab to hold
  fetch,      ///< get a slab
  withdraw,   ///< let go of a slab
  list,       ///< say what is known of the next slab; visitors may
  describe,   ///< say how the session is; visitors may
  leave,      ///< take part no longer
  end,        ///< end the session; visitors may
  file,       ///< get the file of an object
  keep,       ///< hold leases under a name
  recall,     ///< say what is kept under a name
  drop,       ///< end what is kept under a name; visitors may
  kept,       ///< say what is known of the next that is kept; visitors may
};

inline constexpr RequestType kLastRequestType = RequestType::kept;

/// Whether the keeper answers it.
[[nodiscard]] bool has_reply(RequestType type) noexcept;

/// "join", "create" and so on, for messages.
[[nodiscard]] const char* to_string(RequestType type) noexcept;

/// One request. Only the fields that its type needs travel; the others keep their defaults.
struct Request {
  RequestType type = RequestType::join;  ///< what is asked for
  std::uint64_t sequence = 0;            ///< comes back with the reply
  ObjectSpec spec;                       ///< create; the object's file comes along if its kind has one
  ObjectHandle handle;                   ///< open, close, file
  std::uint64_t number = 0;  ///< join: start time of the process; deposit: bytes; fetch, withdraw: slab; list: the
                             ///< slab before; end: 1 by force
  std::string name;          ///< join, invite: the participant's; deposit: a label; at most kMostNameBytes
  KeptEntry kept;            ///< keep; recall, drop: its name; kept: the name before, empty for the first
};

/// How a session is, in numbers.
struct SessionCounts {
  std::uint64_t objects = 0;       ///< shared objects
  std::uint64_t object_bytes = 0;  ///< of their memory files
  std::uint64_t slabs = 0;         ///< in the keeper's hands: deposited ones, and files of objects
  std::uint64_t slab_bytes = 0;    ///< as their makers said
  std::uint64_t idle_limit_s = 0;  ///< seconds without participants after which it ends; 0 never
};

/// One reply. A descriptor may come with it.
struct Reply {
  RequestType type = RequestType::join;  ///< of the request
  std::uint64_t sequence = 0;            ///< of the request
  std::optional<Errc> failure;           ///< why nothing was done; text and remedy say more
  std::string text;                      ///< of a failure; join, describe: the session's name; list: the label
  std::string remedy;                    ///< of a failure
  Owner owner = kNobody;                 ///< join: the participant's number
  std::uint64_t number = 0;              ///< join: incarnation; deposit: slab; list: slab, or 0 after the last
  ObjectSpec spec;                       ///< create, open
  ObjectHandle handle;                   ///< create, open
  SessionCounts counts;                  ///< describe; list: bytes of the one slab
  KeptEntry kept;                        ///< recall: record and leases; kept: the rest, without a name after the last
};

/// As bytes of fixed length, zero where nothing is said, and behind them what is kept where the type speaks of that.
/// Texts that are too long are cut.
[[nodiscard]] std::string encode(const Request& request);
[[nodiscard]] std::string encode(const Reply& reply);

/// Reads what came from the other side and trusts nothing in it: throws `Errc::corrupt` for a wrong length, magic,
/// version, type or kind, a text without end, or control characters in a name. Pure functions.
[[nodiscard]] Request parse_request(std::span<const std::byte> bytes);
[[nodiscard]] Reply parse_reply(std::span<const std::byte> bytes);

/// Lengths of the encoded forms, without what is kept.
extern const std::size_t request_bytes;
extern const std::size_t reply_bytes;
/// Of the longest request.
extern const std::size_t most_request_bytes;

/// An empty reply to a request.
[[nodiscard]] inline Reply reply_to(const Request& request) {
  return {.type = request.type, .sequence = request.sequence};
}

/// The reply that carries an error back to who asked.
[[nodiscard]] Reply failure_reply(const Request& request, const Error& error);

/// Whether a text can be the name of a participant or a label: 1 to kMostNameBytes, no control characters.
[[nodiscard]] bool is_display_name(const std::string& text) noexcept;

}  // namespace drover
