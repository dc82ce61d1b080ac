#include "support/expect_error.hpp"

#include <exception>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"

namespace drover::test {

void expect_error(Errc code, const std::function<void()>& action, const std::vector<std::string>& parts) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    const std::string text = error.what();
    for (const auto& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected drover::Error with code " << to_string(code) << ", got: " << error.what();
    return;
  }
  ADD_FAILURE() << "expected an error with code " << to_string(code) << ", but nothing was thrown";
}

}  // namespace drover::test
