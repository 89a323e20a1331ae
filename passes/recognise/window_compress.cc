// SPDX-License-Identifier: Apache-2.0
// window-compress: windows of rows, each summed into one row under a softmax over its rows, become
// pagefuse.WindowCompress, however the windows are laid out.
//
//   scores [B, S/m, m, D] = gate [B, S, D] in windows + bias [m, D]
//   ReduceSum <axis 2> (kv in windows * Softmax <axis 2> (scores))
//     =>  pagefuse.WindowCompress <ratio = m> (kv, gate, bias)
//
// With overlap a window has 2m rows. Its own are the second m, of the second half of the channels;
// the first m are those of the window before, of the first half, and of the first window none: their
// scores are so low that they hide them. The layout is read by element, so that it does not matter
// how the rows were put side by side (DeepSeek-V4 exports fill them in by slice assignments).
#include <cmath>
#include <optional>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "window-compress";

// A sum over one axis of values times a softmax of scores over it.
struct WeightedSum {
  Value* values = nullptr;
  Value* scores = nullptr;
};

std::optional<WeightedSum> WeightedSumOf(const Node& sum, const SymbolicContents& contents) {
  constexpr int kRank = 4;
  constexpr int kRows = 2;
  const auto reduced = sum.Is("ReduceSum") ? ReducedBy(sum, contents) : std::nullopt;
  if (!reduced) return std::nullopt;
  const Node* product = sum.input(0)->producer();
  const auto& shape = sum.input(0)->shape();
  if (!product || !product->Is("Mul") || shape->rank() != kRank || reduced->axis != kRows) {
    return std::nullopt;
  }
  for (int side : {0, 1}) {
    const Node* softmax = product->input(side)->producer();
    const bool over_rows = softmax && softmax->Is("Softmax") &&
                           NormalAxis(IntOr(*softmax, "axis", -1), kRank) == kRows;
    Value* values = product->input(1 - side);
    if (!over_rows || !values->shape() || !ProvablyEqual(*values->shape(), *shape)) continue;
    return WeightedSum{values, softmax->input(0)};
  }
  return std::nullopt;
}

// The tensors that windows were made of.
struct Windows {
  Value* kv = nullptr;
  Value* gate = nullptr;
  Value* bias = nullptr;
  int64_t ratio = 0;
  bool overlap = false;
};

class WindowReader {
 public:
  WindowReader(const WeightedSum& sum, const SymbolicContents& contents)
      : sum_(sum), reader_(contents) {}

  // FailedPrecondition saying what differs from windows of either kind.
  absl::StatusOr<Windows> Read() {
    PF_ASSIGN_OR_RETURN(const Element whole, reader_.Whole(sum_.scores));
    const Shape& shape = *sum_.scores->shape();
    if (sum_.scores->dtype() != DataType::kFloat) {
      return Unlike("floats", DataTypeName(sum_.scores->dtype()));
    }
    const auto rows = shape[2].constant(), size = shape[3].constant();
    b_ = whole.at[0];
    w_ = whole.at[1];
    d_ = whole.at[3];
    count_ = shape[1];
    if (!rows || !size) return Unlike("windows of known length and width", shape.ToString());
    size_ = *size;
    const absl::Status apart = ReadApart(*rows);
    if (apart.ok()) return found_;
    if (*rows % 2 != 0) return apart;
    found_ = {};
    const absl::Status overlapping = ReadOverlapping(*rows / 2);
    if (overlapping.ok()) return found_;
    return MatchFailure(StdView(overlapping.message()), ", if windows overlap; if not, ",
                        StdView(apart.message()));
  }

 private:
  absl::Status Unlike(std::string_view expected, std::string_view got) const {
    return MatchFailure("the windows summed in ", *sum_.scores, ": expected ", expected, ", got ",
                        got);
  }

  Element At(Value* value, const IndexExpr& window, const IndexExpr& row) {
    return reader_.Source({value, {b_, window, row, d_}});
  }

  absl::Status ReadApart(int64_t ratio) {
    found_.ratio = ratio;
    const IndexExpr i = IndexExpr::Of(reader_.NewAxis(Dim(ratio)));
    PF_RETURN_IF_ERROR(ReadRows(w_, i, w_.Times(Dim(ratio)) + i, {.row = i, .column = d_}));
    return CheckSizes(size_);
  }

  absl::Status ReadOverlapping(int64_t ratio) {
    found_.ratio = ratio;
    found_.overlap = true;
    const IndexExpr i = IndexExpr::Of(reader_.NewAxis(Dim(ratio)));
    const IndexExpr before = IndexExpr::Of(reader_.NewAxis(count_ - Dim(1)));
    const IndexExpr later = before + IndexExpr(1);
    const Place own = {.row = i, .column = d_ + IndexExpr(size_)};
    PF_RETURN_IF_ERROR(ReadRows(IndexExpr(), i + IndexExpr(ratio), i, own));
    PF_RETURN_IF_ERROR(ReadRows(later, i + IndexExpr(ratio), later.Times(Dim(ratio)) + i, own));
    PF_RETURN_IF_ERROR(ReadRows(later, i, before.Times(Dim(ratio)) + i, {.row = i, .column = d_}));
    PF_RETURN_IF_ERROR(CheckFirst(i));
    return CheckSizes(2 * size_);
  }

