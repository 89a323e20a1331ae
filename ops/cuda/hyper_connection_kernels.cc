// SPDX-License-Identifier: Apache-2.0
// HyperConnectionMix on the device.
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/cuda/constant_inputs.h"
#include "pagefuse/ops/cuda/cuda_kernels.h"
#include "pagefuse/ops/cuda/port_numbers.h"
#include "pagefuse/ops/kernels/cuda/hyper_connection.h"

namespace pagefuse::cuda {
namespace {

struct MixPorts {
  int logits, scale, base, pre, post, comb;

  explicit MixPorts(const OpDef& op) {
    const auto in = [&](std::string_view name) { return PortNumber(op.inputs(), name); };
    const auto out = [&](std::string_view name) { return PortNumber(op.outputs(), name); };
    logits = in("logits"), scale = in("scale"), base = in("base");
    pre = out("pre"), post = out("post"), comb = out("comb");
  }
};

absl::Status RunMix(KernelArgs& args, const MixPorts& ports) {
  HyperConnectionParams params;
  PF_ASSIGN_OR_RETURN(const int64_t streams, args.node->IntAttribute("streams", 1));
  PF_ASSIGN_OR_RETURN(const int64_t rounds, args.node->IntAttribute("rounds", 1));
  PF_ASSIGN_OR_RETURN(params.epsilon, args.node->FloatAttribute("epsilon", 1e-6f));
  PF_ASSIGN_OR_RETURN(params.post_factor, args.node->FloatAttribute("post_factor", 2.0f));
  params.streams = static_cast<int>(streams);
  params.rounds = static_cast<int>(rounds);
  params.tokens = args.output(ports.pre).size() / streams;
  params.logits = args.input(ports.logits).as<const float>();
  params.scale = args.input(ports.scale).as<const float>();
  params.base = args.input(ports.base).as<const float>();
  params.pre = args.output(ports.pre).as<float>();
  params.post = args.output(ports.post).as<float>();
  params.comb = args.output(ports.comb).as<float>();
  params.constant_weights = AreConstant(*args.node, {ports.scale, ports.base});
  return LaunchStatus(LaunchHyperConnection(params, StreamOf(args)));
}

}  // namespace

void AddHyperConnectionKernels(OpRegistry& ops) {
  const MixPorts ports(*ops.Find("pagefuse", "HyperConnectionMix", 1));
  AddKernelTo(ops, "pagefuse", "HyperConnectionMix",
              {.name = "cuda", .priority = 10, .run = [ports](KernelArgs& args) {
                 return RunMix(args, ports);
               }});
}

}  // namespace pagefuse::cuda
