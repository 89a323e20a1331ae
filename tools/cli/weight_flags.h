// SPDX-License-Identifier: Apache-2.0
// The options of weights that several commands take.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/cli/command_line.h"

#include "pagefuse/ops/kernels/formats/weight_format.h"

namespace pagefuse::tools {

struct WeightFlags {
  std::string format = "float32";
  std::string exclude;
};

// Adds --weights and --weights-exclude.
void AddWeightFlags(Command command, WeightFlags& flags);

// The same where --weights is a list, each of which is measured.
void AddWeightsList(Command command, std::vector<std::string>& formats, WeightFlags& flags);

// What --weights says; what --weights-exclude says goes into the options of passes. InvalidArgument
// naming the flag for an unknown format, or names that are excluded from nothing.
absl::StatusOr<WeightFormat> ReadWeightFlags(const WeightFlags& flags,
                                             std::map<std::string, std::string>& options);

}  // namespace pagefuse::tools
