// session/keeper/keeper_loop.hpp: what a keeper does from its start to its end.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "drover/base/clock.hpp"
#include "drover/base/fd.hpp"
#include "ipc/registry/kept_table.hpp"
#include "ipc/registry/object_table.hpp"
#include "session/keeper/deposits.hpp"
#include "session/keeper/participant_table.hpp"
#include "session/keeper/poller.hpp"
#include "session/wire/connection.hpp"
#include "session/wire/protocol.hpp"
#include "session/wire/session_folder.hpp"

namespace drover {

/// How a keeper is to be.
struct KeeperSettings {
  std::string name;                       ///< of the session; empty: it ends with the application
  std::chrono::seconds idle_limit{3600};  ///< without participants; of a named session; 0: never
};

/// Keeps one session: a loop of one thread that waits for nothing but the next event. No client can hold it up or
/// bring it down: what a client sends is checked, sends never block, and a client that does not read is dropped.
///
/// 1. A participant is recovered when its pidfd says that it is dead, or when it leaves; never because it is silent.
/// 2. Its number is free only after that.
/// 3. The session without a name ends when the application leaves or is dead; then workers are killed.
class Keeper {
 public:
  /// Opens the session: with a name it takes the name's lock and listens, else it makes the application's connection.
  /// Throws `Errc::busy` if another keeper has the name. `starter` leads to the process that asked for the session.
  Keeper(KeeperSettings settings, Fd starter);
  /// Removes the files of a name whose session did not end in order.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// Tells the starter and keeps the session until it has ended; then every connection is closed.
  void run();

 private:
  // One connection: a visitor's until it joins.
  struct Client {
    Connection connection;
    std::uint64_t id = 0;
    Owner owner = kNobody;
    bool is_announced = false;  // counts as starting
    bool is_application = false;
    std::string announced_name;
  };
  struct Outgoing {
    Reply reply;
    int fd = -1;  // borrowed
    Fd owned_fd;
    bool is_last = false;  // the connection ends with it
  };

  void greet();
  void open_name();
  void give_up_name() noexcept;
  void invite_application();
  void watch_signals();
  [[nodiscard]] bool is_done() noexcept;
  [[nodiscard]] Deadline next_deadline();
  void note_idleness();

  void handle(PollKey key);
  void on_starter();
  void on_signal();
  void on_listener();
  void on_connection(std::uint64_t id);
  void on_process(std::uint64_t incarnation);
  void take_visitor(Fd socket);
  void refuse_for_lack_of_files();
  void stop_listening();
  void listen_again();
  std::uint64_t add_client(Client client);
  void drop(std::uint64_t id);
  void depart(Owner number, bool is_dead = false);
  void begin_end();
  void kill_workers();

  // Requests; keeper_requests.cpp.
  void check_owner(const Client& client, const Credentials& sender);
  void answer(std::uint64_t id, IncomingMessage& message);
  void send(std::uint64_t id, Outgoing outgoing);
  void take_back(const Client& client, const Reply& reply);
  [[nodiscard]] Outgoing perform(Client& client, const Request& request, IncomingMessage& message);
  [[nodiscard]] Outgoing perform_for(Participant& participant, const Request& request, IncomingMessage& message);
  [[nodiscard]] Outgoing join(Client& client, const Request& request, const Credentials& sender);
  [[nodiscard]] Outgoing create(Participant& participant, const Request& request, IncomingMessage& message);
  [[nodiscard]] Outgoing hand_over(Participant& participant, const Request& request, const ObjectHandle& handle,
                                   const ObjectSpec& spec);
  static void let_go(Participant& participant, std::uint32_t number);
  [[nodiscard]] Outgoing invite(const Request& request);
  [[nodiscard]] Outgoing deposit(const Request& request, IncomingMessage& message);
  [[nodiscard]] Outgoing list(const Request& request) const;
  [[nodiscard]] Outgoing describe(const Request& request) const;
  [[nodiscard]] Outgoing keep(const Participant& participant, const Request& request);
  [[nodiscard]] Outgoing recall(const Request& request) const;
  [[nodiscard]] Outgoing drop_kept(const Request& request);
  [[nodiscard]] Outgoing next_kept(const Request& request) const;
  [[nodiscard]] Outgoing end(const Client& client, const Request& request);

  const KeeperSettings settings_;
  Poller poller_;
  Fd starter_;
  Fd starter_pidfd_;
  Fd application_end_;  // until it is handed to the application
  Fd signals_;
  Fd spare_;  // given up for a moment to tell a visitor that there are too many open files
  std::optional<SessionFolder> folder_;
  Fd lock_;
  Fd listener_;
  ParticipantTable participants_;
  ObjectTable objects_;
  KeptTable kept_{objects_};
  Deposits deposits_;
  std::map<std::uint64_t, Client> clients_;
  std::uint64_t last_client_ = 0;
  std::optional<Clock::time_point> idle_since_;
  std::optional<Deadline> listen_again_;  // not listening until then
  std::optional<Deadline> end_deadline_;
  bool must_kill_workers_ = false;
};

}  // namespace drover
