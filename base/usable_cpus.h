// SPDX-License-Identifier: Apache-2.0
// How many CPUs this process may use: the default number of threads.
#pragma once

#include <optional>
#include <string>

namespace pagefuse {

// The CPUs of the calling thread's affinity mask, and no more than the quota of the process's
// control groups pays for; part of a CPU counts as one. At least 1.
int UsableCpus();

// CPUs that the quotas of control groups allow, the tightest of the process's group and of those
// around it, version 1 or 2; nullopt without a quota. `root` stands before all paths (/proc, and
// where control groups are mounted), for tests.
std::optional<double> QuotaCpus(const std::string& root = "");

}  // namespace pagefuse
