// SPDX-License-Identifier: Apache-2.0
// Cast, CastLike and BitCast: elements in another type.
#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/packed_types.h"
#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/infer/exact_integers.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/kernels/numeric/packed_elements.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

std::vector<DataType> CastTypes() {
  std::vector<DataType> types = AllTypes();
  std::erase_if(types, [](DataType type) {
    return type == DataType::kComplex64 || type == DataType::kComplex128;
  });
  return types;
}

absl::StatusOr<DataType> TargetType(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t code, node.IntAttribute("to", 0));
  const bool fits = code > 0 && code <= kLastDataType;
  const std::optional<DataType> type =
      fits ? DataTypeFromCode(static_cast<int32_t>(code)) : std::nullopt;
  if (type) return *type;
  return AttributeError(node, "to", absl::StrCat(code, " is no type"));
}

absl::Status InferCastTo(ShapeContext& c, DataType type) {
  PF_ASSIGN_OR_RETURN(const std::string mode, c.node().StringAttribute("round_mode", "up"));
  if (mode != "up" && mode != "down" && mode != "nearest") {
    return c.AttributeError("round_mode", absl::StrCat("\"", mode, "\" is not known"));
  }
  const Shape* x = c.input_shape(0);
  std::optional<std::vector<Dim>> value = c.carried_value(0);
  if (value && IsInteger(type)) {
    for (Dim& dim : *value) {
      if (!HoldsExactly(type, dim, dim)) dim = Dim();
    }
    c.SetOutputValue(0, *std::move(value));
  }
  c.SetOutput(0, type, CopyOf(x));
  return absl::OkStatus();
}

absl::Status InferCast(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const DataType type, TargetType(c.node()));
  return InferCastTo(c, type);
}

absl::Status InferCastLike(ShapeContext& c) { return InferCastTo(c, c.input_type(1)); }

// --- conversion, by chunks through the widest type of the source's kind ---

// Elements that a chunk has: even, so that packed elements start at a byte.
constexpr int64_t kChunk = 1024;

struct CastRules {
  bool saturate = true;
  E8M0Rounding rounding = E8M0Rounding::kUp;
};

absl::StatusOr<CastRules> ReadRules(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t saturate, node.IntAttribute("saturate", 1));
  PF_ASSIGN_OR_RETURN(const std::string mode, node.StringAttribute("round_mode", "up"));
  return CastRules{saturate != 0, mode == "down"      ? E8M0Rounding::kDown
                                  : mode == "nearest" ? E8M0Rounding::kNearest
                                                      : E8M0Rounding::kUp};
}

template <typename From, typename Wide>
void Widen(const void* from, int64_t count, Wide* to) {
  const From* elements = static_cast<const From*>(from);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Wide>(elements[i]);
}

template <typename Wide>
void WidenInts(DataType type, const void* from, int64_t count, Wide* to) {
  if (IsPacked(type)) {
    const auto* packed = static_cast<const uint8_t*>(from);
    const int bits = BitWidth(type);
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t code = GetPacked(packed, i, bits);
      to[i] = IsSigned(type) ? static_cast<Wide>(SignExtendPacked(code, bits))
                             : static_cast<Wide>(code);
    }
    return;
  }
  (void)DispatchType(type, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) Widen<T>(from, count, to);
  });
}

// Integers wrap into narrower integers; floats saturate (ConvertElement), but for packed integers,
// into which their integral part wraps as the cases of the standard have it.
template <typename Wide>
absl::Status Narrow(DataType type, const Wide* from, int64_t count, void* to,
                    const CastRules& rules) {
  if (IsPacked(type)) {
    if (type != DataType::kFloat4E2M1) {
      const int bits = BitWidth(type);
      std::fill_n(static_cast<uint8_t*>(to), PackedBytes(count, bits), 0);
      for (int64_t i = 0; i < count; ++i) {
        const auto code = static_cast<uint8_t>(ConvertElement<int64_t>(from[i]) & 15);
        SetPacked(static_cast<uint8_t*>(to), i, bits, code);
      }
      return absl::OkStatus();
    }
    std::array<float, kChunk> floats;
    for (int64_t i = 0; i < count; ++i) floats[i] = static_cast<float>(from[i]);
    return EncodeFromFloat(type, floats.data(), count, to, rules.saturate);
  }
  return DispatchType(type, [&]<typename T>() {
    T* elements = static_cast<T*>(to);
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, Float8E8M0>) {
        elements[i] = T(static_cast<float>(from[i]),
                        rules.saturate ? Overflow::kSaturate : Overflow::kSpecial, rules.rounding);
      } else {
        elements[i] = ConvertElement<T>(from[i], rules.saturate);
      }
    }
  });
}

