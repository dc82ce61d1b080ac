// tensor/exchange/npy_dictionary.hpp: the Python dictionary in the header of a .npy file; private.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace drover::detail {

/// What the dictionary says.
struct NpyDictionary {
  std::string descr;                ///< the type, as "<f4"
  bool is_fortran = false;          ///< whether the first index changes fastest
  std::vector<std::int64_t> shape;  ///< sizes of 0 or more
};

/// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }: keys in any order, each once, and no others.
/// Throws `Errc::corrupt`; `Errc::unsupported` if the type is a structure.
[[nodiscard]] NpyDictionary parse_npy_dictionary(std::string_view text);

}  // namespace drover::detail
