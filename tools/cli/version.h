// SPDX-License-Identifier: Apache-2.0
// Tells which build of pagefuse this is.
#pragma once

#include <string>

namespace pagefuse::tools {

// "pagefuse 0.1.0"
std::string VersionLine();

// VersionLine and a line each for the commit, the type of the build, and the SIMD targets: those that
// were compiled, and which of them this machine runs.
std::string VersionText();

}  // namespace pagefuse::tools
