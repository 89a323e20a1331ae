// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/nbits_int8.h"
#include "pagefuse/ops/pagefuse/linear/gate.h"
#include "pagefuse/ops/pagefuse/linear/gated_linear.h"
#include "pagefuse/ops/schema/bf16_blocks.h"
#include "pagefuse/ops/schema/code_lanes.h"
#include "pagefuse/ops/schema/token_rows.h"

namespace pagefuse::pagefuse_ops {
namespace {

using microsoft_ops::NBitsParameters;
using microsoft_ops::NBitsSizes;

// What every call computes from.
struct Call {
  Gate by = Activation::kSilu;
  int64_t k = 0, n = 0;
  RowsView x;
  OutputView y;

  static absl::StatusOr<Call> Of(const KernelArgs& args) {
    Call call;
    PF_ASSIGN_OR_RETURN(call.by, GateOf(*args.node));
    const TensorArg& x = args.input(kGatedIn["x"]);
    call.k = x.dims.back();
    call.n = args.output(0).dims.back();
    call.x = {x.as<float>(), call.k == 0 ? 0 : x.size() / call.k, call.k};
    call.y = {args.output(0).as<float>(), call.n};
    return call;
  }
};

struct CodesCall : Call {
  NBitsWeight gate, up;

  static absl::StatusOr<CodesCall> Of(const KernelArgs& args) {
    CodesCall call;
    PF_ASSIGN_OR_RETURN(static_cast<Call&>(call), Call::Of(args));
    PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, CodeSizesOf(*args.node, call.k, call.n));
    // The scales are float: the parameters refer to them.
    const auto weight = [&](int codes, int scales) -> absl::StatusOr<NBitsWeight> {
      PF_ASSIGN_OR_RETURN(const NBitsParameters parameters,
                          NBitsParameters::Of(args.input(scales), {}));
      return sizes.Weight(args.input(codes).as<uint8_t>(), parameters);
    };
    PF_ASSIGN_OR_RETURN(call.gate, weight(kGatedIn["w_gate"], kGatedIn["gate_scales"]));
    PF_ASSIGN_OR_RETURN(call.up, weight(kGatedIn["w_up"], kGatedIn["up_scales"]));
    return call;
  }
};

// Of the kernel that rounds x.
class CodesState : public PackedConstants {
 public:
  using PackedConstants::PackedConstants;
  bool rows_are_tokens = false;
};

}  // namespace

absl::Status RunGatedBf16(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, Call::Of(args));
  const PackedBf16 weight(Bf16BlocksOf(args, kGatedIn["w_gate"]),
                          Bf16BlocksOf(args, kGatedIn["w_up"]), call.k, call.n);
  void* scratch = args.scratch->Get(LinearBf16ScratchBytes(call.x.m, call.k));
  GatedLinearBf16(call.x, weight, call.by, scratch, call.y);
  return absl::OkStatus();
}

absl::Status RunGatedCodesReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const CodesCall call, CodesCall::Of(args));
  for (int64_t r = 0; r < call.x.m; ++r) {
    const float* x = call.x.data + r * call.x.stride;
    for (int64_t n = 0; n < call.n; ++n) {
      const double gate = microsoft_ops::NBitsReferenceDot(x, call.gate, n);
      const double up = microsoft_ops::NBitsReferenceDot(x, call.up, n);
      call.y.data[r * call.y.stride + n] = static_cast<float>(ApplyGate(call.by, gate, up));
    }
  }
  return absl::OkStatus();
}

absl::Status RunGatedCodes(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const CodesCall call, CodesCall::Of(args));
  void* scratch = args.scratch->Get(NBitsScratchBytes(call.x.m, call.gate));
  const size_t up_bytes = static_cast<size_t>(call.x.m * call.n) * sizeof(float);
  auto* up = static_cast<float*>(args.scratch->Get(up_bytes, 1));
  constexpr auto kPrecision = NBitsPrecision::kFloat32;
  PF_RETURN_IF_ERROR(LinearNBits(call.x, call.gate, kPrecision, scratch, call.y));
  PF_RETURN_IF_ERROR(LinearNBits(call.x, call.up, kPrecision, scratch, {up, call.n}));
  for (int64_t r = 0; r < call.x.m; ++r) {
    float* y = call.y.data + r * call.y.stride;
    GatedProduct(call.by, y, up + r * call.n, call.n, y);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KernelState>> PrepareGatedInt8(const PrepareArgs& args) {
  PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, kGatePorts.CodeSizes(*args.query.node));
  const PackedMatrices one{.rows = sizes.n};
  std::vector<PackedPort> ports = CodeLanePorts(kGatedIn["w_gate"], kGatedIn["gate_scales"], one);
  for (const PackedPort& port : CodeLanePorts(kGatedIn["w_up"], kGatedIn["up_scales"], one)) {
    ports.push_back(port);
  }
  auto state = std::make_unique<CodesState>(std::move(ports));
  state->rows_are_tokens = RowsAreTokens(args.query, kGatedIn["x"]);
  return state;
}

absl::Status RunGatedInt8(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Call call, Call::Of(args));
  PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, CodeSizesOf(*args.node, call.k, call.n));
  const NBitsLanes gate = sizes.Lanes(args, kGatedIn["w_gate"], kGatedIn["gate_scales"]);
  const NBitsLanes up = sizes.Lanes(args, kGatedIn["w_up"], kGatedIn["up_scales"]);
  const bool tokens = static_cast<const CodesState&>(*args.state).rows_are_tokens;
  ByTokenRows(args, tokens, call.x, call.y, [&](const RowsView& x, const OutputView& y, bool read) {
    if (read) {
      void* scratch = args.scratch->Get(LinearBf16ScratchBytes(x.m, call.k));
      GatedLinearCodesBf16(x, gate, up, call.by, scratch, y);
    } else {
      void* scratch = args.scratch->Get(NBitsInt8ScratchBytes(x.m, gate));
      GatedLinearNBitsInt8(x, {gate, up, call.by}, scratch, y);
    }
  });
  return absl::OkStatus();
}

}  // namespace pagefuse::pagefuse_ops
