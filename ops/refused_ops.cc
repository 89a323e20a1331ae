#include "pagefuse/ops/refused_ops.h"

#include <algorithm>
#include <span>

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

}  // namespace pagefuse
