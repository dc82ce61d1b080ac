// What the tests of arguments and results share.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drover/pool/codec.hpp"
#include "drover/tensor/memory.hpp"
#include "support/test_session.hpp"

namespace drover::test {

/// Memory of a session in which this test is alone.
class OwnMemory {
 public:
  OwnMemory() : member_(session_.join()), memory_(member_) {}
  [[nodiscard]] const std::shared_ptr<Membership>& member() const { return member_; }
  [[nodiscard]] const Memory& memory() const { return memory_; }

 private:
  TestSession session_;
  std::shared_ptr<Membership> member_;
  Memory memory_;
};

/// The bytes of a text.
inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Bytes by their numbers.
inline std::string raw(std::initializer_list<unsigned> numbers) {
  std::string text;
  for (const unsigned number : numbers) text.push_back(static_cast<char>(number));
  return text;
}

/// A value as it travels.
template <class Type>
std::string written(const Type& value) {
  Encoder to;
  Codec<Type>::write(to, value);
  return to.bytes();
}

/// Reads a value that must be all there is.
template <class Type>
Type read_all(const std::string& bytes, std::span<const Tensor> tensors = {}) {
  Decoder from(bytes_of(bytes), tensors);
  Type value = Codec<Type>::read(from);
  Decoder::check(from.is_done());
  return value;
}

/// What arrives where a value was sent.
template <class Type>
Type sent(const Type& value) {
  return read_all<Type>(written(value));
}

}  // namespace drover::test
