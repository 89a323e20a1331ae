// SPDX-License-Identifier: Apache-2.0
// Times our best kernel of every op that has a decomposition and of standard ops, and writes for
// each a model that does the same in ONNX Runtime, with the same inputs. op_peer.sh runs it.
//
//   op_peer_cases FOLDER [--seconds=0.5] [NAME...]
//
// Each case gets a folder with model.onnx, input_N.bin and manifest.json. NAMEs are beginnings of
// the cases to take; none: all.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "peaks.h"
#include "peer_cases.h"
#include "peer_model.h"
#include "standard_cases.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse {
namespace {

struct Options {
  std::string folder;
  double seconds = 0.5;  // of runs of each case, three runs at least
  std::vector<std::string> names;

  bool Takes(const std::string& name) const {
    return names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& start) {
             return name.starts_with(start);
           });
  }
};

double BestSeconds(OpCall& call, const std::string& kernel, double seconds) {
  call.Run(kernel);
  double best = 1e30;
  const double end = Now() + seconds;
  for (int runs = 0; runs < 3 || Now() < end; ++runs) {
    const double start = Now();
    call.Run(kernel);
    best = std::min(best, Now() - start);
  }
  return best;
}

// How many times faster we aim to be: than a decomposition, than a fused op, than the same op.
constexpr int kAimDecomposition = 10, kAimFused = 2, kAimSame = 1;

PeerCase Time(const OpPeerCase& entry, OpCall& call, int aim, const Options& options) {
  PeerCase timed = {entry.name, entry.size, call.BestKernel(), 0, aim};
  timed.seconds = BestSeconds(call, timed.kernel, options.seconds);
  return timed;
}

absl::Status CompareWithDecomposition(const OpPeerCase& entry, const Options& options) {
  const std::unique_ptr<OpCall> call = entry.make();
  // Before the run, which writes to aliased inputs.
  PF_ASSIGN_OR_RETURN(const PeerModel peer, DecompositionPeer(*call));
  const PeerCase timed = Time(entry, *call, kAimDecomposition, options);
  return SavePeer(peer, timed, options.folder + "/" + entry.name);
}

absl::Status CompareWithNode(const OpPeerCase& entry, const Options& options) {
  const std::unique_ptr<OpCall> call = entry.make();
  const PeerModel peer = NodePeer(*call);
  return SavePeer(peer, Time(entry, *call, kAimSame, options), options.folder + "/" + entry.name);
}

absl::Status CompareWithFused(OpPeerCase entry, bool quantised, const Options& options) {
  entry.name = "GroupQueryAttention_" + std::string(quantised ? "int8" : "f32");
  if (!options.Takes(entry.name)) return absl::OkStatus();
  const std::unique_ptr<OpCall> call = entry.make();
  const TensorArg& query = call->args().input(0);
  const TensorArg& cache = call->args().input(1);
  const PeerModel peer =
      GroupQueryAttentionPeer({query.dim(1), cache.dim(2), query.dim(2), kPeerContext}, quantised);
  return SavePeer(peer, Time(entry, *call, kAimFused, options), options.folder + "/" + entry.name);
}

absl::Status Run(const Options& options) {
  for (const OpPeerCase& entry : OpPeerCases()) {
    if (!options.Takes(entry.name)) continue;
    PF_RETURN_IF_ERROR(CompareWithDecomposition(entry, options));
  }
  for (const OpPeerCase& entry : StandardOpPeerCases()) {
    if (!options.Takes(entry.name)) continue;
    PF_RETURN_IF_ERROR(CompareWithNode(entry, options));
  }
  PF_RETURN_IF_ERROR(CompareWithFused(FloatDecodeCase(), /*quantised=*/false, options));
  return CompareWithFused(Int8DecodeCase(), /*quantised=*/true, options);
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  pagefuse::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    constexpr std::string_view kSeconds = "--seconds=";
    if (argument.starts_with(kSeconds)) {
      options.seconds = std::atof(argv[i] + kSeconds.size());
    } else if (argument.starts_with('-')) {  // also --help: what follows is the usage
      options.folder.clear();
      break;
    } else if (options.folder.empty()) {
      options.folder = argument;
    } else {
      options.names.emplace_back(argument);
    }
  }
  if (options.folder.empty()) {
    std::fprintf(stderr, "usage: op_peer_cases FOLDER [--seconds=0.5] [NAME...]\n");
    return 1;
  }
  const absl::Status status = pagefuse::Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "op_peer_cases: %s\n", std::string(status.message()).c_str());
  return 1;
}
