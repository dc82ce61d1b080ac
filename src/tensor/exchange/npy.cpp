#include "drover/tensor/npy.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/sys.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "tensor/layout/copy_strided.hpp"

namespace drover {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are written in memory order");

// The Python dictionary in the header.
struct NpyDictionary {
  std::string descr;                // the type, as "<f4"
  bool is_fortran = false;          // whether the first index changes fastest
  std::vector<std::int64_t> shape;  // sizes of 0 or more
};

// No header that is accepted extends beyond this offset.
constexpr std::size_t kMostHeaderBytes = 12 + 65536;

constexpr std::string_view kSpaces = " \t\r\n\f\v";
constexpr std::size_t kMostSizes = 64;

// Parses {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }: keys in any order, each exactly once. Throws
// `Errc::corrupt`; `Errc::unsupported` if the type is a structure.
class NpyDictionaryParser {
 public:
  explicit NpyDictionaryParser(std::string_view text) : text_(text) {}

  NpyDictionary parse() {
    expect('{');
    while (!accept('}')) {
      entry();
      if (accept('}')) break;
      expect(',');
    }
    skip_spaces();
    if (at_ != text_.size()) fail("has text after its dictionary");
    if (!descr_ || !is_fortran_ || !shape_) fail("lacks one of 'descr', 'fortran_order' and 'shape'");
    return {.descr = *descr_, .is_fortran = *is_fortran_, .shape = *shape_};
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw Error(Errc::corrupt, fmt::format("the header of a .npy file {}, at character {}", what, at_),
                "write the file again, with numpy.save or write_npy");
  }

  void skip_spaces() noexcept { at_ = std::min(text_.find_first_not_of(kSpaces, at_), text_.size()); }

  bool accept(char letter) noexcept {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != letter) return false;
    ++at_;
    return true;
  }

  void expect(char letter) {
    if (!accept(letter)) fail(fmt::format("lacks a '{}'", letter).c_str());
  }

