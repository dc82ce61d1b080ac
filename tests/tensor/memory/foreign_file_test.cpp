// Shared memory of another library, a file, as a tensor that outlives the process that has sent it.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/mapping.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/tensor/send.hpp"
#include "session/client/session_helpers.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"
#include "tensor/memory/memory_support.hpp"
#include "tensor/tensor_access.hpp"

namespace drover::tensor {
namespace {

constexpr std::int64_t kBytes = 10'001;  // no multiple of a page

Fd make_file(std::uint64_t bytes) {
  Fd file(::memfd_create("of a library", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  return file;
}

class ForeignFile : public ::testing::Test {
 protected:
  [[nodiscard]] Tensor received() { return test::receive_tensor(there_, there_queue_); }

  test::TestSession session_;
  std::shared_ptr<Membership> sender_ = session_.join();
  std::shared_ptr<Membership> receiver_ = session_.join();
  std::optional<Memory> here_{sender_};
  Memory there_{receiver_};
  std::optional<Queue> queue_{sender_};
  Queue there_queue_{receiver_, queue_->handle()};
  Fd file_ = make_file(kBytes);
  Mapping library_ = Mapping::shared(file_, kBytes);
};

TEST_F(ForeignFile, memory_stays_shared_after_its_sender_has_left) {
  library_.bytes()[kBytes - 1] = std::byte{5};
  ASSERT_EQ(put(*queue_, TensorAccess::of_file(*here_, file_, kBytes)), PutResult::put);
  file_.reset();
  queue_.reset();
  here_.reset();
  sender_.reset();
  const Tensor tensor = received();
  EXPECT_EQ(tensor.layout().dtype(), DType::uint8);
  EXPECT_EQ(tensor.element_count(), kBytes);
  EXPECT_EQ(sum(tensor), 5.0);
  library_.bytes()[0] = std::byte{6};
  EXPECT_EQ(sum(tensor), 11.0);
  tensor.fill(1);
  EXPECT_EQ(library_.bytes()[1], std::byte{1});
}

TEST_F(ForeignFile, a_file_that_is_sent_repeatedly_is_one_slab) {
  const Tensor first = TensorAccess::of_file(*here_, file_, kBytes);
  const Fd second = file_.duplicate();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(put(*queue_, TensorAccess::of_file(*here_, second, kBytes)), PutResult::put);
  EXPECT_EQ(here_->usage().size(), 1U);
  const std::vector<Tensor> tensors{received(), received(), received()};
  EXPECT_EQ(there_.usage().size(), 1U);
}

TEST_F(ForeignFile, its_slab_ends_with_its_last_tensor) {
  ASSERT_EQ(put(*queue_, TensorAccess::of_file(*here_, file_, kBytes)), PutResult::put);
  here_->trim();
  EXPECT_EQ(here_->usage().size(), 1U) << "a message needs it";
  static_cast<void>(received());
  there_.trim();
  here_->trim();
  EXPECT_TRUE(here_->usage().empty());
  EXPECT_TRUE(there_.usage().empty());
}

TEST_F(ForeignFile, other_descriptors_are_refused) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Fd reader(ends[0]);
  const Fd writer(ends[1]);
  const auto import_from = [&](const Fd& file, std::int64_t bytes) {
    return [&, bytes] { static_cast<void>(TensorAccess::of_file(*here_, file, bytes)); };
  };
  test::expect_error(Errc::invalid_argument, import_from(reader, 1), {"is not a file", "1 B"});
  test::expect_error(Errc::invalid_argument, import_from(file_, kBytes + 1),
                     {"is not a file with", "at most its size"});
}

}  // namespace
}  // namespace drover::tensor
