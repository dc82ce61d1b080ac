// session/wire/protocol.hpp: the messages between participants and the keeper.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "drover/base/error.hpp"
#include "drover/ipc/membership.hpp"
#include "ipc/ledger/kept_entry.hpp"

namespace drover::session {

inline constexpr std::uint32_t kProtocolMagic = 0x52565244;  // "DRVR"
inline constexpr std::uint16_t kProtocolVersion = 2;
inline constexpr std::size_t kMostNameBytes = 63;  ///< of participants, labels and sessions

/// The types of requests. A connection belongs to a visitor until `join` succeeds.
enum class RequestType : std::uint16_t {
  hello = 1,  ///< not a request: the keeper's report to its starter
  join,       ///< become a participant
  create,     ///< create an object and open it
  open,       ///< open an object
  close,      ///< end an opening; has no reply
  invite,     ///< announce a participant
  deposit,    ///< deposit a slab
  fetch,      ///< get a deposited slab
  withdraw,   ///< remove a deposited slab
  list,       ///< describe the next deposited slab; open to visitors
  describe,   ///< describe the session; open to visitors
  leave,      ///< stop being a participant
  end,        ///< end the session; open to visitors
  file,       ///< get the file of an object
  keep,       ///< keep an entry under a name
  recall,     ///< get the entry of a name
  drop,       ///< drop the entry of a name; open to visitors
  kept,       ///< describe the next kept entry; open to visitors
};

inline constexpr RequestType kLastRequestType = RequestType::kept;

/// Whether the request has a reply.
[[nodiscard]] bool has_reply(RequestType type) noexcept;

/// "join", "create" and so on.
[[nodiscard]] const char* to_string(RequestType type) noexcept;

/// A request. Only the fields of its type are encoded; the others have defaults.
struct Request {
  RequestType type = RequestType::join;  ///< type
  std::uint64_t sequence = 0;            ///< returned with the reply
  ObjectSpec spec;                       ///< create; with the object's file if its kind has one
  ObjectHandle handle;                   ///< open, close, file
  std::uint64_t number = 0;  ///< join: start time of the process; deposit: bytes; fetch, withdraw: slab; list:
                             ///< previous slab; end: 1 to force
  std::string name;          ///< join, invite: of the participant; deposit: label
  ipc::KeptEntry kept;       ///< keep; recall, drop: its name; kept: previous name, empty for the first
};

/// Counts and sizes of a session.
struct SessionCounts {
  std::uint64_t objects = 0;       ///< shared objects
  std::uint64_t object_bytes = 0;  ///< of their memory files
  std::uint64_t slabs = 0;         ///< held by the keeper: deposited ones and files of objects
  std::uint64_t slab_bytes = 0;    ///< as declared
  std::uint64_t idle_limit_s = 0;  ///< seconds without participants until it ends; 0: never
};

/// A reply, possibly with a descriptor.
struct Reply {
  RequestType type = RequestType::join;  ///< of the request
  std::uint64_t sequence = 0;            ///< of the request
  std::optional<Errc> failure;           ///< the error, if the request failed
  std::string text;                      ///< of the error; join, describe: name of the session; list: label
  std::string remedy;                    ///< of the error
  Owner owner = kNobody;                 ///< join: number of the participant
  std::uint64_t number = 0;              ///< join: incarnation; deposit: slab; list: slab, or 0 after the last
  ObjectSpec spec;                       ///< create, open
  ObjectHandle handle;                   ///< create, open
  SessionCounts counts;                  ///< describe; list: size of the slab
  ipc::KeptEntry kept;  ///< recall: record and leases; kept: description, with an empty name after the last
};

/// Encode a message: a fixed part with zeros in unused fields, followed by the kept entry if the type has one. Cut
/// texts that are too long.
[[nodiscard]] std::string encode(const Request& request);
[[nodiscard]] std::string encode(const Reply& reply);

/// Decode untrusted bytes. Throw `Errc::corrupt` for a wrong length, magic, version, type or kind, an unterminated
/// text, or control characters in a name.
[[nodiscard]] Request parse_request(std::span<const std::byte> bytes);
[[nodiscard]] Reply parse_reply(std::span<const std::byte> bytes);

/// Sizes of the fixed parts.
extern const std::size_t request_bytes;
extern const std::size_t reply_bytes;
/// Size of the longest request.
extern const std::size_t most_request_bytes;

/// An empty reply to a request.
[[nodiscard]] inline Reply reply_to(const Request& request) {
  return {.type = request.type, .sequence = request.sequence};
}

/// A reply that carries an error.
[[nodiscard]] Reply failure_reply(const Request& request, const Error& error);

/// Whether a text is valid as the name of a participant or a label: 1 to kMostNameBytes, no control characters.
[[nodiscard]] bool is_display_name(const std::string& text) noexcept;

}  // namespace drover::session
