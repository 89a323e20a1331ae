// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cuda/element_program.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"

namespace pagefuse::cuda {
namespace {

using Operand = ProgramValue;

constexpr unsigned Bit(ElementKind kind) { return 1u << static_cast<unsigned>(kind); }
constexpr unsigned kF = Bit(ElementKind::kFloat), kD = Bit(ElementKind::kDouble);
constexpr unsigned kS = Bit(ElementKind::kSigned), kU = Bit(ElementKind::kUnsigned);
constexpr unsigned kNumbers = kF | kD | kS | kU;

struct NamedStep {
  std::string_view name;
  SimpleStep step;
};
constexpr NamedStep kSteps[] = {
    {"Add", {ElementOp::kAdd, 2, kNumbers}},
    {"Sub", {ElementOp::kSub, 2, kNumbers}},
    {"Mul", {ElementOp::kMul, 2, kNumbers}},
    {"Div", {ElementOp::kDiv, 2, kNumbers}},
    {"PRelu", {ElementOp::kPRelu, 2, kNumbers}},
    {"Equal", {ElementOp::kEqual, 2, kNumbers, true}},
    {"Less", {ElementOp::kLess, 2, kNumbers, true}},
    {"LessOrEqual", {ElementOp::kLessOrEqual, 2, kNumbers, true}},
    {"Greater", {ElementOp::kGreater, 2, kNumbers, true}},
    {"GreaterOrEqual", {ElementOp::kGreaterOrEqual, 2, kNumbers, true}},
    {"And", {ElementOp::kBitAnd, 2, kU, true}},
    {"Or", {ElementOp::kBitOr, 2, kU, true}},
    {"Xor", {ElementOp::kBitXor, 2, kU, true}},
    {"Not", {ElementOp::kNot, 1, kU, true}},
    {"BitwiseAnd", {ElementOp::kBitAnd, 2, kS | kU}},
    {"BitwiseOr", {ElementOp::kBitOr, 2, kS | kU}},
    {"BitwiseXor", {ElementOp::kBitXor, 2, kS | kU}},
    {"BitwiseNot", {ElementOp::kBitNot, 1, kS | kU}},
    {"Neg", {ElementOp::kNeg, 1, kF | kD | kS}},
    {"Abs", {ElementOp::kAbs, 1, kNumbers}},
    {"Sign", {ElementOp::kSign, 1, kNumbers}},
    {"Relu", {ElementOp::kRelu, 1, kF | kD | kS}},
    {"Sqrt", {ElementOp::kSqrt, 1, kF | kD}},
    {"Reciprocal", {ElementOp::kReciprocal, 1, kF | kD}},
    {"IsNaN", {ElementOp::kIsNaN, 1, kF | kD, true}},
    {"IsInf", {ElementOp::kIsInf, 1, kF | kD, true}},
    {"Exp", {ElementOp::kExp, 1, kF}},
    {"Log", {ElementOp::kLog, 1, kF}},
    {"Sin", {ElementOp::kSin, 1, kF}},
    {"Cos", {ElementOp::kCos, 1, kF}},
    {"Tanh", {ElementOp::kTanh, 1, kF}},
    {"Erf", {ElementOp::kErf, 1, kF}},
    {"Floor", {ElementOp::kFloor, 1, kF}},
    {"Ceil", {ElementOp::kCeil, 1, kF}},
    {"Round", {ElementOp::kRound, 1, kF}},
    {"Sigmoid", {ElementOp::kSigmoid, 1, kF}},
    {"Softplus", {ElementOp::kSoftplus, 1, kF}},
    {"Mish", {ElementOp::kMish, 1, kF}},
    {"Swish", {ElementOp::kSwish, 1, kF}},
    {"Elu", {ElementOp::kElu, 1, kF}},
    {"LeakyRelu", {ElementOp::kLeakyRelu, 1, kF}},
    {"HardSigmoid", {ElementOp::kHardSigmoid, 1, kF}},
    {"HardSwish", {ElementOp::kHardSwish, 1, kF}},
    {"Softsign", {ElementOp::kSoftsign, 1, kF}},
};

absl::Status NoStep(const Node& node, std::string_view what) {
  return absl::UnimplementedError(StrCat(node.Description(), " ", what));
}

// What is between the steps of one op is not rounded.
DataType WideOf(DataType type) {
  return ElementKindOf(type) == ElementKind::kFloat ? DataType::kFloat : type;
}

// alpha and beta, which IsInf has as flags.
absl::Status ReadParameters(const Node& node, ElementStep& step) {
  float alpha = 0;
  if (step.op == ElementOp::kSwish || step.op == ElementOp::kElu) alpha = 1.0f;
  if (step.op == ElementOp::kLeakyRelu) alpha = 0.01f;
  if (step.op == ElementOp::kHardSigmoid) alpha = 0.2f;
  PF_ASSIGN_OR_RETURN(step.alpha, node.FloatAttribute("alpha", alpha));
  const float beta = step.op == ElementOp::kHardSigmoid ? 0.5f : 0.0f;
  PF_ASSIGN_OR_RETURN(step.beta, node.FloatAttribute("beta", beta));
  if (step.op != ElementOp::kIsInf) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const int64_t negative, node.IntAttribute("detect_negative", 1));
  PF_ASSIGN_OR_RETURN(const int64_t positive, node.IntAttribute("detect_positive", 1));
  step.alpha = negative != 0 ? 1.0f : 0.0f;
  step.beta = positive != 0 ? 1.0f : 0.0f;
  return absl::OkStatus();
}

// As registers hold it.
template <typename T>
uint64_t BitsOf(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<uint64_t>(value);
  } else if constexpr (kIsSmallFloat<T>) {
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  } else {
    return static_cast<uint64_t>(value);
  }
}

}  // namespace

