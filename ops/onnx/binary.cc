// SPDX-License-Identifier: Apache-2.0
// Elementwise ops of two inputs with numpy broadcast: arithmetic, comparison, logic, bits.
#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/elementwise.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/onnx/scalar_math.h"

namespace pagefuse::onnx_ops {
namespace {

template <typename Fn, typename A, typename B, typename Y>
void TypedRow(const RowOperands& x, void* y, int64_t n) {
  const auto* a = static_cast<const A*>(x.a);
  const auto* b = static_cast<const B*>(x.b);
  for (int64_t i = 0; i < n; ++i) {
    static_cast<Y*>(y)[i] = Store<Y>(Fn()(Load(a[i * x.a_stride]), Load(b[i * x.b_stride])));
  }
}

template <typename Types, typename Fn>
absl::Status RunReference(Fn, KernelArgs& args) {
  const BinaryRowFn row = Choose(Types(), args.input(0).dtype, []<typename T>() -> BinaryRowFn {
    using Result = decltype(Fn()(Compute<T>(), Compute<T>()));
    return TypedRow<Fn, T, T, std::conditional_t<std::is_same_v<Result, bool>, bool, T>>;
  });
  return RunBinaryRows(args, row);
}

Kernel HwyKernel(BinaryRowFn row) {
  return {
      .name = "hwy", .dtypes = {DataType::kFloat}, .priority = 10, .run = [row](KernelArgs& args) {
        return RunBinaryRows(args, row);
      }};
}

// `type`: of the result, T if that of the inputs.
template <typename Types, typename Fn>
OpDef Binary(Fn fn, std::string_view name, int since, std::string_view doc,
             std::string_view type = "T") {
  const DataType dtype = type == "T" ? DataType::kUndefined : DataType::kBool;
  OpDef op("", name, since);
  op.Doc(doc)
      .Input("A", "T", "[...]")
      .Input("B", "T", "[...], broadcast with A")
      .Output("C", type, "the broadcast shape")
      .Types("T", TypesOf(Types()))
      .InferShapes([dtype](ShapeContext& context) { return InferBroadcast(context, dtype); })
      .AddKernel({.name = "reference",
                  .run = [fn](KernelArgs& args) { return RunReference<Types>(fn, args); }})
      .Elementwise();
  if (type == "T") op.InPlace(0, 0).InPlace(0, 1);
  return op;
}

absl::Status CheckDivisor(const KernelArgs& args) {
  const TensorArg& divisor = args.input(1);
  return Dispatch(Ints(), divisor.dtype, [&]<typename T>() -> absl::Status {
    for (int64_t i = 0; i < divisor.size(); ++i) {
      if (divisor.as<T>()[i] != 0) continue;
      return ValueError(args, 1, "B",
                        StrCat("element ", i, " is 0, an integer divisor must not be"));
    }
    return absl::OkStatus();
  });
}

// Of a divisor that a device has nothing is known.
absl::Status ValidateDivisor(const KernelArgs& args) {
  const TensorArg& divisor = args.input(1);
  const bool is_checked = IsInteger(divisor.dtype) && divisor.data != nullptr;
  return is_checked ? CheckDivisor(args) : absl::OkStatus();
}

absl::Status RunMod(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t fmod, args.node->IntAttribute("fmod", 0));
  return fmod != 0 ? RunReference<Numbers>(kFmod, args) : RunReference<Numbers>(kMod, args);
}

absl::Status RunBitShift(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const std::string direction, args.node->StringAttribute("direction", ""));
  if (direction == "LEFT") return RunReference<Ints>(kShiftLeft, args);
  return RunReference<Ints>(kShiftRight, args);
}

absl::Status InferBitShift(ShapeContext& context) {
  PF_ASSIGN_OR_RETURN(const std::string direction, context.node().StringAttribute("direction", ""));
  if (direction != "LEFT" && direction != "RIGHT") {
    return context.AttributeError("direction",
                                  StrCat("expected LEFT or RIGHT, got \"", direction, "\""));
  }
  return InferBroadcast(context);
}

using PowBases = decltype(Join(Floats(), TypeList<int32_t, int64_t>()));

absl::Status RunPow(KernelArgs& args) {
  const BinaryRowFn row = Choose(PowBases(), args.input(0).dtype, [&]<typename T>() {
    return Choose(Numbers(), args.input(1).dtype,
                  []<typename E>() -> BinaryRowFn { return TypedRow<decltype(kPow), T, E, T>; });
  });
  return RunBinaryRows(args, row);
}

// What exports use Pow for: one exponent for all elements.
absl::Status SupportsFastPow(const KernelQuery& query) {
  const Value* exponent = query.node->input(1);
  if (exponent == nullptr || exponent->dtype() != DataType::kFloat) {
    return absl::UnimplementedError("the exponent is not float");
  }
  return absl::OkStatus();
}

