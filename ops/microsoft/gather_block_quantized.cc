// SPDX-License-Identifier: Apache-2.0
// GatherBlockQuantized: rows of a quantised table, decoded as they are gathered.
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/packed_elements.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/schema/code_lanes.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

constexpr int kData = 0;
constexpr int kIndices = 1;
constexpr int kScales = 2;
constexpr int kZeros = 3;

struct Attributes {
  int64_t gather_axis = 0, quantize_axis = 1, block = 128, bits = 4;
};

absl::StatusOr<Attributes> AttributesOf(const Node& node) {
  Attributes a;
  PF_ASSIGN_OR_RETURN(a.gather_axis, node.IntAttribute("gather_axis", 0));
  PF_ASSIGN_OR_RETURN(a.quantize_axis, node.IntAttribute("quantize_axis", 1));
  PF_ASSIGN_OR_RETURN(a.block, node.IntAttribute("block_size", 128));
  PF_ASSIGN_OR_RETURN(a.bits, node.IntAttribute("bits", 4));
  return a;
}

// Codes in an element of the data: a byte of uint8 holds two of 4 bits, or four of 2, the first in
// the low bits.
int64_t CodesPerElement(DataType type, const Attributes& a) {
  return type == DataType::kUint8 ? 8 / a.bits : 1;
}

absl::Status CheckAttributes(const ShapeContext& c, const Attributes& a, int rank) {
  if (a.bits != 2 && a.bits != 4 && a.bits != 8) {
    return c.AttributeError("bits", StrCat("expected 2, 4 or 8, got ", a.bits));
  }
  if (a.block < 16 || (a.block & (a.block - 1)) != 0) {
    return c.AttributeError("block_size",
                            StrCat("expected a power of two from 16 on, got ", a.block));
  }
  const std::pair<const char*, int64_t> axes[] = {{"gather_axis", a.gather_axis},
                                                  {"quantize_axis", a.quantize_axis}};
  for (const auto& [name, axis] : axes) {
    if (axis >= -rank && axis < rank) continue;
    return c.AttributeError(name, StrCat(axis, " is out of range for rank ", rank));
  }
  const DataType type = c.input_type(kData);
  if (a.bits != 4 && type != DataType::kUint8) {
    return c.InputError(kData, StrCat("type ", DataTypeName(type), " has no ", a.bits, " bits"));
  }
  return absl::OkStatus();
}

absl::Status Infer(ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const Attributes a, AttributesOf(c.node()));
  const Shape* data = c.input_shape(kData);
  const Shape* indices = c.input_shape(kIndices);
  c.SetOutput(0, c.input_type(kScales), std::nullopt);
  if (data == nullptr) return absl::OkStatus();
  const int rank = data->rank();
  if (rank == 0) return c.InputError(kData, "expected at least one dim, got shape []");
  PF_RETURN_IF_ERROR(CheckAttributes(c, a, rank));
  const int64_t gather = a.gather_axis < 0 ? a.gather_axis + rank : a.gather_axis;
  const int64_t quantize = a.quantize_axis < 0 ? a.quantize_axis + rank : a.quantize_axis;
  const int64_t per_element = CodesPerElement(c.input_type(kData), a);
  if (gather == quantize) return c.AttributeError("quantize_axis", "is the gather_axis");
  if (per_element > 1 && quantize != rank - 1) {
    return c.AttributeError("quantize_axis", "must be the last axis of packed data");
  }
  Shape elements = *data;
  elements[rank - 1] = elements[rank - 1] * Dim(per_element);
  Shape parameters = elements;
  parameters[quantize] = (elements[quantize] + Dim(a.block - 1)).FloorDiv(Dim(a.block));
  PF_RETURN_IF_ERROR(ExpectShape(c, kScales, parameters));
  Shape zeros = parameters;
  zeros[rank - 1] = (zeros[rank - 1] + Dim(per_element - 1)).FloorDiv(Dim(per_element));
  PF_RETURN_IF_ERROR(ExpectShape(c, kZeros, zeros));
  if (indices == nullptr) return absl::OkStatus();
  Shape y;
  for (int d = 0; d < rank; ++d) {
    if (d == gather) {
      y.dims().insert(y.dims().end(), indices->dims().begin(), indices->dims().end());
    } else {
      y.dims().push_back(elements[d]);
    }
  }
  c.SetOutput(0, c.input_type(kScales), std::move(y));
  return absl::OkStatus();
}

