// SPDX-License-Identifier: Apache-2.0
// A subcommand that is a function of its flags.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/cli/command.h"
#include "tools/cli/model_argument.h"

namespace pagefuse::tools {

inline void Conclude(const absl::Status& status, Outcome& outcome) { outcome.status = status; }
inline void Conclude(const absl::StatusOr<int>& code, Outcome& outcome) {
  outcome.status = code.status();
  if (code.ok()) outcome.exit_code = *code;
}

struct Described {
  std::string name, description;
};
// `run` gives a Status, or an exit code or a Status. The flags live as long as the command.
template <typename Flags, typename Result>
Command AddSubcommand(Command app, Outcome& outcome, const Described& what,
                      std::shared_ptr<Flags> flags, Result (*run)(const Flags&)) {
  return app.AddCommand(what.name, what.description,
                        [flags, run, &outcome] { Conclude(run(*flags), outcome); });
}

}  // namespace pagefuse::tools
