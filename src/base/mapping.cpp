#include "drover/base/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"

namespace drover {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::size_t file_size(const Fd& file) {
  struct stat status{};
  if (sys::call("fstat", ::fstat, file.get(), &status) != 0) {
    throw_errno("fstat", fmt::format("file descriptor {}", file.get()));
  }
  return static_cast<std::size_t>(status.st_size);
}

// Hardened systems require memory files to be marked as never executable; kernels before 6.3 reject the flag.
Fd new_memory_file(const std::string& label) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  constexpr unsigned kNeverRun = 8;  // MFD_NOEXEC_SEAL
  Fd file(sys::call("memfd_create", ::memfd_create, label.c_str(), kFlags | kNeverRun));
  if (file.is_open() || errno != EINVAL) return file;
  return Fd(sys::call("memfd_create", ::memfd_create, label.c_str(), kFlags));
}

std::byte* map(std::size_t bytes, int flags, int fd, const char* what) {
  void* const address = sys::call("mmap", ::mmap, nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, off_t{0});
  if (address == MAP_FAILED) throw_errno("mmap", fmt::format("{} of {}", what, format_bytes(bytes)));
  return static_cast<std::byte*>(address);
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

Mapping Mapping::anonymous(std::size_t bytes) {
  require(bytes > 0, "cannot map 0 bytes");
  return {map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, "private memory"), bytes};
}

Mapping Mapping::shared(const Fd& file, std::size_t bytes) {
  require(bytes > 0, "cannot map 0 bytes");
  const std::size_t present = file_size(file);
  if (present < bytes) {
    throw Error(Errc::corrupt, fmt::format("cannot map {} of a shared file that has only {}", format_bytes(bytes),
                                           format_bytes(present)));
  }
  return {map(bytes, MAP_SHARED, file.get(), "shared memory"), bytes};
}

void Mapping::reset() noexcept {
  if (data_ == nullptr) return;
  if (sys::call("munmap", ::munmap, static_cast<void*>(data_), size_) != 0) {
    log(LogLevel::warn, "munmap failed; the memory stays mapped until the process ends");
  }
  data_ = nullptr;
  size_ = 0;
}

void make_present(std::span<std::byte> memory) noexcept {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE
  if (memory.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(memory.data()) % page;  // madvise wants whole pages
  static_cast<void>(sys::call("madvise", ::madvise, static_cast<void*>(memory.data() - before),
                              memory.size() + before, kPopulateWrite));
}

Fd make_memory_file(const std::string& label, std::size_t bytes) {
  require(bytes > 0, "cannot create a memory file of 0 bytes");
  const auto what = fmt::format("memory file '{}' of {}", label, format_bytes(bytes));
  Fd file = new_memory_file(label);
  if (!file.is_open()) throw_errno("memfd_create", what);
  if (sys::retry("ftruncate", ::ftruncate, file.get(), static_cast<off_t>(bytes)) != 0) {
    if (errno == EFBIG) {
      throw Error(Errc::limit_reached, fmt::format("ftruncate failed for {}: it exceeds the file size limit", what),
                  "raise the limit (ulimit -f unlimited) before starting the program");
    }
    throw_errno("ftruncate", what);
  }
  const auto add_seals = [](int fd) { return ::fcntl(fd, F_ADD_SEALS, kSeals); };
  if (sys::call("fcntl", add_seals, file.get()) != 0) throw_errno("fcntl(F_ADD_SEALS)", what);
  return file;
}

std::size_t check_memory_file(const Fd& file) {
  const auto get_seals = [](int fd) { return ::fcntl(fd, F_GET_SEALS); };
  const int seals = sys::call("fcntl", get_seals, file.get());
  if (seals < 0 || (seals & kSeals) != kSeals) {
    throw Error(Errc::corrupt,
                fmt::format("file descriptor {} is not a sealed memory file, so its memory could vanish while in use",
                            file.get()),
                "send only descriptors that drover exported");
  }
  return file_size(file);
}

}  // namespace drover
