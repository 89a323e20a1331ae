// SPDX-License-Identifier: Apache-2.0
// constant-views: replaces a contiguous part of a constant by a constant on the same memory.
//
// The matrix of one expert out of a stack of them, as graphs that are unrolled over experts take it
// by Slice, Gather or Split, is not copied at every run (nor here, whatever its size).
#include <algorithm>
#include <numeric>
#include <optional>

#include "pagefuse/passes/edit/slice_cuts.h"
#include "pagefuse/passes/edit/weight_origin.h"
#include "pagefuse/passes/simplify/peephole.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

using Ints = std::vector<int64_t>;

int64_t Product(const Ints& dims, size_t begin, size_t end) {
  return std::accumulate(dims.begin() + static_cast<int64_t>(begin),
                         dims.begin() + static_cast<int64_t>(end), int64_t{1}, std::multiplies<>());
}

// Rows along `axis` lie one after the other in memory: every dim before it is 1.
bool LeadsMemory(const Ints& dims, int64_t axis) {
  return axis >= 0 && axis < static_cast<int64_t>(dims.size()) &&
         Product(dims, 0, static_cast<size_t>(axis)) == 1;
}

std::optional<Ints> OutputDims(const Node& node, int output) {
  const Shape* shape = ShapeOf(node.output(output));
  return shape == nullptr ? std::nullopt : shape->constant();
}

// A constant on the elements from `first` on takes the place of an output; true if it has readers.
bool PutView(Node& node, int output, const Tensor& whole, int64_t first, Peephole& peephole) {
  Value* value = node.output(output);
  const std::optional<Ints> dims = OutputDims(node, output);
  const int width = BitWidth(whole.dtype());
  if (value == nullptr || value->uses().empty() || !dims.has_value()) return false;
  if (!whole.buffer() || width == 0 || width % 8 != 0) return false;
  const auto offset = whole.buffer_offset() + static_cast<size_t>(first * (width / 8));
  auto view = Tensor::View(whole.dtype(), *dims, whole.buffer(), offset);
  if (!view.ok() || first + view->size() > whole.size()) return false;
  Value* constant = peephole.Constant(value->name(), *std::move(view));
  NoteOrigin(node, *constant);
  return ReplaceValue(peephole.graph(), value, constant);
}

bool ViewOfSlice(Node& node, Peephole& peephole) {
  const Tensor* whole = ConstantOf(node.input(0));
  const auto cut = OnlyCut(node, peephole.contents());
  if (whole == nullptr || !cut || !cut->start.is_constant() || !cut->end.is_constant())
    return false;
  const Ints& dims = whole->dims();
  if (!LeadsMemory(dims, cut->axis)) return false;
  const int64_t size = dims[cut->axis];
  const int64_t start = std::clamp<int64_t>(NormalAxis(*cut->start.constant(), size), 0, size);
  return PutView(node, 0, *whole, start * Product(dims, cut->axis + 1, dims.size()), peephole);
}

bool ViewOfGather(Node& node, Peephole& peephole) {
  const Tensor* whole = ConstantOf(node.input(0));
  const Tensor* index = ConstantOf(node.input(1));
  if (whole == nullptr || index == nullptr || index->size() != 1) return false;
  const int64_t axis = NormalAxis(IntOr(node, "axis", 0), whole->rank());
  const auto ints = IntegerValues(*index);
  if (!ints.ok() || !LeadsMemory(whole->dims(), axis)) return false;
  const int64_t size = whole->dims()[static_cast<size_t>(axis)];
  const int64_t row = NormalAxis(ints->front(), size);
  if (row < 0 || row >= size) return false;  // the run says so
  const int64_t inner = Product(whole->dims(), axis + 1, whole->dims().size());
  return PutView(node, 0, *whole, row * inner, peephole);
}

bool ViewsOfSplit(Node& node, Peephole& peephole) {
  const Tensor* whole = ConstantOf(node.input(0));
  if (whole == nullptr) return false;
  const int64_t axis = NormalAxis(IntOr(node, "axis", 0), whole->rank());
  if (!LeadsMemory(whole->dims(), axis)) return false;
  bool changed = false;
  int64_t first = 0;
  for (int i = 0; i < node.num_outputs(); ++i) {
    const std::optional<Ints> dims = OutputDims(node, i);
    if (!dims.has_value()) return changed;
    changed = PutView(node, i, *whole, first, peephole) || changed;
    first += Product(*dims, 0, dims->size());
  }
  return changed;
}

// The same elements under other dims.
bool ViewOfAll(Node& node, Peephole& peephole) {
  const Tensor* whole = ConstantOf(node.input(0));
  return whole != nullptr && PutView(node, 0, *whole, 0, peephole);
}

}  // namespace

std::unique_ptr<Pass> ConstantViews() {
  return MakePeepholePass(
      "constant-views",
      "Replaces Slice, Gather and Split along the first axis of a constant, and reshapes of a "
      "constant, by a constant on the same memory.",
      {{"view-of-slice", "Slice", ViewOfSlice},
       {"view-of-gather", "Gather", ViewOfGather},
       {"views-of-split", "Split", ViewsOfSplit},
       {"view-of-all", "Reshape Flatten Squeeze Unsqueeze", ViewOfAll}});
}

}  // namespace pagefuse
