// process/template/template_server.hpp: the template's side: takes orders and turns forked processes into children.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drover/base/clock.hpp"

namespace drover::process {

/// Descriptor numbers in a template.
inline constexpr int kTemplateControl = 3;      ///< source of orders
inline constexpr int kTemplateApplication = 4;  ///< a pidfd of the application

/// An order for a child. Its socket, which the template owns once it has taken it, reports the end of the child to
/// the application; process/spawn/remote_status.hpp has the messages.
class TemplateOrderTaken {
 public:
  struct State;
  /// Made by TemplateServer.
  explicit TemplateOrderTaken(std::unique_ptr<State> state) noexcept;
  TemplateOrderTaken(TemplateOrderTaken&& other) noexcept;
  TemplateOrderTaken& operator=(TemplateOrderTaken&& other) noexcept;
  ~TemplateOrderTaken();

  /// The index in TemplateCommand::starts.
  [[nodiscard]] std::size_t start() const noexcept;
  /// The arguments after those.
  [[nodiscard]] std::vector<std::string> arguments() const;
  /// Its environment: "NAME=value".
  [[nodiscard]] const std::vector<std::string>& variables() const noexcept;

  /// Declines the order with a reason.
  void refuse(std::string_view why);
  /// Hands the order to a process that waits for one on the other end of `socket`, with a TemplateServer of its own.
  /// False if it cannot be sent. This process keeps the socket of the child, to be taken as after a fork.
  [[nodiscard]] bool forward(int socket) const;
  /// In the template, after the fork: takes the socket of the child, which the caller then owns.
  [[nodiscard]] int take_socket();
  /// In the child, right after the fork from process `parent`: puts the ordered options in force and reports to the
  /// application. Closes all descriptors except those of the child, so no object may own one any more. Clears the
  /// environment for the caller to fill. Ends the process if an option cannot be put in force or the application no
  /// longer waits; the application then clones the child.
  void become(pid_t parent);

 private:
  friend class TemplateServer;
  std::unique_ptr<State> state_;
};

/// The template's end of the control socket.
class TemplateServer {
 public:
  /// Does not own `control`. Finds where the kernel stores the arguments and variables of this process, so that
  /// children can show their own there.
  explicit TemplateServer(int control);

  /// The next text of RunningTemplate::tell; nullopt at the deadline. Throws `Errc::peer_lost` if no more will come,
  /// and ends this process when the application ends.
  [[nodiscard]] std::optional<std::string> await_word(Deadline deadline) const;
  /// Reports that the template is ready; `notes` are lines about what was left out.
  void say_ready(std::string_view notes) const;
  /// The next order; nullopt if none is pending. Throws `Errc::peer_lost` if no more will come.
  [[nodiscard]] std::optional<TemplateOrderTaken> take() const;

 private:
  int control_;
};

}  // namespace drover::process
