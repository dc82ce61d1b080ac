// tests/support/expect_error.hpp: checks of drover::Error.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "drover/base/error.hpp"

namespace drover::test {

/// Fails the test unless `action` throws a drover::Error with `code` whose full text contains all `parts`. Use
/// SCOPED_TRACE to distinguish several calls.
void expect_error(Errc code, const std::function<void()>& action, const std::vector<std::string>& parts = {});

}  // namespace drover::test
