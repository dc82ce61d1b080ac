#include "device/host/census.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <climits>
#include <memory>
#include <set>
#include <string_view>

#include "drover/base/error.hpp"

namespace drover::device::host {
namespace {

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

Directory open_directory(const std::string& path) { return {::opendir(path.c_str()), &::closedir}; }

std::string link_of_slab(const Uuid& device) { return "/memfd:" + slab_label(device); }

// The target of a link in /proc; empty if it is gone.
std::string link_target(const std::string& path) {
  std::array<char, NAME_MAX + 1> target{};
  const auto length = ::readlink(path.c_str(), target.data(), target.size());
  return {target.data(), length < 0 ? 0 : static_cast<std::size_t>(length)};
}

// Processes and descriptors come and go meanwhile: those that can no longer be read are skipped.
void count_slabs_of_process(const std::string& fd_folder, std::string_view wanted, std::set<ino_t>& seen,
                            std::uint64_t& bytes) {
  const Directory folder = open_directory(fd_folder);
  if (folder == nullptr) return;
  while (const dirent* const entry = ::readdir(folder.get())) {  // NOLINT(concurrency-mt-unsafe): own DIR
    const std::string path = fd_folder + '/' + entry->d_name;
    if (!link_target(path).starts_with(wanted)) continue;
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) continue;
    if (seen.insert(status.st_ino).second) bytes += static_cast<std::uint64_t>(status.st_size);
  }
}

}  // namespace

std::string slab_label(const Uuid& device) { return "drover-slab:" + to_string(device); }

bool is_slab_of(const Fd& file, const Uuid& device) {
  if (::access("/proc/self/fd", R_OK) != 0) throw_errno("access", "/proc/self/fd, which names the slabs");
  return link_target("/proc/self/fd/" + std::to_string(file.get())).starts_with(link_of_slab(device));
}

std::uint64_t slab_bytes_in_use(const Uuid& device) {
  const std::string wanted = link_of_slab(device);
  const Directory processes = open_directory("/proc");
  if (processes == nullptr) throw_errno("opendir", "/proc, in which slabs are counted");
  std::set<ino_t> seen;
  std::uint64_t bytes = 0;
  while (const dirent* const entry = ::readdir(processes.get())) {  // NOLINT(concurrency-mt-unsafe): own DIR
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
    count_slabs_of_process("/proc/" + std::string(entry->d_name) + "/fd", wanted, seen, bytes);
  }
  return bytes;
}

}  // namespace drover::device::host