std::optional<SimpleStep> SimpleStepOf(std::string_view domain, std::string_view op_type) {
  if (!domain.empty()) return std::nullopt;
  for (const NamedStep& named : kSteps) {
    if (named.name == op_type) return named.step;
  }
  return std::nullopt;
}

Operand ProgramBuilder::Value(DataType type) {
  types_.push_back(type);
  return {values_++, type};
}

absl::StatusOr<Operand> ProgramBuilder::Input(DataType type) {
  if (ElementWidth(type) == 0) {
    return absl::UnimplementedError(StrCat("no steps for type ", DataTypeName(type)));
  }
  const Operand value = Value(type);
  input_values_.push_back(value.number);
  input_types_.push_back(type);
  return value;
}

absl::StatusOr<Operand> ProgramBuilder::Constant(DataType type, double number) {
  uint64_t bits = 0;
  PF_RETURN_IF_ERROR(
      DispatchType(type, [&]<typename T>() { bits = BitsOf(ConvertElement<T>(number)); }));
  const Operand value = Value(type);
  constants_.emplace_back(value.number, bits);
  return value;
}

absl::StatusOr<Operand> ProgramBuilder::Constant(const Tensor& tensor) {
  if (ElementWidth(tensor.dtype()) == 0) {
    return absl::UnimplementedError(StrCat("no steps for type ", DataTypeName(tensor.dtype())));
  }
  uint64_t bits = 0;
  PF_RETURN_IF_ERROR(DispatchType(
      tensor.dtype(), [&]<typename T>() { bits = BitsOf(tensor.values<T>().front()); }));
  const Operand value = Value(tensor.dtype());
  constants_.emplace_back(value.number, bits);
  return value;
}

Operand ProgramBuilder::Then(ElementStep step, DataType type, const Operand& a, const Operand& b,
                             const Operand& c) {
  step.kind = ElementKindOf(a.type);
  step.type = static_cast<uint8_t>(type);
  const Operand result = Value(type);
  steps_.push_back({step, a, b, c, result});
  return result;
}

absl::StatusOr<Operand> ProgramBuilder::AddSimple(const Node& node, const SimpleStep& simple,
                                                  const std::vector<Operand>& operands) {
  if (static_cast<int>(operands.size()) < simple.operands) return NoStep(node, "lacks an input");
  const Operand& a = operands[0];
  const Operand b = simple.operands > 1 ? operands[1] : Operand();
  if ((simple.kinds & Bit(ElementKindOf(a.type))) == 0) {
    return NoStep(node, StrCat("has no step for type ", DataTypeName(a.type)));
  }
  ElementStep step{.op = simple.op};
  PF_RETURN_IF_ERROR(ReadParameters(node, step));
  return Then(step, simple.tests ? DataType::kBool : a.type, a, b);
}

absl::StatusOr<Operand> ProgramBuilder::AddPow(const Node& node,
                                               const std::vector<Operand>& operands) {
  const Operand& base = operands[0];
  if (ElementKindOf(base.type) != ElementKind::kFloat) {
    return NoStep(node, StrCat("has no step for a base of type ", DataTypeName(base.type)));
  }
  Operand exponent = operands[1];
  if (ElementKindOf(exponent.type) != ElementKind::kFloat) {
    exponent = Then({.op = ElementOp::kCast}, DataType::kFloat, exponent);
  }
  return Then({.op = ElementOp::kPow}, base.type, base, exponent);
}

