// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"
#include "pagefuse/ops/pagefuse/linear/split_linear.h"
#include "pagefuse/ops/schema/bf16_blocks.h"
#include "pagefuse/ops/schema/code_lanes.h"
#include "pagefuse/ops/schema/token_rows.h"

namespace pagefuse::pagefuse_ops {
namespace {

using microsoft_ops::NBitsParameters;
using microsoft_ops::NBitsSizes;

constexpr int kW = kSplitLinearIn["w"], kScales = kSplitLinearIn["scales"];

// Columns of a weight that lie together in every packing.
constexpr int64_t kBlockColumns = PackedBf16::kBlockColumns;
static_assert(kBlockColumns == NBitsLanes::kLanes);

// Rows of x up to which a product waits for its weights: a copy of its rows is nothing beside that,
// and one product more evenly shared among threads than several.
constexpr int64_t kFewRows = 16;

bool IsCutInBlocks(const SplitLinearCall& call) {
  return std::ranges::all_of(
      call.parts, [](const LinearPart& part) { return part.begin % kBlockColumns == 0; });
}

void CopyColumns(const SplitLinearCall& call, const float* whole) {
  for (const LinearPart& part : call.parts) {
    for (int64_t r = 0; part.y != nullptr && r < call.x.m; ++r) {
      std::memcpy(part.y + r * part.n, whole + r * call.n + part.begin,
                  static_cast<size_t>(part.n) * sizeof(float));
    }
  }
}

// Makes all outputs by product(columns, y): of all columns at once, whose rows are cut then, or part
// by part straight to where each goes. Either way a sum takes its products in the same order.
template <typename ProductFn>
absl::Status MakeParts(KernelArgs& args, const SplitLinearCall& call, const ProductFn& product) {
  constexpr int kWholeSlot = 1;  // products have slot 0
  if (call.x.m > kFewRows && IsCutInBlocks(call)) {
    for (const LinearPart& part : call.parts) {
      if (part.y != nullptr) PF_RETURN_IF_ERROR(product(part, OutputView{part.y, part.n}));
    }
  } else {
    const size_t bytes = static_cast<size_t>(call.x.m * call.n) * sizeof(float);
    auto* whole = static_cast<float*>(args.scratch->Get(bytes, kWholeSlot));
    PF_RETURN_IF_ERROR(product(LinearPart{0, call.n, whole}, OutputView{whole, call.n}));
    CopyColumns(call, whole);
  }
  call.AddBias();
  return absl::OkStatus();
}

absl::StatusOr<NBitsSizes> SizesOf(const KernelArgs& args, const SplitLinearCall& call) {
  return CodeSizesOf(*args.node, call.k, call.n);
}

// The codes of all columns; the scales are float: the parameters refer to them.
absl::StatusOr<NBitsWeight> CodesOf(const KernelArgs& args, const SplitLinearCall& call) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, SizesOf(args, call));
  PF_ASSIGN_OR_RETURN(const NBitsParameters parameters,
                      NBitsParameters::Of(args.input(kScales), {}));
  return sizes.Weight(args.input(kW).as<uint8_t>(), parameters);
}

NBitsWeight RowsOf(NBitsWeight w, const LinearPart& part) {
  w.codes += part.begin * w.row_bytes;
  w.scales += part.begin * w.blocks();
  w.n = part.n;
  return w;
}

NBitsLanes RowsOf(NBitsLanes w, const LinearPart& part) {
  const int64_t group = part.begin / NBitsLanes::kLanes;
  w.codes += NBitsLanes::At(group, w.words(), 0);
  const int64_t at = NBitsLanes::At(group, w.blocks(), 0);
  if (w.half_scales != nullptr) w.half_scales += at;
  if (w.scales != nullptr) w.scales += at;
  w.n = part.n;
  return w;
}

// Of the kernel that rounds x.
class SplitCodesState : public PackedConstants {
 public:
  using PackedConstants::PackedConstants;
  bool rows_are_tokens = false;
};

}  // namespace

absl::Status RunSplitBf16(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const SplitLinearCall call, SplitLinearCall::Of(args));
  const PackedBf16 whole(Bf16BlocksOf(args, kW), call.k, call.n);
  void* scratch = args.scratch->Get(LinearBf16ScratchBytes(call.x.m, call.k));
  return MakeParts(args, call, [&](const LinearPart& part, const OutputView& y) {
    LinearBf16(call.x, {whole.column_block(part.begin / kBlockColumns), call.k, part.n}, scratch,
               y);
    return absl::OkStatus();
  });
}

absl::Status RunSplitCodesReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const SplitLinearCall call, SplitLinearCall::Of(args));
  PF_ASSIGN_OR_RETURN(const NBitsWeight w, CodesOf(args, call));
  for (const LinearPart& part : call.parts) {
    for (int64_t r = 0; part.y != nullptr && r < call.x.m; ++r) {
      const float* x = call.x.data + r * call.x.stride;
      for (int64_t i = 0; i < part.n; ++i) {
        part.y[r * part.n + i] =
            static_cast<float>(microsoft_ops::NBitsReferenceDot(x, w, part.begin + i));
      }
    }
  }
  call.AddBias();
  return absl::OkStatus();
}

absl::Status RunSplitCodes(KernelArgs& args) {
  constexpr int64_t kBfloat16Level = 3;
  PF_ASSIGN_OR_RETURN(const SplitLinearCall call, SplitLinearCall::Of(args));
  PF_ASSIGN_OR_RETURN(const NBitsWeight w, CodesOf(args, call));
  PF_ASSIGN_OR_RETURN(const int64_t level, args.node->IntAttribute("accuracy_level", 0));
  const NBitsPrecision precision =
      level == kBfloat16Level ? NBitsPrecision::kBfloat16 : NBitsPrecision::kFloat32;
  return MakeParts(args, call, [&](const LinearPart& part, const OutputView& y) {
    const NBitsWeight rows = RowsOf(w, part);
    void* scratch = args.scratch->Get(NBitsScratchBytes(call.x.m, rows));
    return LinearNBits(call.x, rows, precision, scratch, y);
  });
}

absl::StatusOr<std::unique_ptr<KernelState>> PrepareSplitInt8(const PrepareArgs& args) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, kSplitLinearPorts.CodeSizes(*args.query.node));
  auto state = std::make_unique<SplitCodesState>(CodeLanePorts(kW, kScales, {.rows = sizes.n}));
  state->rows_are_tokens = RowsAreTokens(args.query, kSplitLinearIn["x"]);
  return state;
}

absl::Status RunSplitInt8(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const SplitLinearCall call, SplitLinearCall::Of(args));
  PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, SizesOf(args, call));
  const NBitsLanes w = sizes.Lanes(args, kW, kScales);
  const bool tokens = static_cast<const SplitCodesState&>(*args.state).rows_are_tokens;
  return MakeParts(args, call, [&](const LinearPart& part, const OutputView& to) {
    const NBitsLanes lanes = RowsOf(w, part);
    ByTokenRows(args, tokens, call.x, to, [&](const RowsView& x, const OutputView& y, bool read) {
      if (read) {
        LinearCodesBf16(x, lanes, args.scratch->Get(LinearBf16ScratchBytes(x.m, w.k)), y);
      } else {
        LinearNBitsInt8(x, lanes, args.scratch->Get(NBitsInt8ScratchBytes(x.m, lanes)), y);
      }
    });
    return absl::OkStatus();
  });
}

}  // namespace pagefuse::pagefuse_ops
