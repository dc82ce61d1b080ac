// GPUs do what every backend must do; skipped, with the reason, where none can be used.
#include "conformance/backend_suite.hpp"

namespace drover::test {

INSTANTIATE_TEST_SUITE_P(Cuda, BackendSuite, testing::Values(BackendKind::cuda), backend_name);

}  // namespace drover::test
