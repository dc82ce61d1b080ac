// .npy files on disk.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/tensor/npy.hpp"
#include "support/build.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/temporary_folder.hpp"

namespace drover::tensor {
namespace {

using test::expect_error;
using test::FaultSeam;
using test::TemporaryFolder;

std::vector<std::int32_t> counting(std::size_t count) {
  std::vector<std::int32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 1);
  return numbers;
}

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::size_t entries(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

class NpyFiles : public testing::Test {
 protected:
  // Six numbers.
  [[nodiscard]] std::span<const std::byte> memory() const { return std::as_bytes(std::span(numbers_)); }
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "tensor.npy"; }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }
  [[nodiscard]] static TensorLayout matrix() { return TensorLayout::contiguous(DType::int32, {2, 3}); }
  [[nodiscard]] static std::vector<std::int32_t> numbers_in(const NpyFile& file) {
    std::vector<std::int32_t> numbers(file.data().size() / sizeof(std::int32_t));
    std::memcpy(numbers.data(), file.data().data(), file.data().size());
    return numbers;
  }

 private:
  TemporaryFolder folder_;
  const std::vector<std::int32_t> numbers_ = counting(6);
};

TEST_F(NpyFiles, files_round_trip) {
  write_npy(path(), matrix(), memory());
  const auto file = read_npy(path());
  EXPECT_EQ(file.layout(), matrix());
  EXPECT_EQ(numbers_in(file), counting(6));
  EXPECT_EQ(content(path()).size(), npy_header(matrix()).size() + 24);
  EXPECT_EQ(entries(folder()), 1U);
}

TEST_F(NpyFiles, views_are_written_in_row_major_order) {
  write_npy(path(), matrix().transpose(0, 1), memory());
  auto file = read_npy(path());
  EXPECT_EQ(file.layout(), TensorLayout::contiguous(DType::int32, {3, 2}));
  EXPECT_EQ(numbers_in(file), (std::vector<std::int32_t>{1, 4, 2, 5, 3, 6}));
  write_npy(path(), matrix().select(0, 1), memory());
  file = read_npy(path());
  EXPECT_EQ(numbers_in(file), (std::vector<std::int32_t>{4, 5, 6}));
}

TEST_F(NpyFiles, empty_tensors_and_scalars_round_trip) {
  write_npy(path(), TensorLayout::contiguous(DType::float64, {0, 3}), {});
  EXPECT_EQ(read_npy(path()).layout(), TensorLayout::contiguous(DType::float64, {0, 3}));
  EXPECT_TRUE(read_npy(path()).data().empty());
  write_npy(path(), TensorLayout::strided(DType::int32, {}, {}, 5), memory());
  EXPECT_EQ(numbers_in(read_npy(path())), (std::vector<std::int32_t>{6}));
}

TEST_F(NpyFiles, fortran_order_reads_with_its_strides) {
  auto text = npy_header(TensorLayout::contiguous(DType::uint8, {2, 2}));
  text.replace(text.find("False,"), 6, "True, ");
  put(path(), text + "\x01\x02\x03\x04");
  const auto file = read_npy(path());
  EXPECT_EQ(file.layout(), TensorLayout::strided(DType::uint8, {2, 2}, {1, 2}));
  EXPECT_EQ(file.data().size(), 4U);
}

TEST_F(NpyFiles, data_can_be_modified_and_moved) {
  write_npy(path(), matrix(), memory());
  auto file = read_npy(path());
  file.data()[0] = std::byte{9};
  const auto moved = std::move(file);
  EXPECT_EQ(numbers_in(moved)[0], 9);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(moved.data().data()) % 16, 0U);
  EXPECT_TRUE(file.data().empty());  // NOLINT(bugprone-use-after-move,hicpp-invalid-access-moved): that is the test
}

TEST_F(NpyFiles, missing_files_and_directories_throw) {
  expect_error(Errc::not_found, [&] { static_cast<void>(read_npy(path())); }, {path().string()});
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(read_npy(folder())); }, {"is a directory"});
  expect_error(Errc::invalid_argument, [] { static_cast<void>(read_npy("/dev/null")); }, {"device or pipe"});
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(read_npy(path())); }, {"device or pipe"});
}

TEST_F(NpyFiles, corrupt_files_throw_with_their_path) {
  put(path(), "");
  expect_error(Errc::corrupt, [&] { static_cast<void>(read_npy(path())); }, {path().string(), "is empty"});
  write_npy(path(), matrix(), memory());
  const auto whole = content(path());
  put(path(), whole.substr(0, whole.size() - 1));
  expect_error(Errc::corrupt, [&] { static_cast<void>(read_npy(path())); },
               {path().string(), "truncated: it has " + std::to_string(whole.size() - 1)});
  put(path(), "just text");
  expect_error(Errc::corrupt, [&] { static_cast<void>(read_npy(path())); }, {path().string(), "does not begin"});
}

