#include "observe/shared_waits.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "drover/ipc/membership.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/wake/cell_lock.hpp"
#include "process/inspect/foreign_memory.hpp"
#include "process/inspect/proc_files.hpp"
#include "process/inspect/symbols.hpp"
#include "session/wire/session_page.hpp"

namespace drover::observe {
namespace {

constexpr std::string_view kSemaphorePath = "/dev/shm/sem.";
constexpr std::string_view kObjectsPath = "/memfd:drover objects ";
constexpr std::string_view kPagePath = "/memfd:drover session";
constexpr std::uint64_t kMostSearched = std::uint64_t{1} << 20U;  // bytes in front of the word

using process::MappedPiece;

// The start of an ObjectHeader.
struct HeaderStart {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t kind;
  std::uint64_t generation;
};
static_assert(offsetof(ipc::ObjectHeader, generation) == offsetof(HeaderStart, generation));

struct FoundObject {
  HeaderStart header{};
  std::uint64_t address = 0;
};

const MappedPiece* piece_at(const std::vector<MappedPiece>& pieces, std::uint64_t address) {
  const auto found = std::ranges::find_if(
      pieces, [&](const MappedPiece& each) { return address >= each.begin && address < each.end; });
  return found == pieces.end() ? nullptr : &*found;
}

// The object that contains the word: the nearest header in front of it.
std::optional<FoundObject> object_around(pid_t pid, const MappedPiece& piece, std::uint64_t word) {
  const std::uint64_t begin = word - piece.begin > kMostSearched ? word - kMostSearched : piece.begin;
  const std::uint64_t last = piece.begin + (word - piece.begin) / ipc::kCacheLine * ipc::kCacheLine;
  std::vector<std::byte> bytes(last - begin + sizeof(HeaderStart));
  if (!process::read_foreign_memory(pid, begin, bytes)) return std::nullopt;
  for (std::uint64_t at = last; at >= begin && at <= last; at -= ipc::kCacheLine) {
    FoundObject found{.address = at};
    std::memcpy(&found.header, &bytes[at - begin], sizeof(HeaderStart));
    if (found.header.magic == ipc::kObjectMagic && found.header.version == ipc::kLayoutVersion) return found;
  }
  return std::nullopt;
}

// The participant with this number, as the session's page of the waiting process shows it.
std::string participant_text(pid_t pid, const std::vector<MappedPiece>& pieces, Owner number,
                             const std::filesystem::path& proc) {
  const auto page =
      std::ranges::find_if(pieces, [](const MappedPiece& each) { return each.path.starts_with(kPagePath); });
  if (page == pieces.end() || number > kMaxParticipants) return fmt::format("participant {}", number);
  const auto slot = page->begin + offsetof(session::SessionPage, slots) + number * sizeof(session::ParticipantSlot);
  const auto holder = process::read_foreign<std::uint32_t>(pid, slot + offsetof(session::ParticipantSlot, pid));
  const auto name = process::read_foreign<std::array<char, 64>>(pid, slot + offsetof(session::ParticipantSlot, name));
  if (!holder || !name) return fmt::format("participant {}", number);
  const auto facts = process::read_process_facts(static_cast<pid_t>(*holder), proc);
  const std::string_view text(name->data(), ::strnlen(name->data(), name->size()));
  return fmt::format("process {} ({}, {})", *holder, process::printable(text, 64),
                     facts ? process::state_text(facts->state) : "ended");
}

bool is_lock(ObjectKind kind) { return kind == ObjectKind::lock || kind == ObjectKind::rlock; }

// Idle workers and collectors of pools wait for queues, which says nothing.
bool is_shown(ObjectKind kind) {
  return is_lock(kind) || kind == ObjectKind::semaphore || kind == ObjectKind::condition ||
         kind == ObjectKind::event || kind == ObjectKind::barrier;
}

bool describe_object(SharedWait& wait, const MappedPiece& piece, const std::vector<MappedPiece>& pieces,
                     std::uint64_t word, const std::filesystem::path& proc) {
  const auto found = object_around(wait.pid, piece, word);
  const auto kind = found ? static_cast<ObjectKind>(found->header.kind) : ObjectKind::queue;
  if (!found || !is_shown(kind)) return false;
  const auto slab = process::leading_number<std::uint32_t>(
      std::string_view(piece.path).substr(std::min(kObjectsPath.size(), piece.path.size())));
  const ObjectHandle handle{.kind = kind,
                            .slab = slab.value_or(0),
                            .offset = found->address - piece.begin + piece.offset,
                            .generation = found->header.generation};
  wait.object = fmt::format("{} {}", to_string(kind), handle.to_string());
  if (!is_lock(kind)) return true;
  const auto held = process::read_foreign<std::uint32_t>(wait.pid, found->address + sizeof(ipc::ObjectHeader));
  if (!held || ipc::lock_word::is_free(*held)) return true;
  const auto holder = ipc::lock_word::holder_in(*held);
  wait.holder = fmt::format("{}, thread {}", participant_text(wait.pid, pieces, holder.owner, proc), holder.thread);
  return true;
}

void add_waits(const process::ProcessFacts& process, const std::filesystem::path& proc,
               std::vector<SharedWait>& waits) {
  const auto is_waiting = [](const process::ThreadFacts& each) { return each.futex != 0; };
  if (process.is_uninterruptible() || std::ranges::none_of(process.threads, is_waiting)) return;
  const auto pieces = process::read_mapped_pieces(process.pid, proc);
  for (const auto& thread : process.threads) {
    const auto* const piece = piece_at(pieces, thread.futex);
    if (piece == nullptr || !piece->is_shared) continue;
    SharedWait wait{.pid = process.pid, .tid = thread.tid};
    wait.word = fmt::format("{}:{}", piece->inode, thread.futex - piece->begin + piece->offset);
    wait.is_standard = piece->path.starts_with(kSemaphorePath);
    if (!wait.is_standard && !piece->path.starts_with(kObjectsPath)) continue;
    if (wait.is_standard || describe_object(wait, *piece, pieces, thread.futex, proc))
      waits.push_back(std::move(wait));
  }
}

// The processes of the machine that have each of these files mapped.
std::map<std::uint64_t, std::set<pid_t>> users_of(const std::set<std::uint64_t>& inodes,
                                                  const std::filesystem::path& proc) {
  std::map<std::uint64_t, std::set<pid_t>> users;
  if (inodes.empty()) return users;
  for (const pid_t pid : process::numbers_in(proc)) {
    for (const auto& piece : process::read_mapped_pieces(pid, proc)) {
      if (piece.path.starts_with(kSemaphorePath) && inodes.contains(piece.inode)) users[piece.inode].insert(pid);
    }
  }
  return users;
}

std::uint64_t inode_of(const SharedWait& wait) {
  return process::leading_number<std::uint64_t>(wait.word).value_or(0);
}

}  // namespace

std::vector<SharedWait> find_shared_waits(const std::vector<process::ProcessFacts>& processes,
                                          const std::filesystem::path& proc) {
  std::vector<SharedWait> waits;
  for (const auto& process : processes) add_waits(process, proc, waits);
  std::set<std::uint64_t> inodes;
  for (const auto& wait : waits) {
    if (wait.is_standard) inodes.insert(inode_of(wait));
  }
  const auto users = users_of(inodes, proc);
  for (auto& wait : waits) {
    const auto known = users.find(inode_of(wait));
    if (!wait.is_standard || known == users.end()) continue;
    std::ranges::copy_if(known->second, std::back_inserter(wait.sharers), [&](pid_t pid) { return pid != wait.pid; });
  }
  return waits;
}

}  // namespace drover::observe
