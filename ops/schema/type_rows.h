// SPDX-License-Identifier: Apache-2.0
// Lists the combinations of types that a node of an op may have, for hosts that choose the type of
// an output from a table by the types of the inputs alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

// One combination of types. By port, as the op declares them.
struct TypeRow {
  // nullopt: any; the port tells nothing of the outputs.
  std::vector<std::optional<DataType>> inputs;
  std::vector<DataType> outputs;
  // Empty if the inputs tell the outputs; else the type of the first output that is another one
  // than for the row before that has the same inputs: an attribute, or a port that is given, says
  // so.
  std::string said_type;

  bool operator==(const TypeRow&) const = default;
};

// All rows of an op, those whose inputs tell the outputs first. An output is uint8 where it is
// float8 because an attribute or the declaration says so: files for other hosts have bytes there.
// InvalidArgument if the op's declared types are not in the language of op_def.h.
absl::StatusOr<std::vector<TypeRow>> TypeRows(const OpDef& op);

// The row of a node of these types, undefined where a port is omitted; null if there is none.
const TypeRow* FindTypeRow(const std::vector<TypeRow>& rows, const std::vector<DataType>& inputs,
                           const std::vector<DataType>& outputs);

}  // namespace pagefuse
