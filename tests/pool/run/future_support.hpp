// Helpers for tests of futures.
#pragma once

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "drover/pool/future.hpp"

namespace drover::test {

/// A future and the state that completes it.
template <class Result>
struct To {
  std::shared_ptr<detail::FutureValue<Result>> state = std::make_shared<detail::FutureValue<Result>>();
  Future<Result> future{state};

  template <class... Given>
  bool set(Given&&... given) const {
    return state->set(std::forward<Given>(given)...);
  }
  bool fail(const std::exception_ptr& error) const { return state->fail(error); }
};

/// A future with its result.
template <class Result>
Future<Result> made(Result value) {
  const To<Result> to;
  to.set(std::move(value));
  return to.future;
}

inline std::exception_ptr failure(const std::string& text) {
  return std::make_exception_ptr(std::runtime_error(text));
}

/// Fails unless it is done, with a std::runtime_error of this text.
template <class Result>
void expect_throws(const Future<Result>& future, const std::string& text) {
  ASSERT_TRUE(future.is_done());
  try {
    static_cast<void>(future.get());
    FAIL() << "it has a value";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), text);
  }
}

}  // namespace drover::test