absl::StatusOr<Operand> ProgramBuilder::AddClip(const Node& node,
                                                const std::vector<Operand>& operands) {
  Operand result = operands[0];
  const std::pair<const char*, ElementOp> bounds[] = {{"min", ElementOp::kClipBelow},
                                                      {"max", ElementOp::kClipAbove}};
  bool any = false;
  for (size_t i = 0; i < 2; ++i) {
    Operand bound = i + 1 < operands.size() ? operands[i + 1] : Operand();
    const Attribute* attribute = node.attribute(bounds[i].first);
    const float* number = attribute ? std::get_if<float>(&attribute->value) : nullptr;
    if (!bound.present() && number != nullptr) {
      // Not rounded to a narrow type, as the definition has it.
      PF_ASSIGN_OR_RETURN(bound, Constant(WideOf(result.type), *number));
    }
    if (!bound.present()) continue;
    result = Then({.op = bounds[i].second}, operands[0].type, result, bound);
    any = true;
  }
  return any ? result : Then({.op = ElementOp::kCast}, result.type, result);
}

absl::StatusOr<Operand> ProgramBuilder::AddVariadic(const Node& node,
                                                    const std::vector<Operand>& operands) {
  const bool mean = node.op_type() == "Mean";
  const ElementOp op = node.op_type() == "Max"   ? ElementOp::kMax
                       : node.op_type() == "Min" ? ElementOp::kMin
                                                 : ElementOp::kAdd;
  const DataType type = operands[0].type, wide = WideOf(type);
  Operand result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    const bool last = i + 1 == operands.size() && !mean;
    result = Then({.op = op}, last ? type : wide, result, operands[i]);
  }
  if (mean) {
    PF_ASSIGN_OR_RETURN(const Operand count, Constant(wide, static_cast<double>(operands.size())));
    return Then({.op = ElementOp::kDiv}, type, result, count);
  }
  return operands.size() > 1 ? result : Then({.op = ElementOp::kCast}, type, result);
}

// Gelu of both domains, and what adds a bias before.
absl::StatusOr<Operand> ProgramBuilder::AddGelu(const Node& node,
                                                const std::vector<Operand>& operands) {
  const DataType type = operands[0].type;
  if (ElementKindOf(type) != ElementKind::kFloat) {
    return NoStep(node, StrCat("has no step for type ", DataTypeName(type)));
  }
  ElementStep step{.op = ElementOp::kGelu};
  if (node.op_type() == "FastGelu") step.op = ElementOp::kGeluTanh;
  if (node.op_type() == "QuickGelu") {
    step.op = ElementOp::kSwish;
    PF_ASSIGN_OR_RETURN(step.alpha, node.FloatAttribute("alpha", 1.702f));
  }
  if (node.domain().empty()) {
    PF_ASSIGN_OR_RETURN(const std::string form, node.StringAttribute("approximate", "none"));
    if (form == "tanh") step.op = ElementOp::kGeluTanh;
  }
  Operand x = operands[0];
  if (operands.size() > 1 && operands[1].present()) {
    x = Then({.op = ElementOp::kAdd}, DataType::kFloat, x, operands[1]);
  }
  return Then(step, type, x);
}

absl::StatusOr<Operand> ProgramBuilder::Add(const Node& node,
                                            const std::vector<Operand>& operands) {
  if (operands.empty() || !operands[0].present()) return NoStep(node, "has no first input");
  if (const auto simple = SimpleStepOf(node.domain(), node.op_type())) {
    return AddSimple(node, *simple, operands);
  }
  if (node.Is("Where")) {
    return Then({.op = ElementOp::kWhere}, operands[1].type, operands[0], operands[1], operands[2]);
  }
  if (node.Is("Pow")) return AddPow(node, operands);
  if (node.Is("Clip")) return AddClip(node, operands);
  if (node.Is("Max") || node.Is("Min") || node.Is("Sum") || node.Is("Mean")) {
    return AddVariadic(node, operands);
  }
  if (node.Is("Cast") || node.Is("CastLike")) {
    PF_ASSIGN_OR_RETURN(const int64_t code, node.IntAttribute("to", 0));
    const DataType type = node.Is("Cast") ? static_cast<DataType>(code) : operands.at(1).type;
    if (ElementWidth(type) == 0) {
      return NoStep(node, StrCat("has no step to type ", DataTypeName(type)));
    }
    return Then({.op = ElementOp::kCast}, type, operands[0]);
  }
  const bool gelu = node.Is("Gelu") || node.Is("Gelu", "com.microsoft") ||
                    node.Is("FastGelu", "com.microsoft") || node.Is("BiasGelu", "com.microsoft") ||
                    node.Is("QuickGelu", "com.microsoft");
  if (gelu) return AddGelu(node, operands);
  return NoStep(node, "has no step on this device");
}

}  // namespace pagefuse::cuda
