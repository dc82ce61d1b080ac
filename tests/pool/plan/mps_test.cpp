// The MPS daemon of a pool, with a shell script in place of NVIDIA's program.
#include "pool/plan/mps.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/peer_group.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace drover::test {
namespace {

namespace fs = std::filesystem;

// Imitates the daemon with a server. It logs to files beside it.
constexpr const char* kDaemon = R"script(#!/bin/sh
here=$(dirname "$0")
pipe=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -f ]; then
  env | grep ^CUDA_ >"$here/seen"
  tail -f /dev/null &
  echo $! >"$here/server"
  echo $$ >"$here/daemon"
  cp "$here/daemon" "$pipe/new"
  mv "$pipe/new" "$pipe/nvidia-cuda-mps-control.pid"
  while [ ! -e "$pipe/quit" ]; do sleep 0.02; done
  kill "$(cat "$here/server")"
  exit 0
fi
read -r line
echo "$line" >"$here/asked"
)script";
constexpr const char* kObeys = "touch \"$pipe/quit\"\n";

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// The control program of one test.
class StandIn {
 public:
  explicit StandIn(const std::string& script) {
    std::ofstream(path()) << script;
    ::chmod(path().c_str(), S_IRWXU);
  }

  [[nodiscard]] std::string path() const { return (folder_.path() / "control").string(); }
  [[nodiscard]] std::string text(const char* name) const { return text_of(folder_.path() / name); }
  [[nodiscard]] pid_t pid(const char* name) const { return std::stoi(text(name)); }
  [[nodiscard]] pool::MpsOptions options() const {
    pool::MpsOptions options;
    options.control = path();
    return options;
  }

 private:
  TemporaryFolder folder_;
};

