#include "process/inspect/python_stacks.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "process/inspect/elf_variable.hpp"
#include "process/inspect/foreign_memory.hpp"
#include "process/inspect/proc_files.hpp"
#include "process/inspect/symbols.hpp"

namespace drover::process {
namespace {

constexpr int kMostThreads = 64;
constexpr int kMostFrames = 64;
constexpr int kMostSkipped = 4096;  // frames without a function, so that a ring ends
constexpr std::uint64_t kMostTextBytes = 512;
constexpr std::uint64_t kMostLineTable = 65536;
constexpr std::uint64_t kBytesData = 32;   // offset of the bytes of a bytes object
constexpr std::uint64_t kTextLength = 16;  // offsets in a str object
constexpr std::uint64_t kTextState = 32;
constexpr std::uint32_t kIsAscii = 1U << 6U;

// Offsets in the structures of CPython 3.`minor`, as its headers have them (Include/internal).
struct Layout {
  int minor;
  std::uint64_t interpreters;   // _PyRuntimeState.interpreters.head
  std::uint64_t threads;        // PyInterpreterState.threads.head
  std::uint64_t tid;            // PyThreadState.native_thread_id; 0 if there is none
  std::uint64_t frame;          // PyThreadState.current_frame, or cframe, or frame
  std::uint64_t frame_in_hold;  // _PyCFrame.current_frame, if the thread has a cframe
  bool has_hold;
  std::uint64_t code;      // of the frame
  std::uint64_t previous;  // of the frame
  std::uint64_t position;  // of the frame: address of its instruction, or the index
  std::uint64_t owner;     // of the frame; 0 if there is none
  std::uint64_t file;      // PyCodeObject.co_filename
  std::uint64_t name;      // PyCodeObject.co_qualname, or co_name
  std::uint64_t first_line;
  std::uint64_t lines;         // PyCodeObject.co_linetable
  std::uint64_t instructions;  // PyCodeObject.co_code_adaptive; 0 if the position is an index
  std::uint64_t text;          // offset of the letters of an ASCII str
};

constexpr std::uint64_t kNextThread = 8;    // PyThreadState.next
constexpr std::uint8_t kOwnedByCStack = 3;  // from 3.12 on: a frame without a function

constexpr std::array kLayouts = {
    Layout{10, 32, 8, 0, 24, 0, false, 32, 24, 96, 0, 104, 112, 40, 120, 0, 48},
    Layout{11, 40, 16, 160, 56, 8, true, 32, 48, 56, 69, 112, 128, 72, 136, 184, 48},
    Layout{12, 40, 72, 144, 56, 0, true, 0, 8, 56, 70, 112, 128, 68, 136, 192, 40},
    Layout{13, 632, 7344, 160, 72, 0, false, 0, 8, 56, 70, 112, 128, 68, 136, 200, 40},
};

// The minor version in the name of an interpreter or its library: "python3.11", "libpython3.12.so.1.0". Others, such
// as "python3.13t" without a GIL and "python3.11d" for debugging, have other structures.
std::optional<int> minor_of(const std::string& path) {
  const auto name = std::filesystem::path(path).filename().string();
  for (const std::string_view prefix : {"libpython3.", "python3."}) {
    if (!name.starts_with(prefix)) continue;
    const auto rest = std::string_view(name).substr(prefix.size());
    const auto end = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (end == rest.size() || rest.substr(end).starts_with(".so")) return leading_number<int>(rest);
  }
  return std::nullopt;
}

// Reads varints of six bits and location entries, until the table ends.
class TableReader {
 public:
  explicit TableReader(std::span<const std::byte> table) : table_(table) {}

  [[nodiscard]] bool is_at_end() const { return at_ >= table_.size(); }
  std::uint32_t byte() { return is_at_end() ? 0 : std::to_integer<std::uint32_t>(table_[at_++]); }
  std::uint32_t number() {
    std::uint32_t part = byte();
    std::uint32_t value = part & 63U;
    for (unsigned shift = 6; (part & 64U) != 0 && shift < 32 && !is_at_end(); shift += 6) {
      part = byte();
      value |= (part & 63U) << shift;
    }
    return value;
  }
  std::int64_t signed_number() {
    const std::int64_t value = number();
    return (value & 1) != 0 ? -(value >> 1) : value >> 1;
  }

 private:
  std::span<const std::byte> table_;
  std::size_t at_ = 0;
};

// Python 3.10: pairs of a distance in bytes and a signed distance in lines; -128 for no line.
int line_in_pairs(std::span<const std::byte> table, int first_line, std::int64_t offset) {
  std::int64_t line = first_line;
  std::int64_t end = 0;
  for (std::size_t at = 0; at + 1 < table.size(); at += 2) {
    end += std::to_integer<int>(table[at]);
    const auto distance = static_cast<std::int8_t>(std::to_integer<int>(table[at + 1]));
    if (distance != -128) line += distance;
    if (offset < end) return distance == -128 ? 0 : static_cast<int>(line);
  }
  return 0;
}

// From 3.11 on: entries of a kind and a number of instructions, with a change of the line where there is one.
int line_in_entries(std::span<const std::byte> table, int first_line, std::int64_t index) {
  constexpr std::uint32_t kNone = 15;
  constexpr std::uint32_t kLong = 14;
  constexpr std::uint32_t kNoColumns = 13;
  constexpr std::uint32_t kOneLine = 10;
  TableReader reader(table);
  std::int64_t line = first_line;
  std::int64_t end = 0;
  while (!reader.is_at_end()) {
    const std::uint32_t head = reader.byte();
    const std::uint32_t kind = (head >> 3U) & 15U;
    end += (head & 7U) + 1;
    if (kind == kLong || kind == kNoColumns) line += reader.signed_number();
    if (kind == kLong) {
      for (int skipped = 0; skipped < 3; ++skipped) reader.number();
    } else if (kind >= kOneLine && kind < kNoColumns) {
      line += kind - kOneLine;
      reader.byte();
      reader.byte();
    } else if (kind < kOneLine) {
      reader.byte();
    }
    if (index < end) return kind == kNone ? 0 : static_cast<int>(line);
  }
  return 0;
}

/// One reading of a process.
class Reading {
 public:
  Reading(pid_t pid, const Layout& layout) : pid_(pid), layout_(layout) {}

