// Helpers for tests of arguments and results.
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

/// Memory of a session of its own.
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

/// Bytes with these values.
inline std::string raw(std::initializer_list<unsigned> numbers) {
  std::string text;
  for (const unsigned number : numbers) text.push_back(static_cast<char>(number));
  return text;
}

/// The encoded bytes of a value.
template <class Type>
std::string written(const Type& value) {
  Encoder to;
  Codec<Type>::write(to, value);
  return to.bytes();
}

/// Decodes a value that must use all input.
template <class Type>
Type read_all(const std::string& bytes, std::span<const Tensor> tensors = {}) {
  Decoder from(bytes_of(bytes), tensors);
  Type value = Codec<Type>::read(from);
  Decoder::check(from.is_done());
  return value;
}

/// A value after encoding and decoding.
template <class Type>
Type sent(const Type& value) {
  return read_all<Type>(written(value));
}

}  // namespace drover::test
