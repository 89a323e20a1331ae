// SPDX-License-Identifier: Apache-2.0
// The table of functions that plug-ins call: the pf_host of pagefuse/plugin.h.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/plugin.h"

namespace pagefuse {

// The table for a plug-in, which lives as long as the process.
const pf_host* MakeHost(std::string_view plugin);

// Runs a callback, and makes its status and text a Status; of what it throws too.
absl::Status RunCallback(const std::function<pf_status()>& callback);

}  // namespace pagefuse