  // Where in the bias a score's summand lies; the column is also that of the rows.
  struct Place {
    IndexExpr row, column;
  };
  // Row `i` of window `window` is row `token` of kv and gate.
  absl::Status ReadRows(const IndexExpr& window, const IndexExpr& i, const IndexExpr& token,
                        const Place& place) {
    const Element score = At(sum_.scores, window, i);
    if (!score.From("Add")) return Unlike("scores that are a sum", Text(score));
    const Element sides[] = {reader_.Operand(score, 0), reader_.Operand(score, 1)};
    const int bias = sides[0].value->IsConstant() ? 0 : 1;
    PF_RETURN_IF_ERROR(TakeBias(sides[bias], place));
    PF_RETURN_IF_ERROR(Take(sides[1 - bias], token, place.column, found_.gate));
    return Take(At(sum_.values, window, i), token, place.column, found_.kv);
  }

  absl::Status TakeBias(const Element& bias, const Place& place) {
    const bool constant = bias.value->IsConstant() && bias.at.size() == 2;
    if (!constant || bias.at[0].Key() != place.row.Key() ||
        bias.at[1].Key() != place.column.Key()) {
      return Unlike(StrCat("a constant bias at [", place.row.Key(), ", ", place.column.Key(), "]"),
                    Text(bias));
    }
    return TakeValue(bias, found_.bias);
  }

  absl::Status Take(const Element& row, const IndexExpr& token, const IndexExpr& column,
                    Value*& taken) {
    const bool fits = row.at.size() == 3 && row.at[0].Key() == b_.Key() &&
                      row.at[1].Key() == token.Key() && row.at[2].Key() == column.Key();
    if (!fits) {
      return Unlike(StrCat("rows [", b_.Key(), ", ", token.Key(), ", ", column.Key(), "]"),
                    Text(row));
    }
    return TakeValue(row, taken);
  }

  absl::Status TakeValue(const Element& element, Value*& taken) const {
    if (taken && taken != element.value) {
      return Unlike(StrCat("parts of \"", taken->name(), "\""), Text(element));
    }
    taken = element.value;
    return absl::OkStatus();
  }

  // The first window has no rows before its own.
  absl::Status CheckFirst(const IndexExpr& i) {
    const Element score = At(sum_.scores, IndexExpr(), i);
    const auto low = reader_.Number(score);
    if (!low || !HidesScore(*low)) {
      return Unlike("a number that hides the rows before the first window",
                    low ? StrCat(*low) : Text(score));
    }
    const Element value = At(sum_.values, IndexExpr(), i);
    const auto number = reader_.Number(value);
    if (number && std::isfinite(*number)) return absl::OkStatus();
    return Unlike("finite numbers before the first window", Text(value));
  }

  // All of what the op reads is what the windows were made of.
  absl::Status CheckSizes(int64_t width) const {
    const Shape& rows = *found_.kv->shape();
    const Shape& gates = *found_.gate->shape();
    const Shape& bias = *found_.bias->shape();
    if (rows[2] != Dim(width) || !ProvablyEqual(rows, gates)) {
      return Unlike(StrCat("rows and scores of ", width, " channels"),
                    StrCat(rows.ToString(), " and ", gates.ToString()));
    }
    if (bias != Shape{Dim(found_.ratio), Dim(width)}) {
      return Unlike(StrCat("a bias [", found_.ratio, ", ", width, "]"), bias.ToString());
    }
    if (!ProvablyEqual(count_, rows[1].FloorDiv(Dim(found_.ratio)))) {
      return Unlike(StrCat("as many windows as ", rows[1].ToString(), " rows fill"),
                    count_.ToString());
    }
    return absl::OkStatus();
  }

  static std::string Text(const Element& element) {
    return element.value ? element.Key() : std::string("nothing");
  }

  const WeightedSum& sum_;
  IndexingAnalysis reader_;
  IndexExpr b_, w_, d_;
  Dim count_;
  int64_t size_ = 0;
  Windows found_;
};

// Nodes before the sum are erased with it; no sum is before another of its own.
void Replace(Graph& graph, Node* sum, const Windows& windows) {
  GraphBuilder builder(graph, sum, sum->output(0)->name());
  Node* op =
      builder.AddNode("pagefuse", "WindowCompress", {windows.kv, windows.gate, windows.bias}, 1);
  op->SetAttribute("ratio", MakeAttribute(windows.ratio));
  if (windows.overlap) op->SetAttribute("overlap", MakeAttribute(int64_t{1}));
  Value* rows = op->output(0);
  if (IntOr(*sum, "keepdims", 1) != 0) {
    rows = builder.Add("Unsqueeze", {rows, builder.Ints({2})});
  }
  ReplaceNode(sum, rows);
}

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  const SymbolicContents& contents = context.contents;
  Graph& graph = *model.graph;
  bool changed = false;
  for (Node* sum : NodesOf(graph, "ReduceSum")) {
    const auto weighted = WeightedSumOf(*sum, contents);
    if (!weighted) continue;
    const absl::StatusOr<Windows> windows = WindowReader(*weighted, contents).Read();
    if (!windows.ok()) {
      context.AddMissedMatch(kName, NodeLabel(*sum), StdView(windows.status().message()), 3);
      continue;
    }
    Replace(graph, sum, *windows);
    model.opset_imports["pagefuse"] = 1;
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
    changed = true;
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> RecogniseWindowCompress() {
  return MakePass(
      kName,
      "Recognises windows of rows that are each summed into one row under a softmax and makes "
      "them pagefuse.WindowCompress.",
      Run);
}

}  // namespace pagefuse
