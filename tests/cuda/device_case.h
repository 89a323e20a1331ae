// SPDX-License-Identifier: Apache-2.0
// A case of an op on the device of the program, against the definition.
#pragma once

#include "op_run.h"
#include "report.h"

namespace pagefuse {

// Where the inputs of a case come from: the host, which knows their contents then, or nodes of the device in
// front of it (computed_inputs.h), or indices from the one and data from the other.
enum class InputsFrom { kHost, kDevice, kBoth };

// Plans the case and runs it twice, the second time in the memory that the first has left: the outputs are
// those of the definition within the tolerances of the table, nothing outside of tensors is written, and
// what nobody wrote is not read. Reported; failures are those of the test. False: it is a step of the host,
// which is reported of cases of tables, or has no indices to take from both. Under a sanitizer it runs once, and not at all if a case like it has.
bool CheckOnDevice(const OpDef& op, const OpCases& table, const OpCase& op_case, CaseKind kind,
                   InputsFrom inputs = InputsFrom::kHost);

}  // namespace pagefuse
