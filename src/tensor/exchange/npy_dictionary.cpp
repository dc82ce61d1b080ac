#include "tensor/exchange/npy_dictionary.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::detail {
namespace {

constexpr std::string_view kSpaces = " \t\r\n\f\v";
constexpr std::size_t kMostSizes = 64;

// A reader of the few words of Python that a header has.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  NpyDictionary dictionary() {
    expect('{');
    while (!accept('}')) {
      entry();
      if (accept('}')) break;
      expect(',');
    }
    skip_spaces();
    if (at_ != text_.size()) fail("has text behind its dictionary");
    if (!descr_ || !is_fortran_ || !shape_) fail("lacks one of 'descr', 'fortran_order' and 'shape'");
    return {.descr = *descr_, .is_fortran = *is_fortran_, .shape = *shape_};
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw Error(Errc::corrupt, fmt::format("the header of a .npy file {}, at its character {}", what, at_),
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
    if (!accept(letter)) fail(fmt::format("has no '{}' where one must be", letter).c_str());
  }

  bool accept_word(std::string_view word) noexcept {
    skip_spaces();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  // In either kind of quotes; Python 2 may have put a u before them. There is nothing to escape in what is known
  // here.
  std::string quoted() {
    accept('u');
    skip_spaces();
    const char quote = accept('"') ? '"' : '\'';
    if (quote == '\'') expect(quote);
    const auto end = text_.find(quote, at_);
    const auto text = text_.substr(at_, end - at_);
    if (end == std::string_view::npos || text.find_first_of("\\\n") != std::string_view::npos) {
      fail("has a text without end");
    }
    at_ = end + 1;
    return std::string(text);
  }

  bool truth() {
    if (accept_word("True")) return true;
    if (!accept_word("False")) fail("has a fortran_order that is neither True nor False");
    return false;
  }

  std::int64_t size() {
    skip_spaces();
    std::int64_t number = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
    if (error != std::errc{} || number < 0) fail("has a size that is no number of 0 or more");
    at_ += static_cast<std::size_t>(end - begin);
    accept('L');  // Python 2 wrote long numbers so
    return number;
  }

  std::vector<std::int64_t> sizes() {
    std::vector<std::int64_t> numbers;
    bool has_comma = true;
    expect('(');
    while (!accept(')')) {
      if (!has_comma || numbers.size() == kMostSizes) fail("has a shape that is no tuple of sizes");
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
      fail("has a key twice, or one that is unknown");
    }
  }

  std::string type() {
    skip_spaces();
    if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(')) {
      throw Error(Errc::unsupported, "a .npy file holds structures, not numbers",
                  "save each field as an array of its own: numpy.save(path, array['field'])");
    }
    return quoted();
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::optional<std::string> descr_;
  std::optional<bool> is_fortran_;
  std::optional<std::vector<std::int64_t>> shape_;
};

}  // namespace

NpyDictionary parse_npy_dictionary(std::string_view text) { return Reader(text).dictionary(); }

}  // namespace drover::detail