absl::Status RunFastPow(KernelArgs& args) {
  const TensorArg& exponent = args.input(1);
  // Only the base's elements are walked: the exponent's shape must add none.
  if (exponent.size() != 1) return RunPow(args);
  const float power = exponent.as<float>()[0];
  const UnaryRow row = PowRowFor(power);
  const float* x = args.input(0).as<float>();
  float* y = args.output(0).as<float>();
  ParallelFor(args.output(0).size(), 4,
              [&](int64_t begin, int64_t end) { row(x + begin, y + begin, end - begin, power); });
  return absl::OkStatus();
}

}  // namespace

OpDef AddDef() {
  return Binary<Numbers>(kAdd, "Add", 7, "A + B; integers wrap.").AddKernel(HwyKernel(AddRow));
}

OpDef SubDef() {
  return Binary<Numbers>(kSub, "Sub", 7, "A - B; integers wrap.").AddKernel(HwyKernel(SubRow));
}

OpDef MulDef() {
  return Binary<Numbers>(kMul, "Mul", 7, "A * B; integers wrap.").AddKernel(HwyKernel(MulRow));
}

OpDef DivDef() {
  return Binary<Numbers>(kDiv, "Div", 7, "A / B; integers truncate towards 0.")
      .Validate(ValidateDivisor)
      .AddKernel(HwyKernel(DivRow));
}

OpDef ModDef() {
  return OpDef("", "Mod", 10)
      .Doc("The remainder of A / B: with the sign of B, or of A if fmod is 1.")
      .Input("A", "T", "[...]")
      .Input("B", "T", "[...], broadcast with A")
      .Output("C", "T", "the broadcast shape")
      .FlagAttr("fmod", int64_t{0}, "1: as C's fmod")
      .Types("T", TypesOf(Numbers()))
      .InferShapes([](ShapeContext& context) { return InferBroadcast(context); })
      .Validate(ValidateDivisor)
      .AddKernel({.name = "reference", .run = RunMod})
      .Elementwise()
      .InPlace(0, 0)
      .InPlace(0, 1);
}

OpDef PowDef() {
  return OpDef("", "Pow", 7)
      .Doc("X to the power Y, in X's type; integers to integer powers wrap.")
      .Input("X", "T", "[...]")
      .Input("Y", "T1", "[...], broadcast with X")
      .Output("Z", "T", "the broadcast shape")
      .Types("T", TypesOf(PowBases()))
      .Types("T1", TypesOf(Numbers()))
      .InferShapes([](ShapeContext& context) { return InferBroadcast(context); })
      .AddKernel({.name = "reference", .run = RunPow})
      .AddKernel({.name = "hwy",
                  .dtypes = {DataType::kFloat},
                  .priority = 10,
                  .supports = SupportsFastPow,
                  .run = RunFastPow})
      .Elementwise()
      .InPlace(0, 0);
}

OpDef PReluDef() {
  using Types = decltype(Join(Floats(), TypeList<int32_t, int64_t, uint32_t, uint64_t>()));
  return Binary<Types>(kPRelu, "PRelu", 7, "X where X >= 0, else slope * X.");
}

OpDef AndDef() { return Binary<TypeList<bool>>(kAnd, "And", 7, "A and B.", "bool"); }
OpDef OrDef() { return Binary<TypeList<bool>>(kOr, "Or", 7, "A or B.", "bool"); }
OpDef XorDef() { return Binary<TypeList<bool>>(kXor, "Xor", 7, "A != B.", "bool"); }

OpDef EqualDef() {
  using Types = decltype(Join(Numbers(), TypeList<bool>()));
  return Binary<Types>(kEqual, "Equal", 7, "A == B.", "bool");
}
OpDef LessDef() { return Binary<Numbers>(kLess, "Less", 7, "A < B.", "bool"); }
OpDef LessOrEqualDef() {
  return Binary<Numbers>(kLessOrEqual, "LessOrEqual", 12, "A <= B.", "bool");
}
OpDef GreaterDef() { return Binary<Numbers>(kGreater, "Greater", 7, "A > B.", "bool"); }
OpDef GreaterOrEqualDef() {
  return Binary<Numbers>(kGreaterOrEqual, "GreaterOrEqual", 12, "A >= B.", "bool");
}

OpDef BitwiseAndDef() {
  return Binary<Ints>(kBitwiseAnd, "BitwiseAnd", 18, "The bits set in A and B.");
}
OpDef BitwiseOrDef() {
  return Binary<Ints>(kBitwiseOr, "BitwiseOr", 18, "The bits set in A or B.");
}
OpDef BitwiseXorDef() {
  return Binary<Ints>(kBitwiseXor, "BitwiseXor", 18, "The bits set in one of A and B.");
}

OpDef BitShiftDef() {
  return OpDef("", "BitShift", 11)
      .Doc(
          "Shifts the bits of X by Y. Bits that come in are 0, or the sign of a signed X on the "
          "left.")
      .Input("X", "T", "[...]")
      .Input("Y", "T", "[...], broadcast with X")
      .Output("Z", "T", "the broadcast shape")
      .RequiredAttr("direction", "LEFT or RIGHT")
      .Types("T", TypesOf(Ints()))
      .InferShapes(InferBitShift)
      .AddKernel({.name = "reference", .run = RunBitShift})
      .Elementwise()
      .InPlace(0, 0)
      .InPlace(0, 1);
}

}  // namespace pagefuse::onnx_ops
