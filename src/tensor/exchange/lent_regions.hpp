// tensor/exchange/lent_regions.hpp: device memory of this process's tensors that other libraries of it work with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "drover/base/mutex.hpp"
#include "drover/device/memory.hpp"
#include "drover/tensor/place.hpp"

namespace drover {

class TensorStorage;

/// Which addresses of devices belong to which storage, while another library has them: an array that lies there is a
/// tensor already, and is sent as one. One for the process. Safe for all threads.
class LentRegions {
 public:
  [[nodiscard]] static LentRegions& instance();

  /// Lends one block as long as it lives; to be destroyed before the storage, in the process that made it.
  class Entry {
   public:
    explicit Entry(const std::shared_ptr<TensorStorage>& storage);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    std::uint64_t begin_ = 0;
    std::uint64_t number_ = 0;
  };

  /// The storage in whose block all these bytes lie, the one lent last if there are several; null if there is none.
  [[nodiscard]] std::shared_ptr<TensorStorage> find(const Place& place, DevicePtr begin, std::uint64_t bytes)
      DROVER_EXCLUDES(mutex_);

 private:
  struct Region {
    Place place;
    std::uint64_t bytes = 0;
    std::weak_ptr<TensorStorage> storage;  // that of the latest entry
  };

  Mutex mutex_;
  // By address, and then by the order in which they came.
  std::map<std::pair<std::uint64_t, std::uint64_t>, Region> regions_ DROVER_GUARDED_BY(mutex_);
  std::uint64_t next_ DROVER_GUARDED_BY(mutex_) = 1;
};

}  // namespace drover
