#include "pool/watch/board.hpp"

#include <unistd.h>

#include <chrono>
#include <new>
#include <utility>

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"

namespace drover {

OwnBoard::OwnBoard(Fd file, Mapping mapping) noexcept
    : file_(std::move(file)), mapping_(std::move(mapping)), board_(reinterpret_cast<Board*>(mapping_.data())) {}

OwnBoard OwnBoard::make(std::string_view pool_name) {
  Fd file = make_memory_file(kBoardFileName, sizeof(Board));
  Mapping mapping = Mapping::shared(file, sizeof(Board));
  new (mapping.data()) Board;
  OwnBoard made(std::move(file), std::move(mapping));
  made.board().application = static_cast<std::uint32_t>(::getpid());
  made.board().started = board_now();
  set_text(made.board().pool, pool_name);
  return made;
}

OwnBoard OwnBoard::open(Fd file) {
  if (check_memory_file(file) != sizeof(Board)) {
    throw Error(Errc::corrupt, "the board of a pool has a wrong size",
                "application and workers must be the same program");
  }
  Mapping mapping = Mapping::shared(file, sizeof(Board));
  OwnBoard opened(std::move(file), std::move(mapping));
  if (opened.board().magic != kBoardMagic || opened.board().version != kBoardVersion) {
    throw Error(Errc::corrupt, "the board of a pool has another version",
                "application and workers must be the same program");
  }
  return opened;
}

std::uint64_t board_now() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count());
}

}  // namespace drover
