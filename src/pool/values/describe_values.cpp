#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/pool/codec.hpp"

namespace drover {
namespace {

constexpr int kDeepest = 8;
constexpr std::size_t kMostItems = 8;

enum class ValueKind : std::uint8_t { nothing, truth, real, number, large_number, text, bytes, tensor, list, map };

// The kind of a value, by its first byte. Corrupt bytes count as maps, which then cannot be read.
ValueKind kind_of(std::uint8_t first) {
  if (first < 0x80 || first >= 0xe0 || (first >= 0xd0 && first < 0xd4)) return ValueKind::number;
  if (first >= 0xcc && first < 0xd0) return ValueKind::large_number;
  if ((first >= 0xa0 && first < 0xc0) || (first >= 0xd9 && first < 0xdc)) return ValueKind::text;
  if ((first >= 0x90 && first < 0xa0) || first == 0xdc || first == 0xdd) return ValueKind::list;
  if (first >= 0xc4 && first < 0xc7) return ValueKind::bytes;
  if (first == 0xc0) return ValueKind::nothing;
  if (first == 0xc2 || first == 0xc3) return ValueKind::truth;
  if (first == 0xca || first == 0xcb) return ValueKind::real;
  return first == 0xd6 ? ValueKind::tensor : ValueKind::map;
}

std::string quoted(std::string_view text, std::size_t most) {
  std::string out = "\"";
  for (const char c : text.substr(0, most)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > most ? "...\"" : "\"");
}

}  // namespace

// Formats values, and skips the excess items of large ones.
class detail::ValueText {
 public:
  ValueText(Decoder from, std::size_t most) : from_(from), most_(most) {}

  [[nodiscard]] std::string all() {
    try {
      while (!from_.is_done() && out_.size() <= most_) {
        if (!out_.empty()) out_ += ", ";
        show(0);
      }
    } catch (const Error&) {
      out_ += "(broken)";
    }
    return out_.size() > most_ ? out_.substr(0, most_) + "..." : out_;
  }

 private:
  [[nodiscard]] ValueKind next_kind() const {
    Decoder::check(!from_.rest_.empty());
    return kind_of(std::to_integer<std::uint8_t>(from_.rest_.front()));
  }

  // Skips a value and returns the number of values that belong to it.
  std::size_t skip_one() {
    switch (next_kind()) {
      case ValueKind::list: return from_.read_list();
      case ValueKind::map: return 2 * from_.read_map();
      default: static_cast<void>(single()); return 0;
    }
  }

  // Without recursion, because the input decides how deep values are nested.
  void skip(std::size_t values) {
    for (; values > 0; --values) values += skip_one();
  }

  void show(int depth) {
    const auto kind = next_kind();
    if (kind == ValueKind::list) {
      show_items(from_.read_list(), 1, depth);
    } else if (kind == ValueKind::map) {
      show_items(from_.read_map(), 2, depth);
    } else {
      out_ += single();
    }
  }

  void show_items(std::size_t count, std::size_t values, int depth) {
    out_ += values == 1 ? '[' : '{';
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out_ += ", ";
      if (i == kMostItems || depth + 1 == kDeepest || out_.size() > most_) {
        skip((count - i) * values);
        out_ += "...";
        break;
      }
      show(depth + 1);
      if (values == 1) continue;
      out_ += ": ";
      show(depth + 1);
    }
    out_ += values == 1 ? ']' : '}';
  }

  std::string single() {
    switch (next_kind()) {
      case ValueKind::nothing: return from_.read_nothing() ? "nothing" : "";
      case ValueKind::truth: return from_.read_bool() ? "true" : "false";
      case ValueKind::real: return fmt::format("{}", from_.read_real());
      case ValueKind::number: return fmt::format("{}", from_.read_signed());
      case ValueKind::large_number: return fmt::format("{}", from_.read_unsigned());
      case ValueKind::text: return quoted(from_.read_text(), most_ / 2);
      case ValueKind::bytes: return fmt::format("{} of numbers", format_bytes(from_.read_bytes().size()));
      default: return describe(from_.read_tensor());
    }
  }

  static std::string describe(const Tensor& tensor) {
    return fmt::format("tensor {} at {}", to_string(tensor.layout()), to_string(tensor.place()));
  }

  Decoder from_;
  std::size_t most_;
  std::string out_;
};

std::string describe_values(std::span<const std::byte> bytes, std::span<const Tensor> tensors, std::size_t most) {
  return detail::ValueText(Decoder(bytes, tensors), most).all();
}

}  // namespace drover
