#include "drover/ipc/membership.hpp"

#include <pthread.h>
#include <unistd.h>

#include <set>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "drover/base/mutex.hpp"
#include "drover/ipc/lease.hpp"

namespace drover {
namespace {

[[noreturn]] void throw_nobody_keeps(std::string_view name) {
  throw Error(Errc::unsupported, fmt::format("cannot keep or recall '{}': this membership has no keeper", name),
              "do it in a Session");
}

}  // namespace

// All memberships of this process, so that a fork can clear their numbers in the child.
struct MembershipForks {
  Mutex mutex;
  std::set<Membership*> all DROVER_GUARDED_BY(mutex);

  static MembershipForks& instance() {
    static auto* const forks = new MembershipForks;  // never destroyed: memberships may outlive static destruction
    return *forks;
  }

  MembershipForks() { ::pthread_atfork(before, in_parent, in_child); }

  // Locked before the fork and unlocked after it on both sides; the analysis sees one function at a time.
  static void before() DROVER_NO_THREAD_ANALYSIS { instance().mutex.lock(); }
  static void in_parent() DROVER_NO_THREAD_ANALYSIS { instance().mutex.unlock(); }

  // Runs in the child, which has one thread.
  static void in_child() DROVER_NO_THREAD_ANALYSIS {
    for (Membership* const membership : instance().all) membership->set_self(kNobody);
    instance().mutex.unlock();
  }
};

Membership::Membership() {
  auto& forks = MembershipForks::instance();
  const MutexLock lock(forks.mutex);
  forks.all.insert(this);
}

Membership::~Membership() {
  auto& forks = MembershipForks::instance();
  const MutexLock lock(forks.mutex);
  forks.all.erase(this);
}

bool Membership::has_participant(Owner /*number*/) const noexcept { return true; }

OpenObject Membership::create(const ObjectSpec& spec, const Fd& file) {
  throw Error(
      Errc::unsupported,
      fmt::format("cannot make a {} with file {}: this membership holds no files", to_string(spec.kind), file.get()),
      "make it in a Session");
}

Fd Membership::file_of(const ObjectHandle& handle) {
  throw Error(Errc::not_found, fmt::format("the shared object {} has no file here", handle.to_string()),
              "open it in a Session");
}

void Membership::keep(std::string_view name, std::span<const std::byte> /*record*/, std::string_view /*description*/,
                      std::span<Lease> /*leases*/) {
  throw_nobody_keeps(name);
}

Recalled Membership::recall(std::string_view name) { throw_nobody_keeps(name); }

std::vector<KeptInfo> Membership::kept() { return {}; }

void Membership::drop(std::string_view name) { throw_nobody_keeps(name); }

void Membership::fail_without_number() {
  throw Error(Errc::forked,
              fmt::format("process {} was forked from a participant of a session, or has left it; it cannot use the "
                          "session's objects",
                          ::getpid()),
              "start processes with drover or by spawn, or fork before the first use of drover, so that each process "
              "joins a session of its own");
}

}  // namespace drover
