#include "session/client/session_state.hpp"

#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "session/keeper/participant_table.hpp"
#include "support/expect_error.hpp"

namespace drover::session {
namespace {

using namespace std::chrono_literals;

constexpr ObjectSpec kEventSpec{.kind = ObjectKind::event, .parameters = {}};

// A reply of the keeper; a descriptor of -1 sends none, an empty text closes the connection.
struct Said {
  std::string bytes;
  int fd = -1;
};

Said say(const Reply& reply, int fd = -1) { return {.bytes = encode(reply), .fd = fd}; }

// The keeper's end of the connection: answers a join correctly, and other requests as the test specifies.
class FakeKeeper {
 public:
  using Answering = std::function<Said(const Request&)>;

  explicit FakeKeeper(Answering answering) : FakeKeeper(std::move(answering), Channel::make_pair()) {}
  ~FakeKeeper() { thread_.join(); }
  FakeKeeper(const FakeKeeper&) = delete;
  FakeKeeper& operator=(const FakeKeeper&) = delete;

  // Every request has been answered once the participant has ended.
  [[nodiscard]] std::shared_ptr<SessionState> join() {
    return std::make_shared<SessionState>(std::move(connection_), "test", 20s);
  }
  // The requests without a reply, once the participant has ended.
  [[nodiscard]] const std::vector<Request>& without_reply() const { return without_reply_; }
  void wait() {
    connection_.reset();
    if (thread_.joinable()) thread_.join();
    thread_ = std::thread([] {});
  }

 private:
  FakeKeeper(Answering answering, std::pair<Channel, Channel> ends)
      : answering_(std::move(answering)),
        channel_(std::move(ends.first)),
        connection_(::dup(ends.second.fd())),
        thread_([this] { run(); }) {}

  void run() {
    ChannelMessage message;
    while (channel_.receive(message, Deadline::never()) == ReceiveResult::message) {
      const Request request = parse_request(std::as_bytes(std::span(message.bytes.data(), message.bytes.size())));
      if (!has_reply(request.type)) {
        without_reply_.push_back(request);
        continue;
      }
      const Said said = answer(request);
      if (said.bytes.empty()) break;
      channel_.send(said.bytes, {&said.fd, said.fd < 0 ? 0U : 1U});
    }
    channel_ = Channel(Fd{});
  }

  Said answer(const Request& request) {
    if (request.type == RequestType::leave) return say({.type = request.type, .sequence = request.sequence});
    if (request.type != RequestType::join) return answering_(request);
    Reply reply{.type = request.type, .sequence = request.sequence};
    reply.owner = 7;
    reply.number = 1;
    return say(reply, participants_.page_file().get());
  }

  Answering answering_;
  ParticipantTable participants_;
  Channel channel_;
  Fd connection_;
  std::vector<Request> without_reply_;
  std::thread thread_;
};

TEST(SessionState, error_of_the_keeper_is_thrown) {
  FakeKeeper keeper([](const Request& request) {
    return say(failure_reply(request, Error(Errc::not_found, "no such thing", "make one")));
  });
  const auto state = keeper.join();
  EXPECT_EQ(state->self(), 7);
  test::expect_error(Errc::not_found, [&] { static_cast<void>(state->create(kEventSpec)); },
                     {"no such thing", "make one"});
}

TEST(SessionState, keeper_that_hangs_up_is_lost) {
  FakeKeeper keeper([](const Request&) { return Said{}; });
  const auto state = keeper.join();
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(state->create(kEventSpec)); },
                     {"the keeper (process " + std::to_string(::getpid()) + ")", "has dropped its connection"});
  test::expect_error(Errc::peer_lost, [&] { state->check(); }, {"is alive"});
}

