#include <algorithm>
#include <cstring>

#include "drover/tensor/tensor_layout.hpp"
#include "tensor/layout/memory_check.hpp"
#include "tensor/layout/runs.hpp"

namespace drover {
namespace {

using detail::Run;

// Both memories, and where the copy is in them, in bytes.
struct Places {
  std::byte* to;
  const std::byte* from;
};

// Elements one by one; a constant size makes the copy a move of a register.
template <std::size_t Size>
void copy_row(Places at, const Run& run) noexcept {
  const auto to_way = run.ways[0] * static_cast<std::int64_t>(Size);
  const auto from_way = run.ways[1] * static_cast<std::int64_t>(Size);
  for (std::int64_t i = 0; i < run.size; ++i) {
    std::memcpy(at.to + i * to_way, at.from + i * from_way, Size);
  }
}

using CopyRow = void (*)(Places, const Run&) noexcept;

CopyRow row_copy_for(std::size_t element_size) noexcept {
  switch (element_size) {
    case 1: return copy_row<1>;
    case 2: return copy_row<2>;
    case 4: return copy_row<4>;
    case 8: return copy_row<8>;
    default: return copy_row<16>;
  }
}

// Every run but the last is walked by counting; the last is a row.
void copy_runs(Places at, const std::vector<Run>& runs, std::size_t element_size) {
  const Run& row = runs.back();
  const bool is_whole = row.ways[0] == 1 && row.ways[1] == 1;
  const CopyRow copy = row_copy_for(element_size);
  const auto size = static_cast<std::int64_t>(element_size);
  std::vector<std::int64_t> counts(runs.size() - 1, 0);
  for (;;) {
    if (is_whole) {
      std::memcpy(at.to, at.from, static_cast<std::size_t>(row.size) * element_size);
    } else {
      copy(at, row);
    }
    std::size_t dim = counts.size();
    for (; dim > 0; --dim) {
      const Run& run = runs[dim - 1];
      const bool is_last = ++counts[dim - 1] == run.size;
      const std::int64_t steps = is_last ? 1 - run.size : 1;
      if (is_last) counts[dim - 1] = 0;
      at.to += steps * run.ways[0] * size;
      at.from += steps * run.ways[1] * size;
      if (!is_last) break;
    }
    if (dim == 0) return;
  }
}

}  // namespace

void copy_strided(std::span<std::byte> to, const TensorLayout& to_layout, std::span<const std::byte> from,
                  const TensorLayout& from_layout) {
  detail::check_memory(to_layout, to.size());
  detail::check_memory(from_layout, from.size());
  detail::check_copy(to_layout, from_layout);
  if (to_layout.element_count() == 0) return;
  // The order of elements is free here, so the steps in the target may go from large to small: more runs join.
  auto runs = detail::joined_runs(to_layout, from_layout);
  std::ranges::sort(runs, [](const Run& a, const Run& b) { return a.ways > b.ways; });
  runs = detail::joined(runs);
  if (runs.empty()) runs.push_back({.size = 1, .ways = {1, 1}});
  const Places start = {.to = to.data() + to_layout.extent_bytes().begin,
                        .from = from.data() + from_layout.extent_bytes().begin};
  copy_runs(start, runs, size_of(to_layout.dtype()));
}

}  // namespace drover