  bool accept_word(std::string_view word) noexcept {
    skip_spaces();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  // A string in either kind of quotes; Python 2 may have put a u before them. No supported header contains escapes.
  std::string quoted() {
    accept('u');
    skip_spaces();
    const char quote = accept('"') ? '"' : '\'';
    if (quote == '\'') expect(quote);
    const auto end = text_.find(quote, at_);
    const auto text = text_.substr(at_, end - at_);
    if (end == std::string_view::npos || text.find_first_of("\\\n") != std::string_view::npos) {
      fail("has an unterminated string");
    }
    at_ = end + 1;
    return std::string(text);
  }

  bool truth() {
    if (accept_word("True")) return true;
    if (!accept_word("False")) fail("has a fortran_order other than True or False");
    return false;
  }

  std::int64_t size() {
    skip_spaces();
    std::int64_t number = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
    if (error != std::errc{} || number < 0) fail("has a size that is not a number of 0 or more");
    at_ += static_cast<std::size_t>(end - begin);
    accept('L');  // Python 2's suffix of long integers
    return number;
  }

  std::vector<std::int64_t> sizes() {
    std::vector<std::int64_t> numbers;
    bool has_comma = true;
    expect('(');
    while (!accept(')')) {
      if (!has_comma || numbers.size() == kMostSizes) fail("has a shape that is not a tuple of sizes");
      numbers.push_back(size());
      has_comma = accept(',');
    }
    if (numbers.size() == 1 && !has_comma) fail("has a shape that is a number instead of a tuple");
    return numbers;
  }

  void entry() {
    const auto key = quoted();
    expect(':');
    if (key == "descr" && !descr_) {
      descr_ = type();
    } else if (key == "fortran_order" && !is_fortran_) {
      is_fortran_ = truth();
    } else if (key == "shape" && !shape_) {
      shape_ = sizes();
    } else {
      fail("has a duplicate or unknown key");
    }
  }

  std::string type() {
    skip_spaces();
    if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(')) {
      throw Error(Errc::unsupported, "a .npy file holds structures, not numbers",
                  "save each field as a separate array: numpy.save(path, array['field'])");
    }
    return quoted();
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::optional<std::string> descr_;
  std::optional<bool> is_fortran_;
  std::optional<std::vector<std::int64_t>> shape_;
};

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;
constexpr const char* kSaveAgain = "write the file again, with numpy.save or write_npy";

struct Code {
  DType dtype;
  std::string_view text;  // kind and bytes
};

constexpr std::array kCodes = {
    Code{DType::boolean, "b1"},   Code{DType::int8, "i1"},        Code{DType::int16, "i2"},
    Code{DType::int32, "i4"},     Code{DType::int64, "i8"},       Code{DType::uint8, "u1"},
    Code{DType::uint16, "u2"},    Code{DType::uint32, "u4"},      Code{DType::uint64, "u8"},
    Code{DType::float16, "f2"},   Code{DType::float32, "f4"},     Code{DType::float64, "f8"},
    Code{DType::complex64, "c8"}, Code{DType::complex128, "c16"},
};

// Makes bytes of a file printable in messages.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 40;
  std::string result(text.substr(0, kMost));
  std::ranges::replace_if(result, [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  return result;
}

DType type_of(std::string_view descr) {
  constexpr std::string_view kOrders = "<>|=";
  const bool has_order = !descr.empty() && kOrders.find(descr.front()) != std::string_view::npos;
  const char order = has_order ? descr.front() : '=';
  const auto* const code = std::ranges::find(kCodes, descr.substr(has_order ? 1 : 0), &Code::text);
  if (code == kCodes.end()) {
    throw Error(Errc::unsupported, fmt::format("a .npy file holds elements of type '{}'", shown(descr)),
                "convert it to a type of DType before saving, e.g. array.astype('float32')");
  }
  if (size_of(code->dtype) > 1 && order == '>') {
    throw Error(Errc::unsupported, fmt::format("a .npy file holds big-endian elements of type '{}'", shown(descr)),
                "save it in native byte order: array.astype(array.dtype.newbyteorder('='))");
  }
  if (size_of(code->dtype) > 1 && order == '|') {
    throw Error(Errc::corrupt, fmt::format("a .npy file has type '{}', which lacks its byte order", shown(descr)),
                kSaveAgain);
  }
  return code->dtype;
}

TensorLayout layout_from(const NpyDictionary& dictionary) {
  const DType dtype = type_of(dictionary.descr);
  auto shape = dictionary.shape;
  if (shape.size() > kMaxRank) {
    throw Error(Errc::unsupported,
                fmt::format("a .npy file has {} dimensions, and a tensor at most {}", shape.size(), kMaxRank),
                "merge dimensions before saving: array.reshape");
  }
  try {
    if (!dictionary.is_fortran) return TensorLayout::contiguous(dtype, shape);
    std::ranges::reverse(shape);
    std::vector<std::int64_t> order;
    for (std::size_t i = shape.size(); i-- > 0;) order.push_back(static_cast<std::int64_t>(i));
    return TensorLayout::contiguous(dtype, shape).permute(order);
  } catch (const Error& error) {
    throw Error(Errc::corrupt, "a .npy file claims an impossible size: " + error.message(), kSaveAgain);
  }
}

std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) number = (number << 8U) | std::to_integer<std::uint64_t>(bytes[i]);
  return number;
}

[[noreturn]] void throw_cut_off(std::uint64_t has, std::uint64_t wanted) {
  throw Error(Errc::corrupt, fmt::format("a .npy file is truncated: it has {} bytes of at least {}", has, wanted),
              "copy or write the file again");
}

struct Frame {
  std::size_t begin;   // of the dictionary
  std::size_t length;  // of the dictionary
};

Frame frame_of(std::span<const std::byte> beginning, std::uint64_t file_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(beginning.data()), beginning.size());
  if (!kMagic.starts_with(text.substr(0, kMagic.size())) || text.empty()) {
    throw Error(Errc::corrupt,
                text.empty() ? "a .npy file is empty" : "a file does not begin with the magic bytes of .npy",
                kSaveAgain);
  }
  if (beginning.size() < 8) throw_cut_off(file_bytes, 8);
  const auto major = std::to_integer<unsigned>(beginning[6]);
  const auto minor = std::to_integer<unsigned>(beginning[7]);
  if (major < 1 || major > 3 || minor != 0) {
    throw Error(Errc::unsupported, fmt::format("a .npy file has format {}.{}", major, minor),
                "save it with numpy.save, which writes formats 1.0 to 3.0");
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t begin = 8 + length_bytes;
  if (beginning.size() < begin) throw_cut_off(file_bytes, begin);
  const std::uint64_t length = little_endian(beginning.subspan(8, length_bytes));
  if (length > kMostHeaderBytes - begin) {
    throw Error(Errc::unsupported, fmt::format("a .npy file has a header of {} bytes", length),
                "save plain arrays; only structures have headers of that size");
  }
  if (beginning.size() < begin + length) throw_cut_off(file_bytes, begin + length);
  return {.begin = begin, .length = static_cast<std::size_t>(length)};
}

// Like `parse_npy`, but from the beginning of a file of `file_bytes`: all of it, or `kMostHeaderBytes`.
NpyHeader parse_npy_beginning(std::span<const std::byte> beginning, std::uint64_t file_bytes) {
  const Frame frame = frame_of(beginning, file_bytes);
  const auto text = beginning.subspan(frame.begin, frame.length);
  const std::string_view words(reinterpret_cast<const char*>(text.data()), text.size());
  const auto dictionary = NpyDictionaryParser(words).parse();
  const NpyHeader header{.layout = layout_from(dictionary), .data_offset = frame.begin + frame.length};
  const std::uint64_t wanted = header.data_offset + header.layout.bytes();
  if (file_bytes < wanted) throw_cut_off(file_bytes, wanted);
  return header;
}

Fd open_file(const std::string& path, int flags) {
  const auto open = [](const char* name, int how) { return ::open(name, how, 0666); };
  return Fd(sys::retry("open", open, path.c_str(), flags | O_CLOEXEC));
}

// Fills `bytes`, or throws `Errc::corrupt` if the file has shrunk.
void read_at(const Fd& file, const std::string& path, std::span<std::byte> bytes, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto got = sys::retry("pread", ::pread, file.get(), static_cast<void*>(bytes.data() + done),
                                bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0) throw_errno("pread", path);
    if (got == 0) {
      throw Error(Errc::corrupt, fmt::format("{} shrank while it was read", path),
                  "do not write to the file while it is read");
    }
    done += static_cast<std::size_t>(got);
  }
}

