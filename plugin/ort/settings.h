// SPDX-License-Identifier: Apache-2.0
// Reads the settings of the library from a session's configuration entries.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "plugin/ort/ort_abi.h"

namespace pagefuse::ort {

// What is written to the host's log, as warnings: where the host shows anything, it shows these.
enum class LogChoice {
  kNothing,
  kCopies,   // caches that are copied at each step, once each
  kKernels,  // and which kernel every node has
};

struct Settings {
  // pagefuse.microsoft_ops: "on" or "off". Not on by itself: a release takes a graph that does not
  // import com.microsoft for one of the newest version of that domain that anybody registered, and
  // then refuses ops that its own optimiser makes there ("FusedMatMul(-1) is not registered").
  bool microsoft_ops = false;
  // pagefuse.force_kernel: "PagedAttention=reference,GatedLinear=reference".
  std::map<std::string, std::string> force_kernel = {};
  // pagefuse.log: "off", "copies" or "kernels".
  LogChoice log = LogChoice::kCopies;

  auto operator<=>(const Settings&) const = default;
};

// InvalidArgument naming the entry, what it may be and what it is.
absl::StatusOr<Settings> ReadSettings(Api* api, const SessionOptions* options);

}  // namespace pagefuse::ort
