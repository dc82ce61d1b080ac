// The conformance suite on emulated devices.
#include "conformance/backend_suite.hpp"

namespace drover::test {

INSTANTIATE_TEST_SUITE_P(Host, BackendSuite, testing::Values(BackendKind::host), backend_name);

}  // namespace drover::test
