// SPDX-License-Identifier: Apache-2.0
#include "mixing.h"

#include <algorithm>

#include "decoder_text.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse::fuzz {
namespace {

using Text = DecoderText;
using Name = std::string;

Name AddHalf(Text& text, const Name& x, const Name& more) {
  return text.Add("Add", {x, text.Add("Mul", {more, text.graph.Float(0.5)})});
}

Name HeadSoftmax(Text& text, const Name& x) {
  return AddHalf(text, x, text.Add("Softmax", {x}, "axis = 1"));
}

Name HeadMean(Text& text, const Name& x) {
  return AddHalf(text, x, text.Add("ReduceMean", {x, text.Ints({1})}, "keepdims = 1"));
}

Name HeadTranspose(Text& text, const Name& x) {
  const Name turned = text.Add("Transpose", {x}, "perm = [0, 1, 3, 2]");
  const Name scaled = text.Add("Mul", {turned, text.graph.Weights({text.head_size, 1}, 1)});
  return text.Add("Transpose", {scaled}, "perm = [0, 1, 3, 2]");
}

Name HeadGate(Text& text, const Name& x) {
  const Name gate = text.Add("Unsqueeze", {text.PositionColumn(), text.Ints({-3})});
  return text.Add("Mul", {x, text.Add("Cos", {text.Add("Mul", {gate, text.graph.Float(0.25)})})});
}

Name HeadCumSum(Text& text, const Name& x) {
  return AddHalf(text, x, text.Add("CumSum", {x, text.graph.Int(2)}));
}

Name HeadTokenSoftmax(Text& text, const Name& x) {
  return text.Add("Mul", {x, text.Add("Softmax", {x}, "axis = -2")});
}

Name HeadTokenMean(Text& text, const Name& x) {
  return AddHalf(text, x, text.Add("ReduceMean", {x, text.Ints({2})}, "keepdims = 1"));
}

Name HeadFirst(Text& text, const Name& x) {
  const Name first = text.Add("Slice", {x, text.Ints({0}), text.Ints({1}), text.Ints({2})});
  return text.Add("Sub", {x, first});
}

// Heads and tokens change places in a view, without a transpose.
Name HeadSwappedView(Text& text, const Name& x) {
  const Name shape = text.Add("Shape", {x});
  const auto size = [&](int64_t axis) {
    return text.Add("Gather", {shape, text.Ints({axis})}, "axis = 0");
  };
  const Name swapped = text.Add("Concat", {size(0), size(2), size(1), size(3)}, "axis = 0");
  const Name viewed = text.Add("Reshape", {x, swapped});
  const Name turned = text.Add("Transpose", {viewed}, "perm = [0, 2, 1, 3]");
  return AddHalf(text, x, turned);
}

}  // namespace

const std::vector<MixOp>& MixOps() {
  static const std::vector<MixOp>& ops = *[] {
    auto* all = new std::vector<MixOp>(TokenwiseOps());
    for (MixOp& op : TokenMixingOps()) all->push_back(std::move(op));
    return all;
  }();
  return ops;
}

const std::vector<MixOp>& HeadMixOps() {
  constexpr Meaning kTokenwise = Meaning::kTokenwise;
  constexpr Meaning kMixes = Meaning::kMixes;
  static const std::vector<MixOp>& ops =
      *new std::vector<MixOp>{{"head_softmax", kTokenwise, HeadSoftmax},
                              {"head_mean", kTokenwise, HeadMean},
                              {"head_transpose", kTokenwise, HeadTranspose},
                              {"head_gate", kTokenwise, HeadGate},
                              {"head_cumsum", kMixes, HeadCumSum},
                              {"head_token_softmax", kMixes, HeadTokenSoftmax},
                              {"head_token_mean", kMixes, HeadTokenMean},
                              {"head_first", kMixes, HeadFirst},
                              {"head_swapped_view", kMixes, HeadSwappedView}};
  return ops;
}

std::string WriteMix(const std::vector<MixOp>& ops, const std::string& name, DecoderText& text,
                     const std::string& x) {
  if (name == "none") return x;
  const auto op =
      std::find_if(ops.begin(), ops.end(), [&](const MixOp& each) { return each.name == name; });
  PF_CHECK(op != ops.end());
  return op->write(text, x);
}

}  // namespace pagefuse::fuzz
