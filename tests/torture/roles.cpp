#include "torture/roles.hpp"

#include <unistd.h>

#include <cstring>
#include <exception>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include "drover/ipc/lock.hpp"
#include "drover/ipc/semaphore.hpp"
#include "torture/queue_probe.hpp"

namespace drover::test {
namespace {

constexpr unsigned kOneInGivesBack = 64;

class Actor {
 public:
  Actor(const Stage& stage, std::uint64_t index, std::uint64_t seed, const std::shared_ptr<Membership>& member)
      : stage_(stage), index_(index), random_(seed), member_(member) {}

  void produce() {
    Queue queue(member_, stage_.queue);
    ProducerLedger& ledger = stage_.ledger.page().producers[index_];
    std::vector<std::byte> buffer;
    for (std::uint64_t number = ledger.intended + 1; number <= kMostNumber; ++number) {
      const MessageId id{.producer = index_, .number = number};
      const std::size_t size = stage_.mix.sizes[random_() % stage_.mix.sizes.size()];
      const bool is_loan = stage_.mix.has_loans && size > ipc::kInlineBytes && random_() % 2 == 0;
      if (!is_loan) {
        buffer.resize(size);
        fill_numbered(buffer, id.to_word());
      }
      ledger.intended = number;
      const PutResult result = is_loan ? publish_loan(queue, id, size) : queue.put(buffer);
      if (result != PutResult::put) throw std::runtime_error(fmt::format("put: {}", to_string(result)));
      ledger.reported = number;
    }
  }

  void consume() {
    Queue queue(member_, stage_.queue);
    ConsumerLedger& ledger = stage_.ledger.page().consumers[index_];
    for (Delivery delivery;;) {
      const GetResult result = queue.receive(delivery);
      if (result != GetResult::got) throw std::runtime_error(fmt::format("receive: {}", to_string(result)));
      const auto id = take_note_holding(ledger, delivery);
      ++ledger.progress;
      if (id && random_() % kOneInGivesBack == 0) {
        stage_.ledger.allow_again(*id);
        ledger.holding = 0;
        delivery.give_back();
        continue;
      }
      delivery.done();
      if (id) stage_.ledger.note_done(*id);
      ledger.holding = 0;
    }
  }

  void get() {
    Queue queue(member_, stage_.queue);
    ConsumerLedger& ledger = stage_.ledger.page().consumers[index_];
    for (Message message;;) {
      ledger.is_getting = 1;
      const GetResult result = queue.get(message);
      if (result != GetResult::got) throw std::runtime_error(fmt::format("get: {}", to_string(result)));
      const auto id = take_note(stage_.ledger, message.bytes(), message.key(), message.is_redelivered());
      if (id) stage_.ledger.note_done(*id);
      ledger.is_getting = 0;
      ++ledger.progress;
    }
  }

  void hold() {
    LedgerPage& page = stage_.ledger.page();
    Lock lock(member_, stage_.lock);
    RLock rlock(member_, stage_.rlock);
    Semaphore semaphore(member_, stage_.semaphore);
    for (;; ++page.holder_progress[index_]) {
      pass_through(page.lock, lock.acquire());
      lock.release();
      const LockResult outer = rlock.acquire();
      static_cast<void>(rlock.acquire());
      pass_through(page.rlock, outer);
      rlock.release();
      rlock.release();
      static_cast<void>(semaphore.acquire());
      semaphore.release();
    }
  }

 private:
  PutResult publish_loan(Queue& queue, MessageId id, std::size_t size) {
    Loan loan = queue.loan(size);
    if (!loan.is_open()) throw std::runtime_error("loan: nothing");
    fill_numbered(loan.bytes(), id.to_word());
    return queue.publish(loan);
  }

  // The word is recorded before the delivery: if killed in between, one more delivery is allowed than happens.
  std::optional<MessageId> take_note_holding(ConsumerLedger& ledger, const Delivery& delivery) {
    std::uint64_t word = 0;
    if (delivery.bytes().size() >= sizeof(word)) std::memcpy(&word, delivery.bytes().data(), sizeof(word));
    ledger.holding = word;
    return take_note(stage_.ledger, delivery.bytes(), delivery.key(), delivery.is_redelivered());
  }

  // Changes the data of the lock in two steps.
  void pass_through(LockLedger& ledger, LockResult result) {
    const auto before = ledger.inside.exchange(static_cast<std::uint32_t>(::getpid()));
    const bool is_whole = before == 0 && ledger.first.load() == ledger.second.load();
    if (result == LockResult::acquired_after_death) {
      ++ledger.deaths_told;
      ledger.second = ledger.first.load();
    } else if (!is_whole) {
      ++stage_.ledger.faults().broken_locks;
    }
    ++ledger.first;
    ++ledger.second;
    ledger.inside = 0;
  }

  const Stage& stage_;
  std::uint64_t index_;
  std::minstd_rand random_;
  std::shared_ptr<Membership> member_;
};

}  // namespace

const char* to_string(Role role) noexcept {
  switch (role) {
    case Role::producer: return "producer";
    case Role::consumer: return "consumer";
    case Role::getter: return "getter";
    case Role::holder: return "holder";
  }
  return "?";
}

std::optional<MessageId> take_note(const Ledger& ledger, std::span<const std::byte> bytes, MessageKey key,
                                   bool is_redelivered) {
  try {
    const MessageId id = MessageId::from_word(number_of(bytes));
    ledger.note_delivery(id, key, is_redelivered);
    return id;
  } catch (const std::runtime_error& error) {
    fmt::print(stderr, "torture: {}\n", error.what());
    ++ledger.faults().torn;
    return std::nullopt;
  }
}

void play(const Stage& stage, Role role, std::uint64_t index, std::uint64_t seed,
          const std::shared_ptr<Membership>& member) {
  try {
    Actor actor(stage, index, seed, member);
    switch (role) {
      case Role::producer: actor.produce(); break;
      case Role::consumer: actor.consume(); break;
      case Role::getter: actor.get(); break;
      case Role::holder: actor.hold(); break;
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "torture: a {} failed: {}\n", to_string(role), error.what());
    ++stage.ledger.faults().exceptions;
  }
  for (;;) ::pause();
}

}  // namespace drover::test
