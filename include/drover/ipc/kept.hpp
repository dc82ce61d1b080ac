// drover/ipc/kept.hpp: what a session keeps under names, whoever dies.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "drover/ipc/lease.hpp"

namespace drover {

inline constexpr std::size_t kMostKept = 4096;                 ///< names in one session
inline constexpr std::size_t kMostKeptNameBytes = 128;         ///< of a name
inline constexpr std::size_t kMostKeptDescriptionBytes = 256;  ///< of a description
inline constexpr std::size_t kMostKeptRecordBytes = 1024;      ///< of a record
inline constexpr std::size_t kMostKeptLeases = 32;             ///< under one name

/// What is known of something kept, for people.
struct KeptInfo {
  std::string name;                ///< by which it is recalled
  std::string description;         ///< as who kept it said
  std::uint64_t bytes = 0;         ///< of its blocks, each counted once
  std::uint32_t leases = 0;        ///< how many the session holds for it
  std::chrono::sys_seconds since;  ///< when it was kept

  /// The same in every respect.
  friend bool operator==(const KeptInfo&, const KeptInfo&) = default;
};

/// What `Membership::recall` gives.
struct Recalled {
  std::vector<std::byte> record;  ///< as it was kept
  std::vector<Lease> leases;      ///< new ones of this process, on the blocks that were kept, in their order
};

}  // namespace drover
