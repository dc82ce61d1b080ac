// Files of NumPy's format on the disk.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <new>
#include <vector>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "drover/tensor/npy.hpp"
#include "tensor/exchange/npy_format.hpp"
#include "tensor/layout/memory_check.hpp"

namespace drover {
namespace {

Fd open_file(const std::string& path, int flags) {
  const auto open = [](const char* name, int how) { return ::open(name, how, 0666); };
  return Fd(sys::retry("open", open, path.c_str(), flags | O_CLOEXEC));
}

// Reads until `bytes` is full; a file that ends before has become shorter.
void read_at(const Fd& file, const std::string& path, std::span<std::byte> bytes, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto got = sys::retry("pread", ::pread, file.get(), static_cast<void*>(bytes.data() + done),
                                bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0) throw_errno("pread", path);
    if (got == 0) {
      throw Error(Errc::corrupt, fmt::format("{} became shorter while it was read", path),
                  "let nobody write a file that is read");
    }
    done += static_cast<std::size_t>(got);
  }
}

std::uint64_t size_of_file(const Fd& file, const std::string& path) {
  struct stat facts{};
  if (sys::call("fstat", ::fstat, file.get(), &facts) != 0) throw_errno("fstat", path);
  if (!S_ISREG(facts.st_mode)) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} is a {}, not a file", path, S_ISDIR(facts.st_mode) ? "folder" : "device or pipe"),
                "give the path of a .npy file");
  }
  return static_cast<std::uint64_t>(facts.st_size);
}

std::unique_ptr<std::byte[]> memory_for(std::size_t bytes, const std::string& path) {
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]);
  if (memory) return memory;
  throw Error(Errc::out_of_memory, fmt::format("no memory for the {} of elements of {}", format_bytes(bytes), path),
              "free memory, or take the tensor in parts");
}

NpyHeader header_of(const Fd& file, const std::string& path) {
  const std::uint64_t size = size_of_file(file, path);
  std::vector<std::byte> beginning(std::min<std::uint64_t>(size, detail::kMostNpyHeaderBytes));
  read_at(file, path, beginning, 0);
  try {
    return detail::parse_npy_beginning(beginning, size);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{} cannot be read: {}", path, error.message()), error.remedy(),
                error.where());
  }
}

// A file that has no place yet; gone with this unless it was put somewhere.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& folder) {
    static std::atomic<unsigned> number = 0;
    do {
      // Short, so that a long name for the file is no hindrance; only a killed process leaves one.
      path_ = folder / fmt::format(".drover-{}-{}.npy.part", ::getpid(), ++number);
      file_ = open_file(path_.string(), O_WRONLY | O_CREAT | O_EXCL);
    } while (!file_.is_open() && errno == EEXIST);
    if (!file_.is_open()) throw_errno("open", fmt::format("a new file in {}", folder.string()));
  }
  ~NewFile() {
    if (!is_placed_) ::unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto wrote =
          sys::retry("write", ::write, file_.get(), static_cast<const void*>(bytes.data()), bytes.size());
      if (wrote < 0) throw_errno("write", fmt::format("{} of {}", format_bytes(bytes.size()), path_.string()));
      bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    }
  }

  // On the disk before it gets its name, or a power cut could leave an empty file of that name.
  void place(const std::string& path) {
    if (sys::retry("fsync", ::fsync, file_.get()) != 0) throw_errno("fsync", path_.string());
    if (sys::call("rename", ::rename, path_.c_str(), path.c_str()) != 0) throw_errno("rename", path);
    is_placed_ = true;
  }

 private:
  std::filesystem::path path_;
  Fd file_;
  bool is_placed_ = false;
};

// The folder a path lies in, as something that can be opened.
std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

void sync_folder(const std::filesystem::path& folder) {
  const Fd opened = open_file(folder.string(), O_RDONLY | O_DIRECTORY);
  if (!opened.is_open()) throw_errno("open", folder.string());
  // Some file systems cannot sync folders, and say EINVAL; the file itself is safe by then.
  if (sys::retry("fsync", ::fsync, opened.get()) != 0 && errno != EINVAL) throw_errno("fsync", folder.string());
}

}  // namespace

NpyFile read_npy(const std::string& path) {
  // Opening a pipe must not wait for its writer.
  const Fd file = open_file(path, O_RDONLY | O_NONBLOCK);
  if (!file.is_open()) throw_errno("open", path);
  const NpyHeader header = header_of(file, path);
  const std::size_t bytes = header.layout.bytes();
  auto data = memory_for(bytes, path);
  read_at(file, path, {data.get(), bytes}, header.data_offset);
  return {header.layout, std::move(data)};
}

void write_npy(const std::string& path, const TensorLayout& layout, std::span<const std::byte> memory) {
  detail::check_memory(layout, memory.size());
  struct stat facts{};
  if (!std::filesystem::path(path).has_filename() || (::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode))) {
    throw Error(Errc::invalid_argument, fmt::format("'{}' is a folder, not a file", path),
                "give the path of a file in it");
  }
  const auto whole = TensorLayout::contiguous(layout.dtype(), layout.shape());
  const auto header = npy_header(whole);
  NewFile file(folder_of(path));
  file.write(std::as_bytes(std::span(header)));
  if (layout.is_contiguous()) {
    const auto extent = layout.extent_bytes();
    file.write(memory.subspan(extent.begin, extent.end - extent.begin));
  } else {
    const auto owner = memory_for(whole.bytes(), path);
    const std::span<std::byte> copy(owner.get(), whole.bytes());
    copy_strided(copy, whole, memory, layout);
    file.write(copy);
  }
  file.place(path);
  sync_folder(folder_of(path));
}

}  // namespace drover
