#include "ipc/ledger/kept_entry.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::ipc {

bool is_printable(std::string_view text) noexcept {
  return std::ranges::none_of(text, [](char letter) {
    const auto code = static_cast<unsigned char>(letter);
    return code < 0x20 || code == 0x7f;
  });
}

void check_kept_name(std::string_view name) {
  if (!name.empty() && name.size() <= kMostKeptNameBytes && is_printable(name)) return;
  throw Error(Errc::invalid_argument,
              fmt::format("a text of {} bytes{} cannot be a name under which a session keeps something", name.size(),
                          is_printable(name) ? "" : " with control characters"),
              fmt::format("use a name of 1 to {} bytes without control characters", kMostKeptNameBytes));
}

KeptEntry make_kept_entry(std::string_view name, std::span<const std::byte> record, std::string_view description) {
  check_kept_name(name);
  if (description.size() > kMostKeptDescriptionBytes || !is_printable(description)) {
    throw Error(Errc::invalid_argument,
                fmt::format("cannot keep '{}' with a description of {} bytes{}", name, description.size(),
                            is_printable(description) ? "" : " with control characters"),
                fmt::format("use a description of one line of at most {} bytes", kMostKeptDescriptionBytes));
  }
  if (record.size() > kMostKeptRecordBytes) {
    throw Error(Errc::invalid_argument,
                fmt::format("cannot keep '{}' with a record of {} bytes: the limit is {}", name, record.size(),
                            kMostKeptRecordBytes),
                "put larger data into a block");
  }
  return {.info = {.name = std::string(name), .description = std::string(description)},
          .record = {record.begin(), record.end()},
          .leases = {}};
}

}  // namespace drover::ipc
