// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/lower/body_rewrites.h"

namespace pagefuse {
namespace {

constexpr DataType kFloat8 = DataType::kFloat8E4M3FN;

// A float type by its fields: sign, exponent, mantissa.
struct FloatFields {
  int exponent_bits;
  int mantissa_bits;
  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int specials() const { return (1 << exponent_bits) - 1; }  // the exponent of infinity and NaN
};
constexpr FloatFields kFloatFields = {8, 23};
constexpr FloatFields kFloat16Fields = {5, 10};

// Nodes in front of one node.
class Writer {
 public:
  Writer(Graph& graph, Node* anchor) : b_(graph, anchor, "bits"), graph_(graph) {}

  Value* Add(std::string_view op, std::vector<Value*> inputs, DataType type) {
    Value* value = b_.Add(op, std::move(inputs));
    value->set_dtype(type);
    return value;
  }
  Value* Cast(Value* x, DataType type) {
    if (x->dtype() == type) return x;
    Value* value = b_.Cast(x, type);
    value->set_dtype(type);
    return value;
  }
  Value* Floats(const std::vector<float>& values) {
    return graph_.AddInitializer(graph_.UniqueName("bits"),
                                 Tensor::Of({static_cast<int64_t>(values.size())}, values));
  }
  Value* Float(float value) { return b_.Float(value); }
  Value* Int(int64_t value) { return b_.Int(value); }

  Value* Arithmetic(std::string_view op, Value* x, int64_t number) {
    return Add(op, {x, Int(number)}, DataType::kInt64);
  }
  Value* Multiply(Value* x, Value* y) { return Add("Mul", {x, y}, DataType::kFloat); }
  Value* Choose(Value* condition, Value* yes, Value* no) {
    return Add("Where", {condition, yes, no}, yes->dtype());
  }
  // table[index], index int64.
  Value* LookUp(const std::vector<float>& table, Value* index) {
    return Add("Gather", {Floats(table), index}, DataType::kFloat);
  }
  // How many of the ascending thresholds x reaches, int64.
  Value* CountReached(Value* x, const std::vector<float>& thresholds) {
    Value* last = b_.Ints({-1});
    Value* each = Add("Unsqueeze", {x, last}, DataType::kFloat);
    Value* reached = Add("GreaterOrEqual", {each, Floats(thresholds)}, DataType::kBool);
    // A sum as a product: ONNX Runtime's ReduceSum of no rows has the wrong shape.
    Value* ones = Add("Unsqueeze", {Floats(std::vector<float>(thresholds.size(), 1)), last},
                      DataType::kFloat);
    Value* sum = Add("MatMul", {Cast(reached, DataType::kFloat), ones}, DataType::kFloat);
    return Cast(Add("Squeeze", {sum, last}, DataType::kFloat), DataType::kInt64);
  }
  // True for negative numbers and for -0, whose reciprocal tells.
  Value* IsNegative(Value* x) {
    Value* zero = Float(0);
    Value* below = Add("Less", {x, zero}, DataType::kBool);
    Value* reciprocal = Add("Reciprocal", {x}, DataType::kFloat);
    return Add("Or", {below, Add("Less", {reciprocal, zero}, DataType::kBool)}, DataType::kBool);
  }

