// SPDX-License-Identifier: Apache-2.0
#include "plugin/ort/settings.h"

#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plugin/ort/ort_status.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse::ort {
namespace {

constexpr char kMicrosoftOps[] = "pagefuse.microsoft_ops";
constexpr char kForceKernel[] = "pagefuse.force_kernel";
constexpr char kLog[] = "pagefuse.log";

absl::StatusOr<std::optional<std::string>> Entry(Api* api, const SessionOptions* options,
                                                 const char* key) {
  int is_there = 0;
  PF_RETURN_IF_ERROR(FromOrtStatus(api, kHasSessionConfigEntry(api, options, key, &is_there)));
  if (is_there == 0) return std::nullopt;
  size_t size = 0;
  PF_RETURN_IF_ERROR(FromOrtStatus(api, kGetSessionConfigEntry(api, options, key, nullptr, &size)));
  std::string value(size, '\0');
  PF_RETURN_IF_ERROR(
      FromOrtStatus(api, kGetSessionConfigEntry(api, options, key, value.data(), &size)));
  value.resize(size - 1);
  return value;
}

absl::Status Unexpected(std::string_view key, std::string_view expected, std::string_view got) {
  return absl::InvalidArgumentError(
      StrCat("session config entry ", key, ": expected ", expected, ", got \"", got, "\""));
}

// The place of the value in the list.
absl::StatusOr<size_t> OneOf(std::string_view key, const std::vector<std::string_view>& values,
                             std::string_view got) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == got) return i;
  }
  std::vector<std::string> texts(values.begin(), values.end());
  return Unexpected(key, absl::StrJoin(texts, " or "), got);
}

// "Op=name,..."
absl::StatusOr<std::map<std::string, std::string>> ParseForcedKernels(const std::string& text) {
  std::map<std::string, std::string> forced;
  for (const absl::string_view each : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> choice =
        absl::StrSplit(each, absl::MaxSplits('=', 1));
    bool is_known = false;
    for (const OpDef* op : OpRegistry::Global().ops()) {
      for (const Kernel& kernel : op->kernels()) {
        is_known = is_known || (op->name() == choice.first && kernel.name == choice.second);
      }
    }
    if (!is_known) return Unexpected(kForceKernel, "Op=kernel of ops that have it", StdView(each));
    forced.insert(choice);
  }
  return forced;
}

}  // namespace

absl::StatusOr<Settings> ReadSettings(Api* api, const SessionOptions* options) {
  Settings settings;
  PF_ASSIGN_OR_RETURN(const std::optional<std::string> microsoft,
                      Entry(api, options, kMicrosoftOps));
  if (microsoft) {
    PF_ASSIGN_OR_RETURN(const size_t choice, OneOf(kMicrosoftOps, {"off", "on"}, *microsoft));
    settings.microsoft_ops = choice == 1;
  }
  PF_ASSIGN_OR_RETURN(const std::optional<std::string> log, Entry(api, options, kLog));
  if (log) {
    PF_ASSIGN_OR_RETURN(const size_t choice, OneOf(kLog, {"off", "copies", "kernels"}, *log));
    settings.log = static_cast<LogChoice>(choice);
  }
  PF_ASSIGN_OR_RETURN(const std::optional<std::string> forced, Entry(api, options, kForceKernel));
  if (forced) {
    PF_ASSIGN_OR_RETURN(settings.force_kernel, ParseForcedKernels(*forced));
  }
  return settings;
}

}  // namespace pagefuse::ort
