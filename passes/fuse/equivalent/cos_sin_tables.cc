// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/equivalent/cos_sin_tables.h"

#include "absl/strings/str_replace.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"

namespace pagefuse {
namespace {

bool IsTableType(const Value& value) {
  return value.dtype() == DataType::kFloat || value.dtype() == DataType::kBfloat16;
}

FusionPort TablePort(std::string name, bool rows) {
  return {.name = std::move(name),
          .role = ProbeRole::kTable,
          .metadata = true,
          .inner = rows,
          .fits = [rows](const Value& value) {
            // Rows may carry an axis for the heads.
            const int rank = Rank(value);
            return IsTableType(value) && (rank == 2 || (rows && rank > 2)) && BackDim(value, 1) > 1;
          }};
}

// Rows of cosines and sines, numbered as they come.
std::string NumberedRows() {
  return "zero = Constant <value_int: int = 0> ()  one = Constant <value_int: int = 1> ()  "
         "row_axis = Constant <value_ints: ints = [0]> ()  "
         "count_list = Shape <start = 0, end = 1> (table)  "
         "count = Squeeze (count_list, row_axis)  places = Range (zero, count, one)  ";
}

}  // namespace

const std::vector<CosSinTable>& CosSinTables() {
  const std::string kFlatPositions = ReshapeText("places", "positions", "[-1]");
  static const auto& forms = *new std::vector<CosSinTable>{
      {.ports = {PositionPort(), TablePort("cos_sin", false)},
       .formal = "positions, cos_sin",
       .prelude = kFlatPositions + "table = Identity (cos_sin)  "},
      {.ports = {PositionPort(), TablePort("cos", false), TablePort("sin", false)},
       .formal = "positions, cos, sin",
       .prelude = kFlatPositions + "table = Concat <axis = -1> (cos, sin)  "},
      {.ports = {TablePort("cos_sin", true)},
       .formal = "cos_sin",
       .prelude = StrCat(ReshapeText("table", "cos_sin", "[-1, @width]"), NumberedRows()),
       .indexed = false},
      {.ports = {TablePort("cos", true), TablePort("sin", true)},
       .formal = "cos, sin",
       .prelude = StrCat(ReshapeText("cos_rows", "cos", "[-1, @half]"),
                         ReshapeText("sin_rows", "sin", "[-1, @half]"),
                         "table = Concat <axis = -1> (cos_rows, sin_rows)  ", NumberedRows()),
       .indexed = false}};
  return forms;
}

std::optional<int64_t> TableWidth(const BoundPorts& ports) {
  if (ports.contains("cos_sin")) {
    const int64_t width = BackDim(*ports.at("cos_sin"), 1);
    return width % 2 == 0 ? std::optional(width) : std::nullopt;
  }
  const Value& cos = *ports.at("cos");
  const Value& sin = *ports.at("sin");
  const bool alike = cos.dtype() == sin.dtype() && ProvablyEqual(*cos.shape(), *sin.shape());
  return alike ? std::optional(2 * BackDim(cos, 1)) : std::nullopt;
}

void SetTableLimit(const CosSinTable& form, const BoundPorts& ports, Draft& draft) {
  if (!form.indexed) return;
  const Value& table = *ports.at(ports.contains("cos_sin") ? "cos_sin" : "cos");
  draft.limits["positions"] = ComparedSize(table, 0);
}

std::string TablePrelude(const CosSinTable& form, int64_t width) {
  return absl::StrReplaceAll(form.prelude,
                             {{"@width", StrCat(width)}, {"@half", StrCat(width / 2)}});
}

}  // namespace pagefuse
