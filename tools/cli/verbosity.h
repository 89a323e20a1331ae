// SPDX-License-Identifier: Apache-2.0
// How much a command says beside its result.
#pragma once

namespace pagefuse::tools {

enum class Verbosity { kQuiet, kUsual, kVerbose };

// What the command line says, for the whole program: main sets it before a command runs. Errors, and
// warnings that a result may be another than was asked for, are told whatever it is.
inline Verbosity& ChosenVerbosity() {
  static Verbosity verbosity = Verbosity::kUsual;
  return verbosity;
}

}  // namespace pagefuse::tools