std::uint64_t size_of_file(const Fd& file, const std::string& path) {
  struct stat facts{};
  if (sys::call("fstat", ::fstat, file.get(), &facts) != 0) throw_errno("fstat", path);
  if (!S_ISREG(facts.st_mode)) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} is a {}, not a file", path, S_ISDIR(facts.st_mode) ? "directory" : "device or pipe"),
                "give the path of a .npy file");
  }
  return static_cast<std::uint64_t>(facts.st_size);
}

std::unique_ptr<std::byte[]> memory_for(std::size_t bytes, const std::string& path) {
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]);
  if (memory) return memory;
  throw Error(Errc::out_of_memory,
              fmt::format("no memory for the elements of {}, which take {}", path, format_bytes(bytes)),
              "free memory, or split the tensor");
}

NpyHeader header_of(const Fd& file, const std::string& path) {
  const std::uint64_t size = size_of_file(file, path);
  std::vector<std::byte> beginning(std::min<std::uint64_t>(size, kMostHeaderBytes));
  read_at(file, path, beginning, 0);
  try {
    return parse_npy_beginning(beginning, size);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{} cannot be read: {}", path, error.message()), error.remedy(),
                error.where());
  }
}

// A temporary file; deleted by the destructor unless it was renamed to its final path.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& folder) {
    static std::atomic<unsigned> number = 0;
    do {
      // Short, since the final name may already be as long as names can be. Only a killed process leaves one behind.
      path_ = folder / fmt::format(".drover-{}-{}.npy.part", ::getpid(), ++number);
      file_ = open_file(path_.string(), O_WRONLY | O_CREAT | O_EXCL);
    } while (!file_.is_open() && errno == EEXIST);
    if (!file_.is_open()) throw_errno("open", fmt::format("a new file in {}", folder.string()));
  }
  ~NewFile() {
    if (!is_moved_) ::unlink(path_.c_str());
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

  // Syncs before it renames: otherwise a power cut could leave an empty file under the final name.
  void move_to(const std::string& path) {
    if (sys::retry("fsync", ::fsync, file_.get()) != 0) throw_errno("fsync", path_.string());
    if (sys::call("rename", ::rename, path_.c_str(), path.c_str()) != 0) throw_errno("rename", path);
    is_moved_ = true;
  }

 private:
  std::filesystem::path path_;
  Fd file_;
  bool is_moved_ = false;
};

