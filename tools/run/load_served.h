// SPDX-License-Identifier: Apache-2.0
// The model of commands that answer requests: `serve` and `batch`.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/cli/command.h"
#include "tools/run/generate.h"

#include "pagefuse/serve/served_model.h"

namespace pagefuse::tools {

struct ServedFlags {
  std::string name;              // as requests name the model; empty: the folder's
  std::string reasoning, tools;  // how it writes answers; empty: found by itself
};

// The format of weights unless one is given: bfloat16 where the machine has a unit for it.
std::string ServedWeights();
// Of the model that is answered with, besides those of the engine and the session.
void AddServedFlags(Command command, GenerateFlags& flags, ServedFlags& served);
// Checks the flags before anything is read, and makes options of them.
absl::Status ReadServedFlags(GenerateFlags& flags);
// Loads it and warms it up.
absl::StatusOr<serve::ServedModel> LoadServed(GenerateFlags& flags, const ServedFlags& served);

}  // namespace pagefuse::tools
