// session/keeper/keeper.hpp: the keeper's events and connections, from its start to its end.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "ipc/registry/departure.hpp"
#include "session/keeper/life_mark.hpp"
#include "session/keeper/lifeline.hpp"
#include "session/keeper/poller.hpp"
#include "session/keeper/session_door.hpp"
#include "session/keeper/session_tables.hpp"
#include "session/wire/connection.hpp"
#include "session/wire/protocol.hpp"

namespace drover::session {

/// Settings of a keeper.
struct KeeperSettings {
  std::string name;                       ///< of the session; empty: the session ends with the application
  std::chrono::seconds idle_limit{3600};  ///< for a named session without participants; 0: unlimited
};

/// Runs one session: a single-threaded loop that only blocks waiting for events. No client can block or crash it:
/// requests are validated, sends never block, and a client that does not read is dropped.
///
/// 1. A participant is recovered when its pidfd reports its death or when it leaves, never because it is silent.
/// 2. Its number is reused only after recovery, which is done in pieces: requests of others are answered in between.
/// 3. An unnamed session ends when the application leaves or dies; then workers are killed.
class Keeper {
 public:
  /// Opens the session: locks the name and listens, or, without a name, connects the application. Throws `Errc::busy`
  /// if another keeper has the name. `starter` is a socket to the process that started the keeper.
  Keeper(KeeperSettings settings, Fd starter);
  ~Keeper() = default;
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// Reports to the starter and runs until the session has ended; then closes every connection.
  void run();

 private:
  // A connection; of a visitor until it joins.
  struct Client {
    Connection connection;
    std::uint64_t id = 0;
    Owner owner = kNobody;
    bool is_announced = false;  // counts as starting
    bool is_application = false;
    std::string announced_name;
  };

  // A participant that is being recovered, and its request to leave, if it made one.
  struct Leaving {
    ipc::Departure departure;
    Owner number = kNobody;
    std::uint64_t client = 0;
    std::optional<Reply> reply;
  };

  void greet();
  void invite_application();
  void watch_signals();
  [[nodiscard]] bool is_done() noexcept;
  [[nodiscard]] Deadline next_deadline();
  void note_idleness();

  void handle(PollKey key);
  void on_starter();
  void on_signal();
  void on_connection(std::uint64_t id);
  void on_process(std::uint64_t incarnation);
  void take_visitor(Fd socket);
  std::uint64_t add_client(Client client);
  void drop(std::uint64_t id);
  bool depart(Owner number, bool is_dead = false);
  bool work();
  void begin_end();
  void kill_workers();

  void check_owner(const Client& client, const Credentials& sender);
  void answer(std::uint64_t id, IncomingMessage& message);
  void send(std::uint64_t id, Outgoing outgoing);
  void take_back(const Client& client, const Reply& reply);
  [[nodiscard]] Outgoing perform(Client& client, const Request& request, IncomingMessage& message);
  [[nodiscard]] Outgoing join(Client& client, const Request& request, const Credentials& sender);
  [[nodiscard]] Outgoing invite(const Request& request);
  [[nodiscard]] Outgoing describe(const Request& request) const;
  [[nodiscard]] Outgoing end(const Client& client, const Request& request);

  const KeeperSettings settings_;
  Poller poller_;
  Fd starter_;
  Fd starter_pidfd_;
  Fd application_end_;  // until it is sent to the application
  Fd signals_;
  SessionTables tables_;
  ParticipantTable& participants_ = tables_.participants();
  ipc::ObjectTable& objects_ = tables_.objects();
  const LifeMark life_mark_{participants_.life().keeper};
  const Lifeline lifeline_;
  std::deque<Leaving> leaving_;
  std::map<std::uint64_t, Client> clients_;
  std::uint64_t last_client_ = 0;
  // Of a named session. Destroyed before the clients, so that the name is free when they see the end.
  std::optional<SessionDoor> door_;
  std::optional<Clock::time_point> idle_since_;
  std::optional<Deadline> end_deadline_;
  bool must_kill_workers_ = false;
};

}  // namespace drover::session
