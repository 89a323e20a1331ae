// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "gtest/gtest.h"
#include "op_test.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/packing.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {
namespace {

Tensor Empty(DataType type, const std::vector<int64_t>& dims) {
  absl::StatusOr<Tensor> tensor = Tensor::Allocate(type, dims);
  if (tensor.ok()) return *std::move(tensor);
  ADD_FAILURE() << tensor.status();
  return Tensor();
}

bool ConvertsFromFloat(DataType type) {
  return type != DataType::kString && type != DataType::kComplex64 &&
         type != DataType::kComplex128 && type != DataType::kUndefined;
}

// The type that a port takes where the op's first type variable is `type`.
DataType PortType(const OpDef& op, const Port& port, DataType type) {
  if (const std::optional<DataType> fixed = DataTypeFromName(port.type)) return *fixed;
  for (const auto& [variable, allowed] : op.types()) {
    if (variable != port.type) continue;
    const bool fits = std::find(allowed.begin(), allowed.end(), type) != allowed.end();
    return fits ? type : allowed.front();
  }
  return type;
}

}  // namespace

Tensor Floats(std::vector<int64_t> dims, const std::vector<float>& values) {
  return Tensor::Of<float>(std::move(dims), values);
}

Tensor Ints(std::vector<int64_t> dims, const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(std::move(dims), values);
}

Tensor Bools(std::vector<int64_t> dims, const std::vector<bool>& values) {
  Tensor tensor = Empty(DataType::kBool, dims);
  auto* to = static_cast<uint8_t*>(tensor.mutable_data());
  for (size_t i = 0; i < values.size(); ++i) to[i] = values[i] ? 1 : 0;
  return tensor;
}

