// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/shape_context.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/contents_read.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"
#include "pagefuse/ops/schema/signature.h"

namespace pagefuse {
namespace {

// Longer integer tensors are data, not shapes.
constexpr int64_t kMaxValueSize = 1024;

bool IsValue(const Tensor& tensor) {
  if (tensor.rank() > 1 || tensor.size() > kMaxValueSize) return false;
  return IsInteger(tensor.dtype()) || tensor.dtype() == DataType::kBool;
}

// An input of unknown contents that could tell a shape.
bool MayBeValue(const ShapeContext::Known& input) {
  if (!IsInteger(input.dtype) && input.dtype != DataType::kBool) return false;
  return !input.shape || input.shape->rank() <= 1;
}

// `text` as an identifier. Different texts give different identifiers: a changed one gets a hash of
// the original.
std::string Identifier(std::string_view text) {
  std::string name(text);
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (char& c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name == text ? name : absl::StrCat(name, "_", absl::Hex(hash, absl::kZeroPad16));
}

}  // namespace

ShapeContext::ShapeContext(const Node& node, int64_t opset, std::vector<Known> inputs)
    : node_(node), opset_(opset), inputs_(std::move(inputs)), outputs_(node.num_outputs()) {
  inputs_.resize(node.num_inputs());
}

DataType ShapeContext::input_type(int i) const {
  return i < static_cast<int>(inputs_.size()) ? inputs_[i].dtype : DataType::kUndefined;
}

const Shape* ShapeContext::input_shape(int i) const {
  if (i >= static_cast<int>(inputs_.size()) || !inputs_[i].shape) return nullptr;
  return &*inputs_[i].shape;
}

std::optional<std::vector<Dim>> ShapeContext::input_value(int i) const {
  if (i >= static_cast<int>(inputs_.size())) return std::nullopt;
  if (inputs_[i].value) return inputs_[i].value;
  const Tensor* tensor = inputs_[i].tensor;
  if (tensor == nullptr ? MayBeValue(inputs_[i]) : IsValue(*tensor)) ContentsRead::Note(i);
  return carried_value(i);
}

std::optional<std::vector<Dim>> ShapeContext::carried_value(int i) const {
  if (i >= static_cast<int>(inputs_.size())) return std::nullopt;
  if (inputs_[i].value) return inputs_[i].value;
  const Tensor* tensor = inputs_[i].tensor;
  if (tensor == nullptr || !IsValue(*tensor)) return std::nullopt;
  absl::StatusOr<std::vector<int64_t>> values = IntegerValues(*tensor);
  if (!values.ok()) return std::nullopt;
  return std::vector<Dim>(values->begin(), values->end());
}

const Tensor* ShapeContext::input_tensor(int i) const {
  ContentsRead::Note(i);
  return carried_tensor(i);
}

const Tensor* ShapeContext::carried_tensor(int i) const {
  return i < static_cast<int>(inputs_.size()) ? inputs_[i].tensor : nullptr;
}

std::optional<std::vector<int64_t>> ShapeContext::input_ints(int i) const {
  const Tensor* tensor = input_tensor(i);
  if (tensor != nullptr && (IsInteger(tensor->dtype()) || tensor->dtype() == DataType::kBool)) {
    absl::StatusOr<std::vector<int64_t>> values = IntegerValues(*tensor);
    if (values.ok()) return *std::move(values);
  }
  const std::optional<std::vector<Dim>> value = input_value(i);
  if (!value) return std::nullopt;
  return Shape(*value).constant();
}

const Dim& ShapeContext::size(std::string_view name) const {
  PF_CHECK(sizes_ != nullptr);
  return sizes_->Find(name);
}

void ShapeContext::SetOutput(int i, DataType dtype, std::optional<Shape> shape) {
  if (i >= num_outputs()) return;
  outputs_[i].dtype = dtype;
  outputs_[i].shape = std::move(shape);
}

void ShapeContext::SetOutputValue(int i, std::vector<Dim> value) {
  if (i >= num_outputs() || static_cast<int64_t>(value.size()) > kMaxValueSize) return;
  outputs_[i].value = std::move(value);
}

Dim ShapeContext::FreshDim() {
  std::string base = scope_;
  for (const Value* output : node_.outputs()) {
    if (output == nullptr) continue;
    absl::StrAppend(&base, output->name());
    break;
  }
  return Dim::Symbol(
      absl::StrCat(std::string(kFreshPrefix), Identifier(base), "__", fresh_count_++));
}

Dim ShapeContext::FreshName(std::string_view scope, std::string_view symbol) {
  return Dim::Symbol(StrCat(kFreshPrefix, Identifier(StrCat(scope, symbol))));
}

absl::Status ShapeContext::Error(std::string_view what) const { return NodeError(node_, what); }

absl::Status ShapeContext::InputError(int i, std::string_view what) const {
  std::string name;
  if (op_ != nullptr && !op_->inputs().empty()) {
    name = op_->inputs()[std::min<size_t>(i, op_->inputs().size() - 1)].name;
  } else if (node_.input(i) != nullptr) {
    name = node_.input(i)->name();
  }
  return Error(absl::StrCat("input ", i, " \"", name, "\": ", std::string(what)));
}

absl::Status ShapeContext::OutputError(int i, std::string_view what) const {
  std::string name;
  if (op_ != nullptr && !op_->outputs().empty()) {
    name = op_->outputs()[std::min<size_t>(i, op_->outputs().size() - 1)].name;
  }
  return Error(absl::StrCat("output ", i, " \"", name, "\": ", std::string(what)));
}

absl::Status ShapeContext::AttributeError(std::string_view attribute, std::string_view what) const {
  return pagefuse::AttributeError(node_, attribute, what);
}

namespace {

// True for min(n, whole), as symbolic arithmetic calls what a table of n rows is cut to. Broadcast to
// `whole`, it is as long or 1.
bool IsCutTo(const Dim& whole, const Dim& cut) {
  const std::string text = cut.ToString();
  absl::string_view operands = text;
  if (!absl::ConsumePrefix(&operands, "min(") || !absl::ConsumeSuffix(&operands, ")")) return false;
  const std::string other = whole.ToString();
  int64_t most = 0;
  const bool found = absl::ConsumeSuffix(&operands, absl::StrCat(", ", other)) ||
                     absl::ConsumePrefix(&operands, absl::StrCat(other, ", "));
  return found && absl::SimpleAtoi(operands, &most) && most > 0;
}

}  // namespace

absl::StatusOr<Shape> BroadcastShapes(ShapeContext& context, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  const Dim one(1);
  std::vector<Dim> dims(rank);
  for (int i = 0; i < rank; ++i) {
    const Dim& x = i < a.rank() ? a.back(i) : one;
    const Dim& y = i < b.rank() ? b.back(i) : one;
    Dim& out = dims[rank - 1 - i];
    if (x == one || ProvablyEqual(x, y)) {
      out = y;
    } else if (y == one) {
      out = x;
    } else if (x.is_constant() && y.is_constant()) {
      return context.Error(
          absl::StrCat("shapes ", a.ToString(), " and ", b.ToString(), " do not broadcast"));
    } else if (x.is_constant() || y.is_constant()) {
      out = x.is_constant() ? x : y;
    } else if (IsCutTo(x, y) || IsCutTo(y, x)) {
      out = IsCutTo(x, y) ? x : y;
    } else {
      out = context.FreshDim();
    }
  }
  return Shape(std::move(dims));
}

}  // namespace pagefuse