struct Cast {
  DataType from_type, to_type;
  CastRules rules;
};

absl::Status CastChunk(const Cast& cast, const void* from, int64_t count, void* to) {
  const auto& [from_type, to_type, rules] = cast;
  if (from_type == DataType::kDouble) {
    return Narrow(to_type, static_cast<const double*>(from), count, to, rules);
  }
  if (to_type == DataType::kFloat && !IsFloatingPoint(from_type)) {
    WidenInts(from_type, from, count, static_cast<float*>(to));
    return absl::OkStatus();
  }
  if (from_type == DataType::kUint64) {
    return Narrow(to_type, static_cast<const uint64_t*>(from), count, to, rules);
  }
  if (!IsFloatingPoint(from_type)) {
    std::array<int64_t, kChunk> wide;
    WidenInts(from_type, from, count, wide.data());
    return Narrow(to_type, wide.data(), count, to, rules);
  }
  std::array<float, kChunk> wide;
  const float* floats = static_cast<const float*>(from);
  if (from_type != DataType::kFloat) {
    PF_RETURN_IF_ERROR(DecodeToFloat(from_type, from, count, wide.data()));
    floats = wide.data();
  }
  if (IsFloatingPoint(to_type) && to_type != DataType::kDouble &&
      to_type != DataType::kFloat8E8M0) {
    return EncodeFromFloat(to_type, floats, count, to, rules.saturate);
  }
  return Narrow(to_type, floats, count, to, rules);
}

absl::Status RunCast(KernelArgs& args) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  if (x.dtype == y.dtype) return CopyBytes(args);
  PF_ASSIGN_OR_RETURN(const CastRules rules, ReadRules(*args.node));
  const Cast cast = {x.dtype, y.dtype, rules};
  const int64_t size = x.size();
  const int64_t chunks = (size + kChunk - 1) / kChunk;
  ParallelFor(chunks, kChunk, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      // A chunk's conversion cannot fail: inference has checked both types.
      CastChunk(cast, x.as<char>() + i * kChunk * BitWidth(x.dtype) / 8,
                std::min(kChunk, size - i * kChunk),
                y.as<char>() + i * kChunk * BitWidth(y.dtype) / 8)
          .IgnoreError();
    }
  });
  return absl::OkStatus();
}

absl::Status InferBitCast(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const DataType type, TargetType(c.node()));
  const DataType from = c.input_type(0);
  if (from != DataType::kUndefined && BitWidth(from) != BitWidth(type)) {
    return c.AttributeError("to",
                            absl::StrCat(std::string(DataTypeName(type)), " is not as wide as ",
                                         std::string(DataTypeName(from))));
  }
  const Shape* x = c.input_shape(0);
  c.SetOutput(0, type, CopyOf(x));
  return absl::OkStatus();
}

OpDef CastBase(const char* name, int since) {
  return OpDef("", name, since)
      .Types("T1", CastTypes())
      .Types("T2", CastTypes())
      .FlagAttr(
          "saturate", int64_t{1},
          "8-bit floats: out of range gives the largest number, else infinity or NaN (opset 19)")
      .Attr("round_mode", "up", "to float8e8m0: up, down, nearest (opset 24)")
      .AddKernel({.name = "reference", .run = RunCast});
}

}  // namespace

OpDef CastDef() {
  return CastBase("Cast", 6)
      .Doc(
          "The elements in another type. Floats round to nearest even; to integers they truncate, "
          "and saturate where they do not fit; integers wrap into narrower ones.")
      .Input("input", "T1", "[...]")
      .Output("output", "T2", "[...]")
      .RequiredAttr("to", "the type's ONNX code")
      .InferShapes(InferCast)
      .Elementwise();
}

OpDef CastLikeDef() {
  return CastBase("CastLike", 15)
      .Doc("Cast to the type of the second input.")
      .Input("input", "T1", "[...]")
      .Input("target_type", "T2")
      .Output("output", "T2", "[...]")
      .InferShapes(InferCastLike);
}

OpDef BitCastDef() {
  return OpDef("", "BitCast", 26)
      .Doc("The bits of the elements under another type of the same width.")
      .Input("input", "T1", "[...]")
      .Output("output", "T2", "[...]")
      .RequiredAttr("to", "the type's ONNX code")
      .Types("T1", AllTypes())
      .Types("T2", AllTypes())
      .InferShapes(InferBitCast)
      .View(0, 0)
      .AddKernel({.name = "reference", .run = CopyBytes});
}

}  // namespace pagefuse::onnx_ops
