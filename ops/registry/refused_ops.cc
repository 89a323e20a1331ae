// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/registry/refused_ops.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {
namespace {

struct Kind {
  std::string_view reason;
  std::span<const std::string_view> ops;
};

constexpr std::string_view kImages[] = {"AffineGrid",   "Col2Im", "GridSample",
                                        "ImageDecoder", "Resize", "Upsample"};
constexpr std::string_view kDetection[] = {"MaxRoiPool", "NonMaxSuppression", "RoiAlign"};
constexpr std::string_view kConvolutions[] = {"ConvTranspose", "DeformConv", "MaxUnpool"};
constexpr std::string_view kLosses[] = {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"};
constexpr std::string_view kRecurrent[] = {"GRU", "LSTM", "RNN"};
constexpr std::string_view kSignals[] = {"BlackmanWindow",  "DFT", "HammingWindow", "HannWindow",
                                         "MelWeightMatrix", "STFT"};
constexpr std::string_view kStrings[] = {"RegexFullMatch", "StringConcat", "StringNormalizer",
                                         "StringSplit", "TfIdfVectorizer"};
constexpr std::string_view kSequences[] = {
    "ConcatFromSequence", "Optional",          "OptionalGetElement", "OptionalHasElement",
    "SequenceAt",         "SequenceConstruct", "SequenceEmpty",      "SequenceErase",
    "SequenceInsert",     "SequenceLength",    "SequenceMap",        "SplitToSequence"};
constexpr std::string_view kRandom[] = {"Bernoulli",        "Multinomial",   "RandomNormal",
                                        "RandomNormalLike", "RandomUniform", "RandomUniformLike"};
constexpr std::string_view kLinearAlgebra[] = {"Det"};

constexpr Kind kKinds[] = {
    {"image geometry", kImages},
    {"object detection", kDetection},
    {"transposed and deformed convolutions", kConvolutions},
    {"losses", kLosses},
    {"recurrent nets", kRecurrent},
    {"signal processing", kSignals},
    {"strings", kStrings},
    {"sequences and optionals", kSequences},
    {"random numbers", kRandom},
    {"decompositions of matrices", kLinearAlgebra},
};

// Ops of ours that files had before graphs held weights row by row.
struct FormerOp {
  std::string_view op;
  int weight;  // the port
  std::string_view now;
};
constexpr FormerOp kFormerOps[] = {
    {"MatMulBf16", 1, "pagefuse.Linear"},
    {"GatedLinearBf16", 1, "pagefuse.GatedLinear"},
    {"GroupedMatMulBf16", 2, "pagefuse.GroupedMatMul"},
    {"GatherBf16", 0, "Gather"},
};
// The same of ops whose codes lie as they did, on other ports.
constexpr FormerOp kFormerCodes[] = {
    {"GatedLinearNBits", 1, "pagefuse.GatedLinear"},
    {"GroupedMatMulNBits", 2, "pagefuse.GroupedMatMul"},
};

// Why a file with such an op has to be written again; empty for others.
std::string WhyFormer(const Node& node) {
  if (node.domain() != "pagefuse") return "";
  const auto text = [&](const FormerOp& op, std::string_view what) {
    const bool given = op.weight < node.num_inputs() && node.input(op.weight) != nullptr;
    return StrCat("; input ", op.weight,
                  given ? StrCat(" \"", node.input(op.weight)->name(), "\"") : "", what, op.now,
                  ": write the file again from its export");
  };
  for (const FormerOp& op : kFormerOps) {
    if (node.op_type() != op.op) continue;
    return text(op, " lies in the tiles of a matrix unit, where graphs hold rows now, for ");
  }
  for (const FormerOp& op : kFormerCodes) {
    if (node.op_type() == op.op) return text(op, " is a port of another op now, ");
  }
  return "";
}

// A domain of which plug-ins may have ops.
bool IsForeign(std::string_view domain) {
  return !domain.empty() && domain != "pagefuse" && !domain.starts_with("ai.onnx");
}

std::string PluginsText(const OpRegistry& registry) {
  if (registry.sources().empty()) return "; no plug-in is loaded";
  return absl::StrCat("; plug-ins that are loaded: ", absl::StrJoin(registry.sources(), ", "));
}

}  // namespace

std::string_view WhyRefused(std::string_view domain, std::string_view op) {
  if (domain == "ai.onnx.ml") return "classical machine learning";
  if (domain == "ai.onnx.training" || domain == "ai.onnx.preview.training") return "training";
  if (!domain.empty() && domain != "ai.onnx") return "";
  for (const Kind& kind : kKinds) {
    if (std::find(kind.ops.begin(), kind.ops.end(), op) != kind.ops.end()) return kind.reason;
  }
  return "";
}

absl::Status UnknownOp(const Node& node, int64_t opset, const OpRegistry& registry) {
  // Not a choice of both: that would be a string of its own, gone at the end of the line.
  std::string_view domain = node.domain();
  if (domain == "ai.onnx") domain = "";
  std::optional<int> oldest;
  for (const OpDef* op : registry.ops()) {
    if (op->domain() != domain || op->name() != node.op_type()) continue;
    oldest = std::min(oldest.value_or(op->since()), op->since());
  }
  const std::string reason(WhyRefused(node.domain(), node.op_type()));
  std::string rest = reason.empty() ? "" : absl::StrCat("; out of scope: ", reason);
  if (oldest) rest = absl::StrCat("; known from version ", *oldest, " on");
  if (!oldest && IsForeign(domain)) rest = PluginsText(registry);
  if (!oldest) StrAppend(&rest, WhyFormer(node));
  return absl::UnimplementedError(absl::StrCat(node.Description(), ": no op \"", node.op_type(),
                                               "\" in domain \"", node.domain(), "\" at version ",
                                               opset, rest));
}

}  // namespace pagefuse
