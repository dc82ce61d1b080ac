// drover devices: the devices that programs on this machine will use, and why.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "device_json.hpp"
#include "drover/base/bytes.hpp"
#include "drover/base/error.hpp"
#include "drover/device/backend.hpp"
#include "output.hpp"

namespace drover::cli {
namespace {

struct Options {
  bool is_json = false;
  bool is_all = false;
};

struct Entry {
  DeviceInfo info;
  std::optional<MemoryInfo> memory;  // nullopt if the device does not report it
};

struct DeviceList {
  std::string backend;
  std::string reason;
  std::vector<Entry> entries;
};

std::optional<MemoryInfo> memory_if_known(const Backend& backend, int device) {
  try {
    return backend.memory_info(device);
  } catch (const Error&) {  // a faulty device is still listed
    return std::nullopt;
  }
}

DeviceList list_devices(const Options& options) {
  const auto& selection = select_backend();
  DeviceList list{std::string(to_string(selection.backend.kind())), selection.reason, {}};
  std::vector<Backend*> backends = {&selection.backend};
  if (options.is_all) backends = available_backends();
  for (const auto* backend : backends) {
    for (const auto& info : backend->devices()) {
      list.entries.push_back({info, memory_if_known(*backend, info.index)});
    }
  }
  return list;
}

std::string mode_text(const DeviceInfo& info) {
  std::string text(to_string(info.compute_mode));
  if (info.is_mig_instance) {
    text += ", MIG instance";
  } else if (info.mig_enabled.value_or(false)) {
    text += ", MIG";
  }
  if (info.mps_running) text += ", MPS";
  return text;
}

std::string memory_text(const Entry& entry) {
  const auto total = format_bytes(entry.memory ? entry.memory->total : entry.info.memory_total);
  return fmt::format("{} / {}", entry.memory ? format_bytes(entry.memory->used()) : "?", total);
}

std::string as_text(const DeviceList& list) {
  std::vector<std::vector<std::string>> rows = {{"ID", "NAME", "UUID", "MEMORY USED/TOTAL", "PCI", "NUMA", "MODE"}};
  for (const auto& entry : list.entries) {
    const auto& info = entry.info;
    rows.push_back({device_id(info), info.name, uuid_text(info), memory_text(entry),
                    info.pci.empty() ? "-" : info.pci, info.numa_node ? std::to_string(*info.numa_node) : "-",
                    mode_text(info)});
  }
  return fmt::format("backend: {} ({})\n{}", list.backend, list.reason, format_table(rows));
}

std::string as_json(const DeviceList& list) {
  auto devices = Json::array();
  for (const auto& [info, memory] : list.entries) {
    devices.push_back(to_json(info, memory ? std::optional(memory->free) : std::nullopt));
  }
  return dumped({{"backend", list.backend}, {"reason", list.reason}, {"devices", std::move(devices)}}, 2);
}

constexpr const char* kDevicesFooter =
    R"(The first line names the backend that programs will use, and the reason. DROVER_BACKEND=host or cuda overrides it;
DROVER_HOST_DEVICES and DROVER_HOST_MEMORY configure the emulated devices. No CUDA context is created.

Examples:
  drover devices
  drover devices --all                           GPUs and emulated devices
  drover devices --json | jq -r '.devices[].uuid'
  DROVER_BACKEND=host DROVER_HOST_DEVICES=4 drover devices)";

}  // namespace

void add_devices(CLI::App& app, Run& run) {
  auto* const command = app.add_subcommand("devices", "List the devices that programs will use, and why");
  const auto options = std::make_shared<Options>();  // shared with the callback, which outlives this function
  command->add_flag("--json", options->is_json, "Print JSON");
  command->add_flag("--all", options->is_all,
                    "Show the devices of every available backend, not only of the selected one");
  command->footer(kDevicesFooter);
  command->callback([options, &run] {
    run = [options] {
      const auto list = list_devices(*options);
      write_output(options->is_json ? as_json(list) : as_text(list));
      return exit_good;
    };
  });
}

}  // namespace drover::cli
