// SPDX-License-Identifier: Apache-2.0
#include "change_parts.h"

#include <cstdint>

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::fuzz {

bool Varies(const Value* value) { return value && !testing::ConstantTensor(value); }

int PickInput(const Node& node, Random& random, const std::function<bool(const Value&)>& fits) {
  std::vector<int> found;
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (Varies(node.input(i)) && fits(*node.input(i))) found.push_back(i);
  }
  return found.empty() ? -1 : PickOne(found, random);
}

bool ReplaceInput(Node& node, Random& random, const std::function<bool(const Value&)>& fits,
                  const std::function<Value*(Rewriter& rewriter, Value* value)>& make) {
  const int index = PickInput(node, random, fits);
  if (index < 0) return false;
  Rewriter rewriter(node);
  Value* made = make(rewriter, node.input(index));
  if (made) node.SetInput(index, made);
  return made != nullptr;
}

Value* NumberLike(Rewriter& rewriter, const Value& like, double number) {
  auto one = Tensor::Allocate(like.dtype(), {});
  if (!one.ok() || !(testing::IsFloat(&like) || testing::IsSignedInteger(&like))) return nullptr;
  const Tensor filled = testing::FilledLike(*one, number);
  return filled.defined() ? rewriter.Constant(filled) : nullptr;
}

Value* ReversedAlong(Rewriter& rewriter, Value* value, int64_t axis) {
  return rewriter.Add("Slice", {value, rewriter.Ints({-1}), rewriter.Ints({INT64_MIN}),
                                rewriter.Ints({axis}), rewriter.Ints({-1})});
}

int PickVaryingAxis(const Value& value, Random& random) {
  std::vector<int> axes;
  for (int axis = 0; axis < testing::RankOf(&value); ++axis) {
    if (!testing::DimAt(&value, axis)) axes.push_back(axis);
  }
  return axes.empty() ? -1 : PickOne(axes, random);
}

bool SameShape(const Value& a, const Value& b) {
  return a.dtype() == b.dtype() && a.shape() && b.shape() && ProvablyEqual(*a.shape(), *b.shape());
}

std::vector<Value*> PastsOf(const DecoderCase& decoder) {
  std::vector<Value*> pasts;
  for (Value* input : decoder.model.graph->inputs()) {
    const auto role = decoder.feeds.find(input->name());
    if (role != decoder.feeds.end() && role->second == FeedRole::kPast) pasts.push_back(input);
  }
  return pasts;
}

Value* PresentOf(const DecoderCase& decoder, const Value& past) {
  const auto present = decoder.presents.find(past.name());
  return present == decoder.presents.end() ? nullptr
                                           : decoder.model.graph->FindValue(present->second);
}

Value* InputOf(const DecoderCase& decoder, FeedRole role) {
  for (Value* input : decoder.model.graph->inputs()) {
    const auto known = decoder.feeds.find(input->name());
    if (known != decoder.feeds.end() && known->second == role) return input;
  }
  return nullptr;
}

}  // namespace pagefuse::fuzz
