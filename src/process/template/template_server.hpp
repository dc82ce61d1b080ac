// process/template/template_server.hpp: what the process does that is a template.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// The descriptors of a template, under the numbers it finds them.
inline constexpr int kTemplateControl = 3;      ///< where orders come from
inline constexpr int kTemplateApplication = 4;  ///< a pidfd of the application

/// A child that was ordered. Its socket, which the template owns once it took it, carries how the child ended to the
/// application; src/process/spawn/remote_status.hpp has the messages.
class TemplateOrderTaken {
 public:
  /// What is private to the library.
  struct State;
  /// Made by TemplateServer.
  explicit TemplateOrderTaken(std::unique_ptr<State> state) noexcept;
  /// Takes over what `other` had.
  TemplateOrderTaken(TemplateOrderTaken&& other) noexcept;
  /// The same.
  TemplateOrderTaken& operator=(TemplateOrderTaken&& other) noexcept;
  ~TemplateOrderTaken();

  /// Which of TemplateCommand::starts it is.
  [[nodiscard]] std::size_t start() const noexcept;
  /// What comes after those.
  [[nodiscard]] std::vector<std::string> arguments() const;
  /// Its environment: "NAME=value".
  [[nodiscard]] const std::vector<std::string>& variables() const noexcept;

  /// Says that there will be no such child, and why.
  void refuse(std::string_view why);
  /// In the template, after the fork: the socket of the child. The caller owns it.
  [[nodiscard]] int take_socket();
  /// In the child, at once after the fork from process `parent`: makes everything hold that was asked for, and tells
  /// the application. All descriptors but those of the child are closed, whoever owned them; nobody may own one of
  /// them any more. The environment is empty then, for the caller to fill. Ends the process if something does not
  /// hold or nobody waits for it; the application then starts the child in the usual way.
  void become(pid_t parent);

 private:
  friend class TemplateServer;
  std::unique_ptr<State> state_;
};

/// The end of the control socket that the template has.
class TemplateServer {
 public:
  /// `control` stays the caller's. Reads where the kernel keeps the arguments and variables of this process, so that
  /// its children can show their own there.
  explicit TemplateServer(int control);

  /// Says that orders can come; `notes` are lines about what was left out.
  void say_ready(std::string_view notes) const;
  /// The next order; nothing if there is none now. Throws `Errc::peer_lost` if none will come any more.
  [[nodiscard]] std::optional<TemplateOrderTaken> take() const;

 private:
  int control_;
};

}  // namespace drover