Tensor As(DataType type, const Tensor& tensor) {
  std::vector<float> values(tensor.size());
  Tensor result = Empty(type, tensor.dims());
  absl::Status status = DecodeToFloat(tensor.dtype(), tensor.data(), tensor.size(), values.data());
  if (status.ok()) {
    status = EncodeFromFloat(type, values.data(), tensor.size(), result.mutable_data());
  }
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

Tensor Codes(DataType type, std::vector<int64_t> dims, const std::vector<uint8_t>& bytes) {
  Tensor tensor = Empty(type, dims);
  EXPECT_EQ(tensor.byte_size(), static_cast<int64_t>(bytes.size()));
  const size_t size = std::min<size_t>(bytes.size(), tensor.byte_size());
  if (size > 0) std::memcpy(tensor.mutable_data(), bytes.data(), size);
  return tensor;
}

Tensor Random(DataType type, std::vector<int64_t> dims, const Filling& filling, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  Tensor tensor = Empty(DataType::kFloat, dims);
  for (float& value : tensor.mutable_values<float>()) {
    if (const auto* n = std::get_if<Normal>(&filling)) {
      value = static_cast<float>(n->mean + n->deviation * normal(generator));
    } else {
      const auto& u = std::get<Uniform>(filling);
      value = static_cast<float>(u.low + (u.high - u.low) * uniform(generator));
    }
    if (IsInteger(type)) value = std::round(value);
  }
  return type == DataType::kFloat ? tensor : As(type, tensor);
}

Tensor Values(std::vector<int64_t> dims, uint64_t seed, DataType type) {
  return Random(type, std::move(dims), Normal{}, seed);
}

OpCase With(OpCase op_case, size_t input, Tensor tensor) {
  if (op_case.inputs.size() <= input) op_case.inputs.resize(input + 1);
  op_case.inputs[input] = std::move(tensor);
  return op_case;
}

OpCase WithAttribute(OpCase op_case, std::string_view name, AttributeValue value) {
  std::erase_if(op_case.attributes, [&](const auto& given) { return given.first == name; });
  op_case.attributes.emplace_back(name, std::move(value));
  return op_case;
}

OpCases::OpCases(const OpCases&) = default;
OpCases::OpCases(OpCases&&) noexcept = default;
OpCases& OpCases::operator=(const OpCases&) = default;
OpCases& OpCases::operator=(OpCases&&) noexcept = default;
OpCases::~OpCases() = default;

OpCases::OpCases(std::string_view op) {
  const size_t dot = op.rfind('.');
  if (dot != std::string_view::npos) domain_ = op.substr(0, dot);
  op_ = op.substr(dot == std::string_view::npos ? 0 : dot + 1);
}

OpCases& OpCases::Add(OpCase op_case) {
  cases_.push_back(std::move(op_case));
  return *this;
}

OpCases& OpCases::Add(std::string_view name, std::vector<Tensor> inputs,
                      std::vector<Tensor> outputs, AttributeList attributes) {
  return Add({.name = std::string(name),
              .inputs = std::move(inputs),
              .attributes = std::move(attributes),
              .outputs = std::move(outputs)});
}

OpCases& OpCases::Exact(const std::vector<std::vector<float>>& inputs,
                        const std::vector<std::vector<float>>& outputs) {
  OpCase exact{.name = StrCat("exact_", cases_.size())};
  const auto list = [](const std::vector<float>& values) {
    return Floats({static_cast<int64_t>(values.size())}, values);
  };
  for (const auto& values : inputs) exact.inputs.push_back(list(values));
  for (const auto& values : outputs) exact.outputs.push_back(list(values));
  exact.attributes = attributes_;
  return Add(std::move(exact));
}

OpCases& OpCases::Shapes(std::vector<std::vector<int64_t>> shapes) {
  RandomCases random{{}, true, attributes_};
  for (auto& shape : shapes) random.shapes.push_back({std::move(shape)});
  random_.push_back(std::move(random));
  return *this;
}

OpCases& OpCases::ShapeSets(std::vector<std::vector<std::vector<int64_t>>> sets) {
  random_.push_back({std::move(sets), false, attributes_});
  return *this;
}

OpCases& OpCases::Fill(Filling filling) {
  filling_ = filling;
  return *this;
}

OpCases& OpCases::Types(std::vector<DataType> types) {
  types_ = std::move(types);
  return *this;
}

OpCases& OpCases::Attributes(AttributeList attributes) {
  attributes_ = std::move(attributes);
  return *this;
}

OpCases& OpCases::Within(DataType type, Tolerance tolerance, std::string_view reason) {
  EXPECT_FALSE(reason.empty());
  tolerances_.emplace_back(type, tolerance);
  return *this;
}

OpCases& OpCases::Rejects(OpCase op_case, std::string_view message) {
  rejected_.emplace_back(std::move(op_case), std::string(message));
  return *this;
}

void OpCases::AppendRandom(const RandomCases& random, std::vector<OpCase>& cases) const {
  const OpDef* op = OpRegistry::Global().Find(domain_, op_, domain_.empty() ? 28 : 1000);
  if (op == nullptr) return;
  const auto required =
      std::count_if(op->inputs().begin(), op->inputs().end(),
                    [](const Port& port) { return port.kind != PortKind::kOptional; });
  std::vector<DataType> types = types_.value_or(std::vector<DataType>());
  if (!types_ && !op->types().empty()) types = op->types().front().second;
  for (DataType type : types) {
    if (!ConvertsFromFloat(type)) continue;
    for (const auto& shapes : random.shapes) {
      OpCase made{.name = std::string(DataTypeName(type)), .attributes = random.attributes};
      const size_t count = random.same_for_all ? required : shapes.size();
      for (size_t i = 0; i < count; ++i) {
        const std::vector<int64_t>& dims = shapes[random.same_for_all ? 0 : i];
        StrAppend(&made.name, "_", DimsToString(dims));
        const Port& port = op->inputs()[std::min(i, op->inputs().size() - 1)];
        made.inputs.push_back(
            Random(PortType(*op, port, type), dims, filling_, cases.size() * 8 + i));
      }
      cases.push_back(std::move(made));
    }
  }
}

std::vector<OpCase> OpCases::cases() const {
  std::vector<OpCase> cases = cases_;
  for (const RandomCases& random : random_) AppendRandom(random, cases);
  return cases;
}

Tolerance OpCases::tolerance(DataType type) const {
  for (const auto& [key, tolerance] : tolerances_) {
    if (key == type) return tolerance;
  }
  return DefaultTolerance(type);
}

Tolerance DefaultTolerance(DataType type) {
  switch (type) {
    case DataType::kFloat:
      return {.rtol = 4e-6, .atol = 1e-6};  // 32 units in the last place
    case DataType::kDouble:
      return {.rtol = 1e-14, .atol = 1e-15};
    case DataType::kFloat16:
      return {.rtol = 1e-3, .atol = 1e-6};  // one unit
    case DataType::kBfloat16:
      return {.rtol = 8e-3, .atol = 1e-6};
    default:
      return {};
  }
}

}  // namespace pagefuse
