// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/formats/weight_format.h"

#include "absl/strings/str_cat.h"

namespace pagefuse {
namespace {

constexpr WeightFormat kFormats[] = {
    {.name = "float32"},
    {.name = "bf16", .alias = "bfloat16", .layout = WeightLayout::kRows, .bits = 16},
    {.name = "int8", .layout = WeightLayout::kCodes, .bits = 8, .block = kWeightBlock},
    {.name = "int4", .layout = WeightLayout::kCodes, .bits = 4, .block = kWeightBlock},
};

}  // namespace

std::span<const WeightFormat> WeightFormats() { return kFormats; }

std::string WeightFormatNames() {
  std::string names;
  for (const WeightFormat& format : kFormats) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(format.name));
  }
  return names;
}

absl::StatusOr<WeightFormat> FindWeightFormat(std::string_view name) {
  for (const WeightFormat& format : kFormats) {
    if (format.name == name || (!name.empty() && format.alias == name)) return format;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", WeightFormatNames(), ", got \"", std::string(name), "\""));
}

}  // namespace pagefuse
