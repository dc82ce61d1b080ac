#include "pool/plan/devices.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::pool {
namespace {

constexpr const char* kForms =
    "write entries between commas: 0, cuda:0, host:1, GPU-1b7c, cpu or all; cuda:0*3 for three workers; or none "
    "alone";

constexpr std::size_t kMostUnasked = 64;  // default number of workers on a large machine

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::optional<std::size_t> number(std::string_view text) {
  std::size_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = !text.empty() && parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
  return is_whole ? std::optional(value) : std::nullopt;
}

// One entry of the list, with its repetitions.
struct Entry {
  std::string_view name;
  std::size_t times = 1;
  bool is_counted = false;
};

Entry read_entry(std::string_view text, const std::string& whole) {
  const auto star = text.find('*');
  Entry entry{.name = trimmed(text.substr(0, star))};
  if (star != std::string_view::npos) {
    const auto times = number(trimmed(text.substr(star + 1)));
    entry.times = times.value_or(0);
    entry.is_counted = true;
  }
  if (entry.name.empty() || entry.times == 0 || entry.times > kMostWorkers) {
    throw Error(Errc::invalid_argument,
                fmt::format(R"(devices="{}" has the entry "{}", which is invalid)", whole, text), kForms);
  }
  return entry;
}

std::string list_of(const Machine& machine) {
  std::string text;
  for (const auto& device : machine.devices) {
    text += fmt::format("{}{} ({}, {})", text.empty() ? "" : ", ", device_id(device.info), device.info.name,
                        uuid_text(device.info));
  }
  return text.empty() ? "no device" : text;
}

bool is_uuid(std::string_view name) { return name.starts_with("GPU-") || name.starts_with("MIG-"); }

std::vector<Chosen> matches(std::string_view name, const Machine& machine) {
  const auto index = number(name);
  std::vector<Chosen> found;
  for (const auto& device : machine.devices) {
    const bool is_meant = is_uuid(name) ? uuid_text(device.info).starts_with(name)
                          : index       ? std::cmp_equal(device.info.index, *index)
                                        : device_id(device.info) == name;
    if (is_meant) found.push_back(&device);
  }
  return found;
}

Chosen find(std::string_view name, const Machine& machine) {
  const auto found = matches(name, machine);
  if (found.size() == 1) return found.front();
  if (found.size() > 1) {
    throw Error(Errc::invalid_argument,
                fmt::format("\"{}\" names {} devices: {}", name, found.size(), list_of(machine)),
                "write more of the UUID, or the name of the device");
  }
  const bool has_form = is_uuid(name) || number(name) || name.starts_with("cuda:") || name.starts_with("host:");
  if (!has_form) throw Error(Errc::invalid_argument, fmt::format("\"{}\" is not the name of a device", name), kForms);
  throw Error(
      Errc::not_found,
      fmt::format("there is no device \"{}\"; this process sees {}{}", name, list_of(machine), filter_text(machine)),
      "name one of those; CUDA_VISIBLE_DEVICES, DROVER_BACKEND and DROVER_HOST_DEVICES decide which devices exist");
}

std::vector<Chosen> named_by(std::string_view name, const Machine& machine) {
  if (name == "cpu") return {nullptr};
  if (name != "all") return {find(name, machine)};
  std::vector<Chosen> all;
  for (const auto& device : machine.devices) all.push_back(&device);
  return all;
}

// The entries of `devices`; empty if there is no device or none is requested.
std::vector<Chosen> read_list(const WorkerPlanOptions& options, const Machine& machine) {
  if (trimmed(options.devices) == "none") return {};
  std::vector<Chosen> list;
  for (std::string_view rest = options.devices;;) {
    const auto comma = rest.find(',');
    const Entry entry = read_entry(rest.substr(0, comma), options.devices);
    if (entry.is_counted && options.per_device > 0) {
      throw Error(Errc::invalid_argument,
                  fmt::format("devices=\"{}\" and per_device={} both set the number of workers on a device",
                              options.devices, options.per_device),
                  "set only one of them");
    }
    const auto named = named_by(entry.name, machine);
    for (std::size_t i = 0; i < entry.times; ++i) list.insert(list.end(), named.begin(), named.end());
    if (comma == std::string_view::npos) return list;
    rest.remove_prefix(comma + 1);
  }
}

// The devices in turn, `per_device` times, then the workers without a device.
std::vector<Chosen> multiplied(const std::vector<Chosen>& list, std::size_t per_device) {
  std::vector<Chosen> devices;
  for (const auto& entry : list) {
    if (entry != nullptr && std::ranges::find(devices, entry) == devices.end()) devices.push_back(entry);
  }
  std::vector<Chosen> result;
  for (std::size_t i = 0; i < per_device; ++i) result.insert(result.end(), devices.begin(), devices.end());
  result.insert(result.end(), static_cast<std::size_t>(std::ranges::count(list, nullptr)), nullptr);
  return result;
}

std::size_t count_workers(const WorkerPlanOptions& options, const std::vector<Chosen>& list, const Machine& machine) {
  const auto natural = list.empty() ? std::clamp<std::size_t>(machine.cores.size(), 1, kMostUnasked) : list.size();
  const auto count = options.workers == 0 ? natural : options.workers;
  if (count > kMostWorkers) {
    throw Error(Errc::invalid_argument, fmt::format("{} workers exceed the limit of {}", count, kMostWorkers),
                "use fewer workers");
  }
  if (options.per_device > 0 && !list.empty() && count != list.size()) {
    throw Error(Errc::invalid_argument,
                fmt::format("workers={} contradicts per_device={}, which makes {} with devices=\"{}\"",
                            options.workers, options.per_device, list.size(), options.devices),
                "set only one of them");
  }
  return count;
}

}  // namespace

std::vector<Chosen> choose_devices(const WorkerPlanOptions& options, const Machine& machine) {
  auto list = read_list(options, machine);
  if (options.per_device > kMostWorkers) {
    throw Error(Errc::invalid_argument,
                fmt::format("per_device={} exceeds the limit of {} workers", options.per_device, kMostWorkers),
                "use fewer workers");
  }
  if (options.per_device > 0) list = multiplied(list, options.per_device);
  std::vector<Chosen> chosen(count_workers(options, list, machine), nullptr);
  for (std::size_t i = 0; i < chosen.size() && !list.empty(); ++i) chosen[i] = list[i % list.size()];
  return chosen;
}

std::string describe(const MachineDevice& device) {
  return fmt::format("{} ({})", device_id(device.info), device.info.name);
}

std::string filter_text(const Machine& machine) {
  const auto found = machine.set.find("CUDA_VISIBLE_DEVICES");
  if (found == machine.set.end()) return {};
  return fmt::format(" (CUDA_VISIBLE_DEVICES={} hides all others)", found->second);
}

}  // namespace drover::pool