// The supervisor ends the test if this never happens.
template <class Condition>
void wait_until(const Condition& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

bool is_gone(pid_t pid) { return ::kill(pid, 0) != 0; }

TEST(Mps, the_daemon_quits_when_its_owner_is_destroyed) {
  const StandIn standin(std::string(kDaemon) + kObeys);
  auto mps = std::make_unique<pool::Mps>(standin.options());
  const fs::path folder = mps->folder();
  EXPECT_FALSE(is_gone(standin.pid("daemon")));
  EXPECT_FALSE(is_gone(standin.pid("server")));
  EXPECT_TRUE(fs::is_directory(folder / "log"));
  EXPECT_NE(mps->guard(), 0);
  mps.reset();
  EXPECT_TRUE(is_gone(standin.pid("daemon")));
  wait_until([&] { return is_gone(standin.pid("server")); });
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_EQ(standin.text("asked"), "quit -t 1\n");
}

TEST(Mps, the_directory_is_private_to_its_owner) {
  const StandIn standin(std::string(kDaemon) + kObeys);
  const pool::Mps mps(standin.options());
  struct stat facts{};
  ASSERT_EQ(::stat(mps.folder().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0700U);
}

TEST(Mps, the_daemon_gets_its_gpus_and_workers_its_address) {
  const ScopedEnvironment other("CUDA_VISIBLE_DEVICES", "7");
  const StandIn standin(std::string(kDaemon) + kObeys);
  auto options = standin.options();
  options.devices = {"GPU-1", "GPU-2"};
  options.percentage = 30;
  const pool::Mps mps(options);
  const auto pipe = (mps.folder() / "pipe").string();
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"CUDA_MPS_PIPE_DIRECTORY", pipe},
      {"CUDA_MPS_LOG_DIRECTORY", (mps.folder() / "log").string()},
      {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30"}};
  EXPECT_EQ(mps.environment(), expected);
  const auto seen = standin.text("seen");
  EXPECT_NE(seen.find("CUDA_VISIBLE_DEVICES=GPU-1,GPU-2\n"), std::string::npos) << seen;
  EXPECT_NE(seen.find("CUDA_MPS_PIPE_DIRECTORY=" + pipe + "\n"), std::string::npos) << seen;
  EXPECT_NE(seen.find("CUDA_DEVICE_ORDER=PCI_BUS_ID\n"), std::string::npos) << seen;
  EXPECT_EQ(seen.find("PERCENTAGE"), std::string::npos) << "it would bind the daemon's other clients too";
}

TEST(Mps, a_daemon_that_does_not_quit_is_killed_with_its_server) {
  const StandIn standin(kDaemon);
  auto options = standin.options();
  options.grace = std::chrono::milliseconds(300);
  auto mps = std::make_unique<pool::Mps>(options);
  const fs::path folder = mps->folder();
  mps.reset();
  wait_until([&] { return is_gone(standin.pid("daemon")) && is_gone(standin.pid("server")); });
  EXPECT_FALSE(fs::exists(folder));
}

TEST(Mps, two_daemons_do_not_conflict) {
  const StandIn one(std::string(kDaemon) + kObeys);
  const StandIn two(std::string(kDaemon) + kObeys);
  const pool::Mps first(one.options());
  const pool::Mps second(two.options());
  EXPECT_NE(first.folder(), second.folder());
  EXPECT_NE(one.pid("daemon"), two.pid("daemon"));
}

TEST(Mps, a_copy_in_a_forked_child_ends_nothing) {
  const StandIn standin(std::string(kDaemon) + kObeys);
  auto mps = std::make_unique<pool::Mps>(standin.options());
  const pid_t child = ::fork();
  if (child == 0) {
    mps.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(is_gone(standin.pid("daemon")));
  EXPECT_TRUE(fs::exists(mps->folder()));
  EXPECT_TRUE(standin.text("asked").empty());
}

TEST(Mps, a_temporary_directory_too_long_for_sockets_is_not_used) {
  const TemporaryFolder base;
  const auto deep = base.path() / std::string(100, 'x');
  fs::create_directory(deep);
  const StandIn standin(std::string(kDaemon) + kObeys);
  const ScopedEnvironment temporary("TMPDIR", deep.string());
  const pool::Mps mps(standin.options());
  EXPECT_EQ(mps.folder().parent_path(), "/tmp");
}

TEST(Mps, the_program_is_found_in_path) {
  const StandIn standin(std::string(kDaemon) + kObeys);
  const fs::path place = standin.path();
  const ScopedEnvironment path("PATH", "/no/such/folder::" + place.parent_path().string() + ":/usr/bin:/bin");
  auto options = standin.options();
  options.control = "control";
  const pool::Mps mps(options);
  EXPECT_FALSE(is_gone(standin.pid("daemon")));
}

TEST(Mps, a_missing_program_is_an_error_with_a_remedy) {
  pool::MpsOptions options;
  for (const char* const name : {"/no/such/control", "no-such-control"}) {
    options.control = name;
    expect_error(Errc::not_found, [&] { const pool::Mps mps(options); },
                 {std::string("'") + name + "'", "not found", "PATH", "do not set `mps`"});
  }
}

TEST(Mps, a_conflicting_daemon_is_reported) {
  const StandIn standin("#!/bin/sh\necho 'An instance of this daemon is already running' >&2\nexit 1\n");
  expect_error(Errc::busy, [&] { const pool::Mps mps(standin.options()); },
               {"exited with status 1", "already running", "echo quit | nvidia-cuda-mps-control"});
}

TEST(Mps, a_failing_daemon_is_reported_with_its_output) {
  const StandIn standin("#!/bin/sh\necho 'compute mode forbids it'\nexit 3\n");
  expect_error(Errc::unsupported, [&] { const pool::Mps mps(standin.options()); },
               {"exited with status 3", "it printed: compute mode forbids it", "nvidia-smi -q -d COMPUTE"});
  const StandIn silent("#!/bin/sh\nkill -SEGV $$\n");
  expect_error(Errc::unsupported, [&] { const pool::Mps mps(silent.options()); }, {"before it was ready"});
}

TEST(Mps, only_the_end_of_a_long_output_is_reported) {
  const StandIn standin("#!/bin/sh\necho first; yes filler | head -n 500; echo last; exit 3\n");
  try {
    const pool::Mps mps(standin.options());
    ADD_FAILURE() << "the daemon ended";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("last"), std::string::npos);
    EXPECT_EQ(text.find("first"), std::string::npos);
  }
}

TEST(Mps, a_daemon_that_never_becomes_ready_is_killed) {
  const StandIn standin("#!/bin/sh\necho waiting for a GPU\necho $$ >\"${0%/*}/daemon\"\ntail -f /dev/null\n");
  auto options = standin.options();
  options.grace = std::chrono::milliseconds(200);
  // On a slow machine the first patience may end before the first output.
  for (options.patience = std::chrono::milliseconds(100); standin.text("daemon").empty(); options.patience *= 2) {
    expect_error(Errc::timed_out, [&] { const pool::Mps mps(options); },
                 {fmt::format("not ready after {} ms", options.patience.count()), "nvidia-smi"});
  }
  options.patience = std::max(options.patience, std::chrono::milliseconds(2000));
  expect_error(Errc::timed_out, [&] { const pool::Mps mps(options); }, {"it printed: waiting for a GPU"});
  wait_until([&] { return is_gone(standin.pid("daemon")); });
}

TEST(Mps, failing_to_make_the_directory_is_reported) {
  const StandIn standin(kDaemon);
  const FaultSeam fail("mkdtemp", EACCES);
  expect_error(Errc::permission_denied, [&] { const pool::Mps mps(standin.options()); }, {"mkdtemp", "drover-mps-"});
}

TEST(Mps, a_directory_that_cannot_be_filled_is_removed) {
  const StandIn standin(kDaemon);
  const TemporaryFolder place;
  const ScopedEnvironment temporary("TMPDIR", place.path().string());
  const FaultSeam fail("mkdir", ENOSPC);
  EXPECT_THROW(const pool::Mps mps(standin.options()), Error);
  EXPECT_TRUE(std::filesystem::is_empty(place.path()));
}

}  // namespace

DROVER_PEER_BODY(owner_of_a_daemon) {
  pool::MpsOptions options;
  options.control = peer.parameter("control");
  options.grace = std::chrono::milliseconds(500);
  const pool::Mps mps(options);
  static_cast<void>(peer.channel().send(mps.folder().string(), {}, Deadline::never()));
  peer.reach("owns it");
}

namespace {

class MpsOwner : public testing::TestWithParam<bool> {};

TEST_P(MpsOwner, a_killed_owner_leaves_no_daemon_server_or_directory) {
  const StandIn standin(GetParam() ? std::string(kDaemon) + kObeys : std::string(kDaemon));
  PeerGroup peers("owner_of_a_daemon", {.mode = PeerMode::processes, .size = 1}, {{"control", standin.path()}});
  peers.hold_at(0, "owns it");
  peers.start();
  const fs::path folder = peers.receive_text(0);
  peers.wait_until_held(0, "owns it");
  const pid_t daemon = standin.pid("daemon");
  EXPECT_FALSE(is_gone(daemon));
  peers.kill(0);
  static_cast<void>(peers.wait(Deadline::never()));
  wait_until([&] { return is_gone(daemon) && is_gone(standin.pid("server")) && !fs::exists(folder); });
}

INSTANTIATE_TEST_SUITE_P(Daemon, MpsOwner, testing::Bool(), [](const testing::TestParamInfo<bool>& obeys) {
  return obeys.param ? "that_quits" : "that_must_be_killed";
});

}  // namespace
}  // namespace drover::test
