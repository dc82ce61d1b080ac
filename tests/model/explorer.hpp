// tests/model/explorer.hpp: visits every state that a small concurrent system can reach.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace drover::model {

/// A transition from a state; the model defines the meaning of the number.
using Action = std::uint16_t;

/// The result of an exploration.
struct Finding {
  std::size_t states = 0;       ///< visited
  std::size_t steps = 0;        ///< taken, including those to states already visited
  std::size_t depth = 0;        ///< steps to the most distant state
  bool is_complete = false;     ///< every reachable state was visited
  std::string violation;        ///< what is wrong; empty if nothing
  std::vector<Action> actions;  ///< the shortest path to it from the initial state
};

/// The set of visited states, as a 64-bit hash each. Among ten million states, two share a hash with a probability of
/// about 1 in 400,000; then one of them, and states reachable through it alone, are skipped.
class VisitedStates {
 public:
  VisitedStates() : table_(std::size_t{1} << 16U, kEmpty) {}

  /// Inserts `hash`; returns whether it was new.
  bool insert(std::uint64_t hash) {
    if (2 * (count_ + 1) > table_.size()) grow();
    if (hash == kEmpty) hash = ~kEmpty;
    if (!put(hash)) return false;
    ++count_;
    return true;
  }

 private:
  static constexpr std::uint64_t kEmpty = 0;

  bool put(std::uint64_t hash) {
    const std::size_t mask = table_.size() - 1;
    for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
      if (table_[at] == hash) return false;
      if (table_[at] != kEmpty) continue;
      table_[at] = hash;
      return true;
    }
  }
  void grow() {
    std::vector<std::uint64_t> old(2 * table_.size(), kEmpty);
    table_.swap(old);
    for (const auto hash : old) {
      if (hash != kEmpty) put(hash);
    }
  }

  std::vector<std::uint64_t> table_;
  std::size_t count_ = 0;
};

/// Hashes the bytes of a state.
template <class State>
[[nodiscard]] std::uint64_t hash_of(const State& state) {
  static_assert(std::has_unique_object_representations_v<State>, "padding would make equal states differ");
  std::uint64_t hash = 0x9e3779b97f4a7c15U;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&state);
  for (std::size_t at = 0; at < sizeof(State); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof word, sizeof(State) - at));
    hash = (hash ^ word) * 0xff51afd7ed558ccdU;
    hash ^= hash >> 32U;
  }
  return hash * 0xc4ceb9fe1a85ec53U;
}

/// Breadth first over all states of `Model`, which has
///   - `State`, a trivially copyable type without padding,
///   - `State initial() const`,
///   - `void actions(const State&, std::vector<Action>&) const`: appends the possible next actions,
///   - `void apply(State&, Action) const`: performs an action,
///   - `std::string check(const State&) const`: what is wrong in this state; empty if nothing.
/// Stops at the first violation, or after `limit` states.
template <class Model>
class Explorer {
 public:
  using State = typename Model::State;

  explicit Explorer(const Model& model, std::size_t limit = std::numeric_limits<std::size_t>::max())
      : model_(model), limit_(limit) {}

  [[nodiscard]] Finding run() {
    visit(model_.initial(), Node{.parent = kNone, .action = 0});
    while (!next_.empty() && finding_.violation.empty() && nodes_.size() < limit_) {
      current_.swap(next_);
      next_.clear();
      ++finding_.depth;
      for (const auto& [state, node] : current_) expand(state, node);
    }
    finding_.is_complete = next_.empty() && finding_.violation.empty();
    finding_.states = nodes_.size();
    return finding_;
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  struct Node {
    std::uint32_t parent;
    Action action;
  };
  struct Reached {
    State state;
    std::uint32_t node;
  };

  void expand(const State& state, std::uint32_t node) {
    if (!finding_.violation.empty()) return;
    actions_.clear();
    model_.actions(state, actions_);
    for (const Action action : actions_) {
      State after = state;
      model_.apply(after, action);
      ++finding_.steps;
      visit(after, Node{.parent = node, .action = action});
      if (!finding_.violation.empty()) return;
    }
  }

  void visit(const State& state, Node node) {
    if (!visited_.insert(hash_of(state))) return;
    nodes_.push_back(node);
    next_.push_back({state, static_cast<std::uint32_t>(nodes_.size() - 1)});
    finding_.violation = model_.check(state);
    if (!finding_.violation.empty()) finding_.actions = way_to_last();
  }

  [[nodiscard]] std::vector<Action> way_to_last() const {
    std::vector<Action> way;
    for (auto at = static_cast<std::uint32_t>(nodes_.size() - 1); nodes_[at].parent != kNone;
         at = nodes_[at].parent) {
      way.push_back(nodes_[at].action);
    }
    std::ranges::reverse(way);
    return way;
  }

  const Model& model_;
  std::size_t limit_;
  Finding finding_;
  VisitedStates visited_;
  std::vector<Node> nodes_;
  std::vector<Reached> current_;
  std::vector<Reached> next_;
  std::vector<Action> actions_;
};

/// Explores a model.
template <class Model>
[[nodiscard]] Finding explore(const Model& model, std::size_t limit = std::numeric_limits<std::size_t>::max()) {
  return Explorer<Model>(model, limit).run();
}

}  // namespace drover::model
