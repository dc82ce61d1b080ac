// The emulated devices do what every backend must do.
#include "conformance/backend_suite.hpp"

namespace drover::test {

INSTANTIATE_TEST_SUITE_P(Host, BackendSuite, testing::Values(BackendKind::host), backend_name);

}  // namespace drover::test
