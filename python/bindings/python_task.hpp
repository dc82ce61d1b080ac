// python/bindings/python_task.hpp: the task by which workers run Python functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "drover/pool/task.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover {

namespace python {

/// A function and its argument. The spans refer to memory of the sender, or to the received message.
struct Packet {
  std::span<const std::byte> function;  ///< as encoded by drover/_functions.py
  std::span<const std::byte> payload;   ///< a pickle
  std::span<const Tensor> function_tensors;
  std::vector<Tensor> tensors;  ///< once received: with those of the function in front
};

/// The result of a call.
struct Answer {
  bool is_error = false;  ///< whether the payload is an exception
  std::string payload;    ///< a pickle
  std::vector<Tensor> tensors;
};

[[nodiscard]] const Task<Answer(Packet)>& python_task();
/// Runs `drover._worker.start(payload, tensors)` in each worker before its first task.
[[nodiscard]] const Task<void(Packet)>& python_start_task();

}  // namespace python

template <>
struct Codec<python::Packet> {
  static void write(Encoder& to, const python::Packet& packet) {
    to.write_bytes(packet.function);
    to.write_bytes(packet.payload);
    to.begin_list(packet.function_tensors.size() + packet.tensors.size());
    for (const Tensor& tensor : packet.function_tensors) to.write(tensor);
    for (const Tensor& tensor : packet.tensors) to.write(tensor);
  }
  static python::Packet read(Decoder& from) {
    python::Packet packet;
    packet.function = from.read_bytes();
    packet.payload = from.read_bytes();
    for (std::size_t left = from.read_list(); left > 0; --left) packet.tensors.push_back(from.read_tensor());
    return packet;
  }
  static std::string name() { return "python call"; }
};

template <>
struct Codec<python::Answer> {
  static void write(Encoder& to, const python::Answer& answer) {
    to.write(answer.is_error);
    to.write_bytes(std::as_bytes(std::span(answer.payload)));
    to.begin_list(answer.tensors.size());
    for (const Tensor& tensor : answer.tensors) to.write(tensor);
  }
  static python::Answer read(Decoder& from) {
    python::Answer answer;
    answer.is_error = from.read_bool();
    const auto bytes = from.read_bytes();
    answer.payload.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for (std::size_t left = from.read_list(); left > 0; --left) answer.tensors.push_back(from.read_tensor());
    return answer;
  }
  static std::string name() { return "python object"; }
};

}  // namespace drover
