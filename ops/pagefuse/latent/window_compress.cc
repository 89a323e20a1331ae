// SPDX-License-Identifier: Apache-2.0
// WindowCompress: windows of rows summed into one row each, weighted by a softmax over the rows of
// the window, column by column (the compressor of DeepSeek-V4, section 2.3 of its report).
#include <algorithm>
#include <cmath>
#include <limits>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"kv", "T", "[B, S, (1 + overlap) * D]"},
    {"gate", "T", "[B, S, (1 + overlap) * D]"},
    {"bias", "T", "[ratio, (1 + overlap) * D]"},
});
constexpr Ports kOut({{"rows", "T", "[B, windows, D]"}});

// Not looked up in templates: clang 14 takes no consteval call there.
constexpr int kKv = kIn["kv"], kGate = kIn["gate"], kBias = kIn["bias"];

struct Sizes {
  int64_t batch = 0, length = 0, width = 0, windows = 0, size = 0;
  int64_t ratio = 1, overlap = 0;
};

absl::StatusOr<Sizes> SizesOf(const KernelArgs& args) {
  Sizes s;
  PF_ASSIGN_OR_RETURN(s.ratio, args.node->IntAttribute("ratio", 1));
  PF_ASSIGN_OR_RETURN(s.overlap, args.node->IntAttribute("overlap", 0));
  s.batch = args.input(kKv).dim(0);
  s.length = args.input(kKv).dim(1);
  s.width = args.input(kKv).dim(2);
  s.windows = args.output(0).dim(1);
  s.size = args.output(0).dim(2);
  return s;
}

// Column d of window w of sequence b: what its rows hold, one softmax over all of them. Rows before
// the first token are none.
struct Column {
  const Sizes& s;
  const float* kv;
  const float* gate;
  const float* bias;
  int64_t b, w, d;

  int64_t first() const { return s.overlap == 1 && w == 0 ? s.ratio : 0; }
  int64_t end() const { return (1 + s.overlap) * s.ratio; }
  // With overlap the first `ratio` rows are those of the window before, and the columns of the
  // window's own rows are the second half.
  int64_t ColumnOf(int64_t i) const { return s.overlap == 1 && i >= s.ratio ? s.size + d : d; }
  int64_t At(int64_t i) const {
    const int64_t row = (w - s.overlap) * s.ratio + i;
    return (b * s.length + row) * s.width + ColumnOf(i);
  }
  float Score(int64_t i) const { return gate[At(i)] + bias[i % s.ratio * s.width + ColumnOf(i)]; }
};

float Compressed(const Column& column) {
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t i = column.first(); i < column.end(); ++i) {
    largest = std::max(largest, column.Score(i));
  }
  float weights = 0;
  float sum = 0;
  for (int64_t i = column.first(); i < column.end(); ++i) {
    const float weight = std::exp(column.Score(i) - largest);
    weights += weight;
    sum += weight * column.kv[column.At(i)];
  }
  return sum / weights;
}

absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Sizes s, SizesOf(args));
  const float* kv = args.input(kKv).as<float>();
  const float* gate = args.input(kGate).as<float>();
  const float* bias = args.input(kBias).as<float>();
  float* y = args.output(0).as<float>();
  const int64_t bytes = 16 * (1 + s.overlap) * s.ratio * s.size;  // read for a window, about
  ParallelFor(s.batch * s.windows, bytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t d = 0; d < s.size; ++d) {
        y[i * s.size + d] = Compressed({s, kv, gate, bias, i / s.windows, i % s.windows, d});
      }
    }
  });
  return absl::OkStatus();
}

constexpr char kWindows[] = R"(
  zero = Constant <value_ints: ints = [0]> ()
  one = Constant <value_ints: ints = [1]> ()
  batch = Shape <start = 0, end = 1> (kv)
  length = Shape <start = 1, end = 2> (kv)
  width = Shape <start = 2, end = 3> (kv)
  count = Div (length, ratio)
  whole = Mul (count, ratio)
  dims = Concat <axis = 0> (batch, count, ratio, width)
  kv_rows = Slice (kv, zero, whole, one)
  gate_rows = Slice (gate, zero, whole, one)
  kv_windows = Reshape <allowzero = 1> (kv_rows, dims)
  gate_windows = Reshape <allowzero = 1> (gate_rows, dims)
  scores = Add (gate_windows, bias)
)";

// The rows of the window before are in front; the first window has none.
constexpr char kOverlap[] = R"(
  row_pads = Constant <value_ints: ints = [0, 1, 0, 0, 0, 0, 0, 0]> ()
  nothing = Constant <value_float: float = 0> ()
  low = Constant <value_float: float = -inf> ()
  kv_old, kv_new = Split <axis = 3, num_outputs = 2> (kv_windows)
  old_scores, new_scores = Split <axis = 3, num_outputs = 2> (scores)
  kv_moved = Pad (kv_old, row_pads, nothing)
  scores_moved = Pad (old_scores, row_pads, low)
  kv_before = Slice (kv_moved, zero, count, one)
  scores_before = Slice (scores_moved, zero, count, one)
  values = Concat <axis = 2> (kv_before, kv_new)
  all_scores = Concat <axis = 2> (scores_before, new_scores)
)";

std::string Body(int64_t ratio, bool overlap) {
  return StrCat(
      "WindowCompress (kv, gate, bias) => (rows) {\n", "  ratio = Constant <value_ints: ints = [",
      ratio, "]> ()\n", kWindows,
      overlap ? kOverlap : "  values = Identity (kv_windows)\n  all_scores = Identity (scores)\n",
      R"(  window_axis = Constant <value_ints: ints = [2]> ()
  weights = Softmax <axis = 2> (all_scores)
  weighted = Mul (values, weights)
  rows = ReduceSum <keepdims = 0> (weighted, window_axis)
})");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t ratio, node.IntAttribute("ratio", 1));
  PF_ASSIGN_OR_RETURN(const int64_t overlap, node.IntAttribute("overlap", 0));
  return Body(ratio, overlap != 0);
}

// Whole windows only.
absl::StatusOr<Dim> Windows(const ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const int64_t ratio, c.node().IntAttribute("ratio", 1));
  return c.size("S").FloorDiv(Dim(ratio));
}

}  // namespace

OpDef WindowCompressDef() {
  return OpDef("pagefuse", "WindowCompress", /*since=*/1)
      .Doc(
          "Row w is the sum of the kv rows of window w, each column weighted by the softmax of its "
          "scores (gate + bias) over the rows. A window is `ratio` rows; with overlap also the "
          "`ratio` rows before, which count in the first half of the columns, its own in the "
          "second. What fills no window is left out.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("ratio", "rows that become one")
      .Within(1, int64_t{1} << 30)
      .FlagAttr("overlap", int64_t{0}, "1: a window reaches back over the one before it")
      .Types("T", {DataType::kFloat})
      .Let("windows", "S / ratio, rounded down", Windows)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Run});
}

}  // namespace pagefuse::pagefuse_ops