 private:
  GraphBuilder b_;
  Graph& graph_;
};

// 2^first, 2^(first + 1), ..., count of them.
std::vector<float> Powers(int first, int count) {
  std::vector<float> powers(count);
  for (int i = 0; i < count; ++i) powers[i] = std::ldexp(1.F, first + i);
  return powers;
}

// 2^e as a product of two that a float holds, by biased exponent, e = sign * (exponent - offset).
struct TwoPowers {
  std::vector<float> first, second;
};
TwoPowers PowersByExponent(const FloatFields& fields, int sign) {
  TwoPowers powers;
  for (int k = 0; k < fields.specials(); ++k) {
    const int e = sign * (std::max(k, 1) - fields.bias() - fields.mantissa_bits);
    powers.first.push_back(std::ldexp(1.F, e / 2));
    powers.second.push_back(std::ldexp(1.F, e - e / 2));
  }
  return powers;
}

// The bits of a float as a number, int64. `fields` are those of its own type, which float holds.
Value* FloatToBits(Writer& w, Value* x, const FloatFields& fields) {
  x = w.Cast(x, DataType::kFloat);
  Value* nan = w.Add("IsNaN", {x}, DataType::kBool);
  Value* infinite = w.Add("IsInf", {x}, DataType::kBool);
  Value* special = w.Add("Or", {nan, infinite}, DataType::kBool);
  Value* size = w.Choose(special, w.Float(0), w.Add("Abs", {x}, DataType::kFloat));
  Value* exponent = w.CountReached(size, Powers(1 - fields.bias(), fields.specials() - 1));
  const TwoPowers powers = PowersByExponent(fields, /*sign=*/-1);
  Value* mantissa = w.Multiply(w.Multiply(size, w.LookUp(powers.first, exponent)),
                               w.LookUp(powers.second, exponent));
  // A normal number has a leading one, which is not stored: it counts the exponent up once more.
  const int64_t one = int64_t{1} << fields.mantissa_bits;
  Value* steps = w.Add("Max", {w.Arithmetic("Sub", exponent, 1), w.Int(0)}, DataType::kInt64);
  Value* bits = w.Add("Add", {w.Arithmetic("Mul", steps, one), w.Cast(mantissa, DataType::kInt64)},
                      DataType::kInt64);
  bits = w.Choose(infinite, w.Int(fields.specials() * one), bits);
  bits = w.Choose(nan, w.Int(fields.specials() * one + one / 2), bits);
  Value* signed_bits = w.Arithmetic("Add", bits, int64_t{1} << (fields.bits() - 1));
  return w.Choose(w.IsNegative(x), signed_bits, bits);
}

Value* BitsToFloat(Writer& w, Value* bits, const FloatFields& fields) {
  const int64_t one = int64_t{1} << fields.mantissa_bits;
  Value* exponent = w.Arithmetic("Mod", w.Arithmetic("Div", bits, one), fields.specials() + 1);
  Value* fraction = w.Arithmetic("Mod", bits, one);
  Value* zero = w.Int(0);
  Value* normal = w.Add("Greater", {exponent, zero}, DataType::kBool);
  Value* mantissa = w.Choose(normal, w.Arithmetic("Add", fraction, one), fraction);
  TwoPowers powers = PowersByExponent(fields, /*sign=*/1);
  powers.first.push_back(std::numeric_limits<float>::infinity());
  powers.second.push_back(1);
  Value* size =
      w.Multiply(w.Multiply(w.Cast(mantissa, DataType::kFloat), w.LookUp(powers.first, exponent)),
                 w.LookUp(powers.second, exponent));
  Value* special = w.Add("Equal", {exponent, w.Int(fields.specials())}, DataType::kBool);
  Value* has_fraction = w.Add("Greater", {fraction, zero}, DataType::kBool);
  Value* nan = w.Add("And", {special, has_fraction}, DataType::kBool);
  size = w.Choose(nan, w.Float(std::numeric_limits<float>::quiet_NaN()), size);
  Value* sign = w.Arithmetic("Div", bits, int64_t{1} << (fields.bits() - 1));
  Value* negative = w.Add("Greater", {sign, zero}, DataType::kBool);
  return w.Choose(negative, w.Add("Neg", {size}, DataType::kFloat), size);
}

int64_t TwoTo(int bits) { return int64_t{1} << bits; }

// The bits of x as a number; null for types that have none here.
Value* ToBits(Writer& w, Value* x) {
  switch (x->dtype()) {
    case DataType::kFloat:
      return FloatToBits(w, x, kFloatFields);
    case DataType::kFloat16:
      return FloatToBits(w, x, kFloat16Fields);
    case DataType::kBfloat16:
      return w.Arithmetic("Div", FloatToBits(w, x, kFloatFields), TwoTo(16));
    case DataType::kUint8:
    case DataType::kUint16:
    case DataType::kUint32:
      return w.Cast(x, DataType::kInt64);
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32: {
      Value* number = w.Cast(x, DataType::kInt64);
      Value* negative = w.Add("Less", {number, w.Int(0)}, DataType::kBool);
      const int bits = BitWidth(x->dtype());
      return w.Choose(negative, w.Arithmetic("Add", number, TwoTo(bits)), number);
    }
    default:
      return nullptr;
  }
}

Value* FromBits(Writer& w, Value* bits, DataType type) {
  switch (type) {
    case DataType::kFloat:
      return BitsToFloat(w, bits, kFloatFields);
    case DataType::kFloat16:
      return w.Cast(BitsToFloat(w, bits, kFloat16Fields), type);
    case DataType::kBfloat16:
      return w.Cast(BitsToFloat(w, w.Arithmetic("Mul", bits, TwoTo(16)), kFloatFields), type);
    case DataType::kUint8:
    case DataType::kUint16:
    case DataType::kUint32:
      return w.Cast(bits, type);
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32: {
      const int width = BitWidth(type);
      Value* high = w.Add("GreaterOrEqual", {bits, w.Int(TwoTo(width - 1))}, DataType::kBool);
      return w.Cast(w.Choose(high, w.Arithmetic("Sub", bits, TwoTo(width)), bits), type);
    }
    default:
      return nullptr;
  }
}

// The e4m3fn code nearest to x, ties to even; `saturate` as Cast has it.
Value* EncodeFloat8(Writer& w, Value* x, bool saturate) {
  constexpr int kExponents = 14;  // from 2^-5 on; below it codes are 2^-9 apart
  constexpr float kNan = 127, kLargest = 126, kSign = 128;
  x = w.Cast(x, DataType::kFloat);
  Value* size = w.Add("Abs", {x}, DataType::kFloat);
  Value* exponent = w.CountReached(size, Powers(-5, kExponents));
  std::vector<float> to_codes = Powers(9 - kExponents, kExponents + 1);
  std::reverse(to_codes.begin(), to_codes.end());
  Value* mantissa =
      w.Add("Round", {w.Multiply(size, w.LookUp(to_codes, exponent))}, DataType::kFloat);
  Value* base = w.Multiply(w.Cast(exponent, DataType::kFloat), w.Float(8));
  Value* code = w.Add("Add", {base, mantissa}, DataType::kFloat);
  code = w.Add("Min", {code, w.Float(saturate ? kLargest : kNan)}, DataType::kFloat);
  code = w.Choose(w.Add("IsNaN", {x}, DataType::kBool), w.Float(kNan), code);
  Value* negative = w.Add("Add", {code, w.Float(kSign)}, DataType::kFloat);
  return w.Cast(w.Choose(w.IsNegative(x), negative, code), DataType::kUint8);
}

Value* DecodeFloat8(Writer& w, Value* codes, DataType type) {
  std::array<uint8_t, 256> all;
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
  std::vector<float> table(all.size());
  PF_CHECK(DecodeToFloat(kFloat8, all.data(), all.size(), table.data()).ok());
  return w.Cast(w.LookUp(table, w.Cast(codes, DataType::kInt64)), type);
}

// Ops that hand elements on as they are.
bool MovesElements(const Node& node) {
  return IsAnyOf(node, {"Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
                        "Identity", "Reshape", "Slice", "ScatterND", "Transpose", "ScatterElements",
                        "Unsqueeze", "Squeeze", "Split", "Where", "Shape", "Size"});
}

bool Touches(const Node& node, DataType type) {
  const auto is_typed = [&](const Value* value) {
    return value != nullptr && value->dtype() == type;
  };
  return std::ranges::any_of(node.inputs(), is_typed) ||
         std::ranges::any_of(node.outputs(), is_typed);
}

absl::Status Refuse(const Node& node, std::string_view why) {
  return absl::UnimplementedError(StrCat(node.Description(), ": ", why));
}

// One scale for all elements, in float, and no zero point.
bool HasOneScale(const Node& node) {
  const Value* scale = node.input(1);
  return node.input(2) == nullptr && scale != nullptr && scale->dtype() == DataType::kFloat &&
         scale->shape() && scale->shape()->rank() == 0;
}

// One node that touches float8 or is BitCast; null where it stays as it is.
absl::StatusOr<Value*> Lowered(Graph& graph, Node* node) {
  Writer w(graph, node);
  Value* x = node->input(0);
  if (node->Is("BitCast")) {
    const DataType from = x->dtype(), to = node->output(0)->dtype();
    const auto is_byte = [](DataType t) { return t == kFloat8 || t == DataType::kUint8; };
    if (is_byte(from) && is_byte(to)) return w.Add("Identity", {x}, DataType::kUint8);
    Value* bits = ToBits(w, x);
    Value* y = bits == nullptr ? nullptr : FromBits(w, bits, to);
    if (y != nullptr) return y;
    return Refuse(*node, StrCat("BitCast of ", DataTypeName(from), " to ", DataTypeName(to),
                                " cannot be lowered"));
  }
  if (node->Is("Cast") && node->output(0)->dtype() == kFloat8) {
    return EncodeFloat8(w, x, IntOr(*node, "saturate", 1) != 0);
  }
  if (node->Is("QuantizeLinear") && HasOneScale(*node)) {
    Value* scale = w.Cast(node->input(1), DataType::kFloat);
    Value* scaled = w.Add("Div", {w.Cast(x, DataType::kFloat), scale}, DataType::kFloat);
    return EncodeFloat8(w, scaled, IntOr(*node, "saturate", 1) != 0);
  }
  if (node->Is("DequantizeLinear") && HasOneScale(*node)) {
    return w.Multiply(DecodeFloat8(w, x, DataType::kFloat), node->input(1));
  }
  if (node->Is("Cast")) return DecodeFloat8(w, x, node->output(0)->dtype());
  if (node->Is("Constant") || MovesElements(*node) || !node->domain().empty()) return nullptr;
  return Refuse(*node, "expected float8 to be moved or cast, it cannot be computed with in bytes");
}

absl::Status BytesInConstant(Graph& graph, Value* value) {
  const Tensor& tensor = *value->initializer();
  PF_ASSIGN_OR_RETURN(Tensor bytes, Tensor::View(DataType::kUint8, tensor.dims(), tensor.buffer(),
                                                 tensor.buffer_offset()));
  graph.SetInitializer(value, std::move(bytes));
  return absl::OkStatus();
}

}  // namespace

absl::Status LowerBits(Graph& graph) {
  for (Node* node : NodesOf(graph)) {
    for (Graph* subgraph : node->Subgraphs()) PF_RETURN_IF_ERROR(LowerBits(*subgraph));
    if (!node->Is("BitCast") && !Touches(*node, kFloat8)) continue;
    PF_ASSIGN_OR_RETURN(Value * lowered, Lowered(graph, node));
    if (lowered == nullptr) continue;
    // Until all are bytes their type says what they mean.
    lowered->set_dtype(node->output(0)->dtype());
    ReplaceNode(node, lowered);
  }
  for (Value* value : graph.values()) {
    if (value->dtype() != kFloat8) continue;
    if (value->initializer() != nullptr) PF_RETURN_IF_ERROR(BytesInConstant(graph, value));
    value->set_dtype(DataType::kUint8);
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