TEST_F(NpyFiles, interrupted_reads_and_writes_resume) {
  const FaultSeam first("write", EINTR, {.nth = 1, .times = 2});
  const FaultSeam second("pread", EINTR, {.nth = 1, .times = 2});
  write_npy(path(), matrix(), memory());
  EXPECT_EQ(numbers_in(read_npy(path())), counting(6));
  EXPECT_EQ(first.strikes() + second.strikes(), 4);
}

TEST_F(NpyFiles, failed_reads_throw) {
  write_npy(path(), matrix(), memory());
  for (const char* const call : {"open", "fstat", "pread"}) {
    const FaultSeam fail(call, EIO);
    expect_error(Errc::system, [&] { static_cast<void>(read_npy(path())); }, {call, "tensor.npy"});
  }
  const FaultSeam fail("pread", EIO, {.nth = 2});
  expect_error(Errc::system, [&] { static_cast<void>(read_npy(path())); }, {"pread"});
}

// Whichever step fails, the old file is unchanged, and no other file is left.
TEST_F(NpyFiles, failed_write_leaves_the_old_file_and_nothing_else) {
  write_npy(path(), matrix(), memory());
  const auto old = content(path());
  const auto fresh = TensorLayout::contiguous(DType::int32, {6});
  for (const char* const call : {"open", "write", "fsync", "rename"}) {
    SCOPED_TRACE(call);
    const FaultSeam fail(call, ENOSPC);
    expect_error(Errc::limit_reached, [&] { write_npy(path(), fresh, memory()); }, {call, "free space"});
    EXPECT_EQ(content(path()), old);
    EXPECT_EQ(entries(folder()), 1U);
  }
  const FaultSeam fail("write", ENOSPC, {.nth = 2});
  expect_error(Errc::limit_reached, [&] { write_npy(path(), fresh, memory()); }, {"24 B"});
  EXPECT_EQ(content(path()), old);
  EXPECT_EQ(entries(folder()), 1U);
}

TEST_F(NpyFiles, existing_temporary_files_are_skipped) {
  const FaultSeam taken("open", EEXIST, {.nth = 1, .times = 1});
  write_npy(path(), matrix(), memory());
  EXPECT_EQ(taken.strikes(), 1);
  EXPECT_EQ(entries(folder()), 1U);
}

TEST_F(NpyFiles, writing_to_an_invalid_path_throws) {
  expect_error(Errc::invalid_argument, [&] { write_npy(folder(), matrix(), memory()); }, {"is a directory"});
  expect_error(Errc::invalid_argument, [&] { write_npy("", matrix(), memory()); }, {"is a directory"});
  expect_error(Errc::not_found, [&] { write_npy(folder() / "no" / "x.npy", matrix(), memory()); }, {"no"});
  expect_error(Errc::unsupported,
               [&] { write_npy(path(), TensorLayout::contiguous(DType::bfloat16, {2}), memory()); }, {"float32"});
  expect_error(Errc::invalid_argument,
               [&] { write_npy(path(), TensorLayout::contiguous(DType::int32, {7}), memory()); }, {"of 24 bytes"});
  EXPECT_EQ(entries(folder()), 0U);
}

TEST_F(NpyFiles, expanded_tensor_larger_than_memory_throws_and_leaves_no_file) {
  if (test::kIsSanitized) GTEST_SKIP() << "sanitizers abort on allocations of this size";
  const auto huge = TensorLayout::contiguous(DType::int32, {1, 1}).expand({1 << 30, std::int64_t{1} << 28U});
  expect_error(Errc::out_of_memory, [&] { write_npy(path(), huge, memory()); }, {"no memory", "tensor.npy"});
  EXPECT_EQ(entries(folder()), 0U);
}

TEST_F(NpyFiles, longest_names_and_bare_names_are_accepted) {
  const auto longest = folder() / (std::string(251, 'n') + ".npy");
  write_npy(longest, matrix(), memory());
  EXPECT_EQ(numbers_in(read_npy(longest)), counting(6));
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder());
  write_npy("plain.npy", matrix(), memory());
  std::filesystem::current_path(before);
  EXPECT_EQ(numbers_in(read_npy(folder() / "plain.npy")), counting(6));
}

TEST_F(NpyFiles, mode_of_a_new_file_follows_the_umask) {
  const auto old = ::umask(027);
  write_npy(path(), matrix(), memory());
  ::umask(old);
  EXPECT_EQ(std::filesystem::status(path()).permissions(), static_cast<std::filesystem::perms>(0640));
}

}  // namespace
}  // namespace drover::tensor