// The directory of a path, in a form that open accepts.
std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

void sync_folder(const std::filesystem::path& folder) {
  const Fd opened = open_file(folder.string(), O_RDONLY | O_DIRECTORY);
  if (!opened.is_open()) throw_errno("open", folder.string());
  // Some file systems cannot sync directories and fail with EINVAL; the file itself is safe by then.
  if (sys::retry("fsync", ::fsync, opened.get()) != 0 && errno != EINVAL) throw_errno("fsync", folder.string());
}

}  // namespace

NpyHeader parse_npy(std::span<const std::byte> file) { return parse_npy_beginning(file, file.size()); }

std::string npy_header(const TensorLayout& layout) {
  const auto* const code = std::ranges::find(kCodes, layout.dtype(), &Code::dtype);
  if (code == kCodes.end()) {
    throw Error(
        Errc::unsupported,
        fmt::format("{} cannot be written to a .npy file: the format has no such type", to_string(layout.dtype())),
        "convert it to float32 first");
  }
  if (!layout.is_contiguous()) {
    throw Error(Errc::invalid_argument, fmt::format("{} is not contiguous", to_string(layout)),
                "copy it to a contiguous layout first, as write_npy does");
  }
  const auto shape = layout.shape();
  auto text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
                          size_of(layout.dtype()) == 1 ? '|' : '<', code->text, fmt::join(shape, ", "),
                          shape.size() == 1 ? "," : "");
  constexpr std::size_t kFrame = 10;
  const std::size_t whole = (kFrame + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.append(whole - kFrame - text.size() - 1, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xffU), static_cast<char>(text.size() >> 8U)};
  return header + text;
}

NpyFile read_npy(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const Fd file = open_file(path, O_RDONLY | O_NONBLOCK);
  if (!file.is_open()) throw_errno("open", path);
  const NpyHeader header = header_of(file, path);
  const std::size_t bytes = header.layout.bytes();
  auto data = memory_for(bytes, path);
  read_at(file, path, {data.get(), bytes}, header.data_offset);
  return {header.layout, std::move(data)};
}

void write_npy(const std::string& path, const TensorLayout& layout, std::span<const std::byte> memory) {
  tensor::check_memory(layout, memory.size());
  struct stat facts{};
  if (!std::filesystem::path(path).has_filename() || (::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode))) {
    throw Error(Errc::invalid_argument, fmt::format("'{}' is a directory, not a file", path),
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
  file.move_to(path);
  sync_folder(folder_of(path));
}

}  // namespace drover