TEST(SessionState, answer_that_is_none_is_corrupt) {
  int round = 0;
  FakeKeeper keeper([&](const Request& request) {
    Reply reply = reply_to(request);
    switch (round++) {
      case 0: return Said{.bytes = "hello"};
      case 1: reply.sequence += 1; break;
      default: reply.type = RequestType::fetch; break;
    }
    return say(reply);
  });
  const auto state = keeper.join();
  for (int i = 0; i < 3; ++i) {
    test::expect_error(Errc::corrupt, [&] { static_cast<void>(state->ask({.type = RequestType::describe})); });
  }
}

TEST(SessionState, answer_without_the_descriptor_is_corrupt) {
  FakeKeeper keeper([](const Request& request) { return say(reply_to(request)); });
  const auto state = keeper.join();
  test::expect_error(Errc::corrupt,
                     [&] { static_cast<void>(state->ask_for_file({.type = RequestType::invite, .name = "x"})); },
                     {"has no descriptor"});
}

// An address that the keeper makes up must never be touched.
TEST(SessionState, object_that_does_not_lie_in_its_memory_file_is_corrupt_and_given_back) {
  const Fd file = make_memory_file("objects", 4096);
  const std::vector<std::uint64_t> offsets = {4096, 4032, ~std::uint64_t{63}, 32};
  std::size_t round = 0;
  FakeKeeper keeper([&](const Request& request) {
    Reply reply = reply_to(request);
    reply.spec = kEventSpec;
    reply.handle = {.kind = ObjectKind::event, .slab = 1, .offset = offsets.at(round++), .generation = 1};
    return say(reply, file.get());
  });
  auto state = keeper.join();
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    test::expect_error(Errc::corrupt, [&] { static_cast<void>(state->create(kEventSpec)); },
                       {"lies outside its memory file of 4096 bytes"});
  }
  state.reset();
  keeper.wait();
  ASSERT_EQ(keeper.without_reply().size(), offsets.size());
  for (const auto& request : keeper.without_reply()) EXPECT_EQ(request.type, RequestType::close);
}

TEST(SessionState, object_without_a_memory_file_is_corrupt) {
  FakeKeeper keeper([](const Request& request) {
    Reply reply = reply_to(request);
    reply.spec = kEventSpec;
    reply.handle = {.kind = ObjectKind::event, .slab = 1, .offset = 0, .generation = 1};
    return say(reply);
  });
  const auto state = keeper.join();
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(state->create(kEventSpec)); }, {"0 bytes"});
}

TEST(SessionState, memory_file_that_could_shrink_is_refused) {
  char path[] = "/tmp/drover-test-XXXXXX";  // NOLINT(*-avoid-c-arrays): mkstemp wants one
  const Fd file(::mkstemp(path));
  ASSERT_EQ(::unlink(path), 0);
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  FakeKeeper keeper([&](const Request& request) {
    Reply reply = reply_to(request);
    reply.spec = kEventSpec;
    reply.handle = {.kind = ObjectKind::event, .slab = 1, .offset = 0, .generation = 1};
    return say(reply, file.get());
  });
  const auto state = keeper.join();
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(state->create(kEventSpec)); },
                     {"not a sealed memory file"});
}

TEST(SessionState, missing_file_is_corrupt_and_an_empty_one_is_not_sent) {
  FakeKeeper keeper([](const Request& request) { return say(reply_to(request)); });
  const auto state = keeper.join();
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(state->file_of({.kind = ObjectKind::slab})); },
                     {"has no descriptor"});
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(state->create(kEventSpec, Fd{})); },
                     {"empty descriptor"});
}

TEST(SessionState, closing_an_object_that_is_not_open_is_ignored) {
  FakeKeeper keeper([](const Request& request) { return say(reply_to(request)); });
  auto state = keeper.join();
  state->close({.kind = ObjectKind::event, .slab = 9, .offset = 0, .generation = 9});
  state.reset();
  keeper.wait();
  EXPECT_TRUE(keeper.without_reply().empty());
}

}  // namespace
}  // namespace drover::session