  [[nodiscard]] std::vector<PythonThread> threads(std::uint64_t runtime) {
    std::vector<PythonThread> found;
    std::uint64_t thread = pointer(pointer(runtime + layout_.interpreters), layout_.threads);
    for (; thread != 0 && found.size() < kMostThreads; thread = pointer(thread, kNextThread)) {
      PythonThread read{.frames = frames(thread)};
      if (layout_.tid != 0) read.tid = pointer(thread, layout_.tid);
      found.push_back(std::move(read));
    }
    return found;
  }

 private:
  // The word at `base + offset`; 0 if it cannot be read or `base` is 0.
  [[nodiscard]] std::uint64_t pointer(std::uint64_t base, std::uint64_t offset = 0) const {
    return base == 0 ? 0 : read_foreign<std::uint64_t>(pid_, base + offset).value_or(0);
  }

  [[nodiscard]] std::vector<std::string> frames(std::uint64_t thread) {
    std::vector<std::string> found;
    std::uint64_t frame = pointer(thread, layout_.frame);
    if (layout_.has_hold) frame = pointer(frame, layout_.frame_in_hold);
    for (int seen = 0; frame != 0 && seen < kMostSkipped && found.size() < kMostFrames; ++seen) {
      if (auto text = describe(frame); !text.empty()) found.push_back(std::move(text));
      frame = pointer(frame, layout_.previous);
    }
    return found;
  }

  // Empty for a frame without a function.
  [[nodiscard]] std::string describe(std::uint64_t frame) {
    const auto owner =
        layout_.owner == 0 ? std::uint8_t{0} : read_foreign<std::uint8_t>(pid_, frame + layout_.owner).value_or(0);
    const std::uint64_t code = pointer(frame, layout_.code);
    if (code == 0 || (layout_.minor >= 12 && owner == kOwnedByCStack)) return {};
    const auto file = text(pointer(code, layout_.file));
    const auto name = text(pointer(code, layout_.name));
    if (file.empty() && name.empty()) return {};
    const int line = line_of(frame, code);
    return fmt::format("File \"{}\", line {} in {}", file, line == 0 ? "?" : std::to_string(line), name);
  }

  [[nodiscard]] int line_of(std::uint64_t frame, std::uint64_t code) const {
    const auto first = read_foreign<std::int32_t>(pid_, code + layout_.first_line).value_or(0);
    const std::uint64_t table = pointer(code, layout_.lines);
    const std::uint64_t length = pointer(table, kTextLength);
    if (length == 0 || length > kMostLineTable) return first;
    std::vector<std::byte> bytes(length);
    if (!read_foreign_memory(pid_, table + kBytesData, bytes)) return first;
    const auto index =
        layout_.instructions == 0
            ? std::int64_t{read_foreign<std::int32_t>(pid_, frame + layout_.position).value_or(0)}
            : static_cast<std::int64_t>(pointer(frame, layout_.position) - code - layout_.instructions) / 2;
    return line_of_instruction(layout_.minor, bytes, first, std::max<std::int64_t>(index, 0));
  }

  // The text of an ASCII str, made printable; "?" for others.
  [[nodiscard]] std::string text(std::uint64_t object) const {
    const std::uint64_t length = std::min(pointer(object, kTextLength), kMostTextBytes);
    if (object == 0 || length == 0) return {};
    const auto state = read_foreign<std::uint32_t>(pid_, object + kTextState).value_or(0);
    if ((state & kIsAscii) == 0) return "?";
    std::string letters(length, '\0');
    if (!read_foreign_memory(pid_, object + layout_.text, std::as_writable_bytes(std::span(letters)))) return {};
    return printable(letters, kMostTextBytes);
  }

  pid_t pid_;
  const Layout& layout_;
};

}  // namespace

int line_of_instruction(int minor, std::span<const std::byte> table, int first_line, std::int64_t index) {
  return minor <= 10 ? line_in_pairs(table, first_line, 2 * index) : line_in_entries(table, first_line, index);
}

std::vector<PythonThread> read_python_stacks(pid_t pid, const std::filesystem::path& proc) {
  const auto root = proc / std::to_string(pid) / "root";
  for (const auto& piece : read_mapped_pieces(pid, proc)) {
    const auto minor = piece.offset == 0 ? minor_of(piece.path) : std::nullopt;
    const auto* const layout = std::ranges::find(kLayouts, minor.value_or(0), &Layout::minor);
    if (!minor || layout == kLayouts.end()) continue;
    auto variable = find_elf_variable(root.string() + piece.path, "_PyRuntime");
    if (!variable) variable = find_elf_variable(piece.path, "_PyRuntime");
    if (variable) return Reading(pid, *layout).threads(piece.begin + *variable);
  }
  return {};
}

}  // namespace drover::process
