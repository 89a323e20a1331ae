// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/weight_flags.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/similar_names.h"

namespace pagefuse::tools {
namespace {

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const WeightFormat& format : WeightFormats()) names.emplace_back(format.name);
  return names;
}

std::string WeightsHelp() {
  return StrCat("weights of products and tables: ", WeightFormatNames(),
                "; bf16 rounds activations of products too, int8 and int4 round them to int8");
}

void AddExclude(Command command, WeightFlags& flags) {
  command.AddText(
      "--weights-exclude", flags.exclude,
      "names of nodes, weights or modules that bf16, int8 and int4 leave alone, with commas; * for "
      "any letters");
}

}  // namespace

void AddWeightFlags(Command command, WeightFlags& flags) {
  command.AddText("--weights", flags.format, WeightsHelp()).ShowsDefault();
  AddExclude(command, flags);
}

void AddWeightsList(Command command, std::vector<std::string>& formats, WeightFlags& flags) {
  command.AddList("--weights", formats, StrCat("with commas, ", WeightsHelp())).ShowsDefault();
  AddExclude(command, flags);
}

absl::StatusOr<WeightFormat> ReadWeightFlags(const WeightFlags& flags,
                                             std::map<std::string, std::string>& options) {
  auto format = FindWeightFormat(flags.format);
  if (!format.ok()) {
    return absl::InvalidArgumentError(
        StrCat("--weights: ", format.status().message(), SimilarNames(flags.format, Names())));
  }
  if (flags.exclude.empty()) return format;
  if (format->changes_nothing()) {
    return absl::InvalidArgumentError(
        StrCat("--weights-exclude: says nothing with --weights ", format->name));
  }
  options["weights_exclude"] = flags.exclude;
  return format;
}

}  // namespace pagefuse::tools
