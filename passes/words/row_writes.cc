// row-writes: rows that are written by slot, in one spelling.
//
//   index = Expand (slots [T, 1, ..], [T, H, D])          slots' = Reshape (slots, [T, 1])
//   y = ScatterElements <axis = 0> (rows, index, new)  =>  y = ScatterND (rows, slots', new)
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/rule.h"
#include "pagefuse/passes/words/words.h"

namespace pagefuse {
namespace {

std::string ShapeText(const Value& value) {
  return value.shape() ? value.shape()->ToString() : "of unknown shape";
}

// One slot a row: every axis but the first has length 1.
absl::Status IsColumn(const Match& match) {
  const Value& slots = *match.value("slots");
  bool column = slots.shape() && slots.shape()->rank() > 0;
  for (int axis = 1; column && axis < slots.shape()->rank(); ++axis) {
    column = (*slots.shape())[axis].constant() == 1;
  }
  if (column) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("\"slots\": expected one index a row [T, 1, ..], got ", ShapeText(slots)));
}

// The index has the shape of what is written, as the pattern says.
absl::Status WritesWholeRows(const Match& match) {
  const auto& rows = match.value("rows")->shape();
  const auto& written = match.value("written")->shape();
  bool whole = rows && written && rows->rank() == written->rank();
  for (int axis = 1; whole && axis < rows->rank(); ++axis) {
    whole = ProvablyEqual((*rows)[axis], (*written)[axis]);
  }
  if (whole) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("rows ", ShapeText(*match.value("rows")),
                                              " are not provably written whole by ",
                                              ShapeText(*match.value("written"))));
}

}  // namespace

std::unique_ptr<Pass> RecogniseRowWrites() {
  std::vector<Rule> rules;
  rules.push_back(
      Rule("row-writes-by-element", "an index that is repeated along a row")
          .MatchText("(rows, slots, written) => (y) { sizes = Shape (written)  "
                     "index = Expand (slots, sizes)  y = ScatterElements <axis = 0, reduction = "
                     "\"none\"> (rows, index, written) }")
          .Metadata({"slots"})
          .Where("one slot a row", IsColumn)
          .Where("whole rows", WritesWholeRows)
          .ReplaceWith(
              "(rows, slots, written) => (y) { "
              "column = Constant <value_ints: ints = [-1, 1]> ()  "
              "by_row = Reshape (slots, column)  y = ScatterND (rows, by_row, written) }"));
  return MakeRulePass("row-writes", "Writes rows by slot in one spelling.", std::move(rules));
}

}  // namespace pagefuse