absl::Status Validate(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Attributes a, AttributesOf(*args.node));
  const int64_t rows = args.input(kData).dim(static_cast<int>(a.gather_axis));
  const TensorArg& indices = args.input(kIndices);
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t index = IntAt(indices, i);
    if (index >= -rows && index < rows) continue;
    return ValueError(args, "input 1 \"indices\"",
                      StrCat("index ", index, " is out of range for ", rows, " rows"));
  }
  return absl::OkStatus();
}

// The table as [outer, rows, inner]; row (o, r) is `inner` elements, quantised along one axis.
struct Table {
  int64_t outer = 1, rows = 1, inner = 1;
  // Element e of the table as [before, length, after] around the quantised axis.
  int64_t length = 1, after = 1, block = 1;
  int bits = 4;
  const uint8_t* codes = nullptr;
  bool is_signed = false;
  const float* scales = nullptr;
  const uint8_t* zeros = nullptr;  // null: `zero` for all
  bool zeros_padded = false;       // rows of zero points along the last axis start at whole bytes
  int zero = 0;

  int64_t blocks() const { return (length + block - 1) / block; }
  // Codes of zero points in a row of them.
  int64_t zero_row() const {
    const int64_t per_byte = 8 / bits;
    return (blocks() + per_byte - 1) / per_byte * per_byte;
  }
  int CodeAt(const uint8_t* from, int64_t i) const {
    if (bits == 8) return from[i];
    const uint8_t code = GetPacked(from, i, bits);
    return is_signed ? SignExtendPacked(code, bits) : code;
  }
  float At(int64_t e) const {
    const int64_t column = e % after;
    const int64_t along = e / after % length;
    const int64_t before = e / after / length;
    const int64_t p = (before * blocks() + along / block) * after + column;
    int point = zero;
    if (zeros != nullptr) {
      const int64_t index = zeros_padded ? before * zero_row() + along / block : p;
      point = CodeAt(zeros, index);
    }
    return static_cast<float>(CodeAt(codes, e) - point) * scales[p];
  }
};

Table TableOf(const KernelArgs& args, const Attributes& a, const float* scales) {
  const TensorArg& data = args.input(kData);
  std::vector<int64_t> dims = data.dims;
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t per_element = CodesPerElement(data.dtype, a);
  dims.back() *= per_element;
  const int64_t gather = a.gather_axis < 0 ? a.gather_axis + rank : a.gather_axis;
  const int64_t quantize = a.quantize_axis < 0 ? a.quantize_axis + rank : a.quantize_axis;
  Table t;
  for (int64_t d = 0; d < rank; ++d) {
    if (d < gather) t.outer *= dims[d];
    if (d > gather) t.inner *= dims[d];
    if (d > quantize) t.after *= dims[d];
  }
  t.rows = dims[gather];
  t.length = dims[quantize];
  t.block = a.block;
  t.bits = static_cast<int>(a.bits);
  t.codes = data.as<uint8_t>();
  t.is_signed = data.dtype == DataType::kInt4;
  t.scales = scales;
  t.zeros = args.input(kZeros).as<uint8_t>();
  t.zeros_padded = per_element > 1;
  // Unsigned bytes are centred; the 4-bit types are as they say.
  t.zero = data.dtype == DataType::kUint8 ? 1 << (a.bits - 1) : 0;
  return t;
}

// Every row of y, by decode(first, row): the `inner` elements of the table from `first` on.
template <typename Decode>
void GatherRows(const KernelArgs& args, const Table& table, const Decode& decode) {
  const TensorArg& indices = args.input(kIndices);
  const TensorArg& y = args.output(0);
  const int64_t count = indices.size();
  ParallelFor(table.outer * count, table.inner * 8, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(table.inner));
    for (int64_t i = begin; i < end; ++i) {
      int64_t index = IntAt(indices, i % count);
      if (index < 0) index += table.rows;
      decode((i / count * table.rows + index) * table.inner, row);
      EncodeFromFloat(y.dtype, row.data(), table.inner, onnx_ops::ElementAt(y, i * table.inner))
          .IgnoreError();  // one of the op's types
    }
  });
}

absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Attributes a, AttributesOf(*args.node));
  PF_ASSIGN_OR_RETURN(const FloatValues scales, FloatValues::Of(args.input(kScales)));
  const Table table = TableOf(args, a, scales.data());
  GatherRows(args, table, [&](int64_t first, std::vector<float>& row) {
    for (int64_t e = 0; e < table.inner; ++e) row[e] = table.At(first + e);
  });
  return absl::OkStatus();
}

// --- a table that a product reads in lanes as well ---

