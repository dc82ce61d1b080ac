// drover/observe/doctor.hpp: says what is wrong with a machine's GPUs and limits, and what to do about it.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "drover/observe/facts.hpp"

namespace drover {

/// How much a finding matters, in rising order.
enum class Severity {
  ok,       ///< as it should be
  note,     ///< good to know; nothing needs doing
  warning,  ///< works, but will hurt under load or surprise
  failure,  ///< something asked for cannot work
};

/// All severities, in rising order.
inline constexpr std::array kAllSeverities = {Severity::ok, Severity::note, Severity::warning, Severity::failure};

/// One thing the doctor looked at.
struct Finding {
  std::string id;                    ///< stable kebab-case name of the check, e.g. "driver-library"
  Severity severity = Severity::ok;  ///< how much it matters
  std::string summary;               ///< one line
  std::string remedy;                ///< an instruction; empty when ok, and when a note needs nothing done
};

/// Judges. Pure: the same facts give the same findings, in a fixed order, each id at most once. A check that does
/// not apply to the machine (MIG without a GPU) gives no finding.
[[nodiscard]] std::vector<Finding> diagnose(const Facts& facts);

/// The highest severity among them; `ok` when there are none.
[[nodiscard]] Severity worst(const std::vector<Finding>& findings) noexcept;

/// "ok", "note", "warning" or "failure".
[[nodiscard]] std::string_view to_string(Severity severity) noexcept;

}  // namespace drover
