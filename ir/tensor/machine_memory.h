// SPDX-License-Identifier: Apache-2.0
// Tells how much memory this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace pagefuse {

// Bytes of memory that this process may use: those of the machine, or fewer where a control group
// (version 1 or 2) that it is in allows fewer. 0 if the system does not tell. `root`: where the
// file systems /proc and /sys are, for tests.
int64_t MachineMemoryBytes(const std::string& root = "");

// What a session may take if nobody says otherwise: four fifths of MachineMemoryBytes, less what is
// held already, but a twentieth at least. The largest int64 if the system does not tell.
int64_t DefaultMemoryBytes(const std::string& root = "");

}  // namespace pagefuse
