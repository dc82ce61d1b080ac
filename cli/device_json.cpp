#include "device_json.hpp"

#include <array>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::cli {
namespace {

template <class Value>
Json value_or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class Value>
std::optional<Value> optional_at(const Json& json, const char* key) {
  const auto& value = json.at(key);
  return value.is_null() ? std::nullopt : std::optional(value.get<Value>());
}

Json result_json(const std::optional<ForeignResult>& result) {
  return result ? Json{{"code", result->code}, {"text", result->text}} : Json(nullptr);
}

Json list_json(const std::vector<DeviceInfo>& devices) {
  auto list = Json::array();
  for (const auto& device : devices) list.push_back(to_json(device, std::nullopt));
  return list;
}

std::optional<ForeignResult> result_at(const Json& json, const char* key) {
  const auto& value = json.at(key);
  if (value.is_null()) return std::nullopt;
  return ForeignResult{.code = value.at("code").get<int>(), .text = value.at("text").get<std::string>()};
}

ComputeMode compute_mode_from(const std::optional<std::string>& name) {
  for (const auto mode : {ComputeMode::shared, ComputeMode::exclusive_process, ComputeMode::prohibited}) {
    if (name == to_string(mode)) return mode;
  }
  return ComputeMode::unknown;
}

DeviceInfo info_from(const Json& json) {
  DeviceInfo info;
  info.backend = json.at("backend").get<std::string>() == "cuda" ? BackendKind::cuda : BackendKind::host;
  info.index = json.at("index").get<int>();
  info.name = json.at("name").get<std::string>();
  info.uuid = parse_uuid(json.at("uuid").get<std::string>()).value_or(Uuid{});
  info.memory_total = optional_at<std::uint64_t>(json, "memory_total").value_or(0);
  info.pci = optional_at<std::string>(json, "pci").value_or("");
  info.numa_node = optional_at<int>(json, "numa_node");
  info.compute_mode = compute_mode_from(optional_at<std::string>(json, "compute_mode"));
  info.mig_enabled = optional_at<bool>(json, "mig_enabled");
  info.is_mig_instance = json.at("is_mig_instance").get<bool>();
  info.mps_running = json.at("mps_running").get<bool>();
  return info;
}

std::vector<DeviceInfo> infos_at(const Json& json, const char* key) {
  std::vector<DeviceInfo> infos;
  for (const auto& entry : json.at(key)) infos.push_back(info_from(entry));
  return infos;
}

}  // namespace

Json to_json(const DeviceInfo& info, std::optional<std::uint64_t> memory_free) {
  const bool is_mode_known = info.compute_mode != ComputeMode::unknown;
  return {{"id", device_id(info)},
          {"backend", to_string(info.backend)},
          {"index", info.index},
          {"name", info.name},
          {"uuid", uuid_text(info)},
          {"memory_total", info.memory_total == 0 ? Json(nullptr) : Json(info.memory_total)},
          {"memory_free", value_or_null(memory_free)},
          {"pci", info.pci.empty() ? Json(nullptr) : Json(info.pci)},
          {"numa_node", value_or_null(info.numa_node)},
          {"compute_mode", is_mode_known ? Json(to_string(info.compute_mode)) : Json(nullptr)},
          {"mig_enabled", value_or_null(info.mig_enabled)},
          {"is_mig_instance", info.is_mig_instance},
          {"mps_running", info.mps_running}};
}

Json to_json(const DriverReport& report) {
  return {{"cuda_library", report.cuda_library},
          {"cuda_library_error", report.cuda_library_error},
          {"cuda_version", report.cuda_version},
          {"missing_symbols", report.missing_symbols},
          {"cuda_init", result_json(report.cuda_init)},
          {"nvml_library_error", report.nvml_library_error},
          {"nvml_init", result_json(report.nvml_init)},
          {"driver_version", report.driver_version},
          {"present", list_json(report.present)},
          {"visible", list_json(report.visible)},
          {"unmatched", report.unmatched}};
}

DriverReport report_from_json(std::string_view text) {
  try {
    const auto json = Json::parse(text);
    DriverReport report;
    report.cuda_library = json.at("cuda_library").get<std::string>();
    report.cuda_library_error = json.at("cuda_library_error").get<std::string>();
    report.cuda_version = json.at("cuda_version").get<int>();
    report.missing_symbols = json.at("missing_symbols").get<std::vector<std::string>>();
    report.cuda_init = result_at(json, "cuda_init");
    report.nvml_library_error = json.at("nvml_library_error").get<std::string>();
    report.nvml_init = result_at(json, "nvml_init");
    report.driver_version = json.at("driver_version").get<std::string>();
    report.present = infos_at(json, "present");
    report.visible = infos_at(json, "visible");
    report.unmatched = json.at("unmatched").get<std::vector<std::string>>();
    return report;
  } catch (const nlohmann::json::exception& error) {
    throw Error(Errc::corrupt, fmt::format("the driver's report cannot be parsed: {}", error.what()));
  }
}

std::string dumped(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace drover::cli
