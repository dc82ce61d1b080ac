// The conformance suite on GPUs; skipped, with the reason, if there is none.
#include "conformance/backend_suite.hpp"

namespace drover::test {

INSTANTIATE_TEST_SUITE_P(Cuda, BackendSuite, testing::Values(BackendKind::cuda), backend_name);

}  // namespace drover::test
