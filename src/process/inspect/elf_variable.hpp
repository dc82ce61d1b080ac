// process/inspect/elf_variable.hpp: finds a variable of a program or library in the memory of a process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace drover::process {

/// Where a variable lies in an ELF file, relative to the address at which the start of the file is mapped; nullopt
/// unless it is a 64-bit file of this byte order with such a symbol. The file is not trusted.
[[nodiscard]] std::optional<std::uint64_t> find_elf_variable(const std::filesystem::path& path,
                                                             std::string_view name);

}  // namespace drover::process