// Rows of bytes, in blocks along them, around the centre.
absl::Status SupportsLanes(const KernelQuery& query) {
  const Node& node = *query.node;
  PF_ASSIGN_OR_RETURN(const Attributes a, AttributesOf(node));
  PF_RETURN_IF_ERROR(ExpectConstants(node, {kData, kScales}));
  const Tensor* data = node.input(kData)->initializer();
  const bool rows = data != nullptr && data->dtype() == DataType::kUint8 && data->rank() == 2 &&
                    a.gather_axis == 0 && (a.quantize_axis == 1 || a.quantize_axis == -1);
  if (!rows) return absl::FailedPreconditionError("the table is no constant of rows of bytes");
  if (a.bits == 2) return absl::FailedPreconditionError("codes of 2 bits are in no lanes");
  const int64_t codes = data->dims()[1] * 8 / a.bits;
  if (a.block % 32 != 0 || codes % a.block != 0 || data->dims()[0] == 0) {
    return absl::FailedPreconditionError(
        AbslView(StrCat(codes, " codes a row, in blocks of ", a.block, ", are no lanes")));
  }
  if (kZeros < node.num_inputs() && node.input(kZeros) != nullptr) {
    return absl::FailedPreconditionError("zero points are in no lanes");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KernelState>> PrepareLanes(const PrepareArgs& args) {
  std::vector<PackedPort> ports =
      CodeLanePorts(kData, kScales, {.rows = args.constants[kData]->dims()[0]});
  for (PackedPort& port : ports) port.reads_rows = true;
  return std::make_unique<PackedConstants>(std::move(ports));
}

// The table as it was where no product has it packed.
absl::Status RunLanes(KernelArgs& args) {
  const auto& state = static_cast<const PackedConstants&>(*args.state);
  if (state.Find(kData) == nullptr && state.Find(kScales) == nullptr) return Run(args);
  PF_ASSIGN_OR_RETURN(const Attributes a, AttributesOf(*args.node));
  PF_ASSIGN_OR_RETURN(const FloatValues scales, FloatValues::Of(args.input(kScales)));
  const Table table = TableOf(args, a, scales.data());
  NBitsLanes lanes{.bits = table.bits, .n = table.rows, .k = table.inner, .block = table.block};
  SetCodeLanes(args, kData, kScales, 0, lanes);
  GatherRows(args, table, [&](int64_t first, std::vector<float>& row) {
    const int64_t r = first / table.inner;
    for (int64_t e = 0; e < table.inner; ++e) {
      const int code =
          lanes.codes != nullptr ? lanes.Code(r, e) : table.CodeAt(table.codes, first + e);
      const float scale = lanes.has_scales() ? lanes.Scale(r, e / table.block)
                                             : table.scales[r * table.blocks() + e / table.block];
      row[e] = static_cast<float>(code - table.zero) * scale;
    }
  });
  return absl::OkStatus();
}

}  // namespace

OpDef GatherBlockQuantizedDef() {
  using enum DataType;
  return OpDef("com.microsoft", "GatherBlockQuantized", /*since=*/1)
      .Doc("Gather of a table of 2-, 4- or 8-bit codes in blocks: (code - zero point) * scale.")
      .Input("data", "T1",
             "[..., rows, ...]; uint8 with bits 2 or 4: four or two codes a byte on the last axis")
      .Input("indices", "Tind", "[...]; negative ones count from the end")
      .Input("scales", "T2", "as data, ceil(dim / block_size) along quantize_axis")
      .Input("zero_points", "T1", "as scales, packed as data; absent: 0, of uint8 2^(bits - 1)",
             PortKind::kOptional)
      .Output("output", "T2", "data's dims with those of indices for the gather axis")
      .Attr("gather_axis", int64_t{0}, "axis that is indexed")
      .Attr("quantize_axis", int64_t{1}, "axis of the blocks, another one")
      .Attr("block_size", int64_t{128}, "a power of two from 16 on")
      .Attr("bits", int64_t{4}, "of a code in uint8 data: 2, 4 or 8")
      .Types("T1", {kUint8, kInt4, kUint4})
      .Types("Tind", {kInt32, kInt64})
      .Types("T2", {kFloat, kFloat16, kBfloat16})
      .InferShapes(Infer)
      .Validate(Validate)
      .AddKernel({.name = "reference", .run = Run})
      .AddKernel({.name = "lanes",
                  .priority = 10,
                  .supports = SupportsLanes,
                  .prepare = PrepareLanes,
                  .run = RunLanes});
}

}  // namespace pagefuse::microsoft_ops
