// SPDX-License-Identifier: Apache-2.0
// SampleTokens: a token for each row of logits. What is drawn depends on no order of sums, and is the same on every
// machine and device (token_weights.h).
#include "pagefuse/ops/pagefuse/sampling/sample_tokens.h"

#include <span>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/rows/sample_settings.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/pagefuse/sampling/draw.h"
#include "pagefuse/ops/pagefuse/sampling/token_weights.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

absl::Status Validate(const KernelArgs& args) {
  const TensorArg& starts = args.input(kSampleIn["edit_starts"]);
  const int64_t edits = args.input(kSampleIn["edit_tokens"]).dim(0);
  const auto* first = starts.as<const int32_t>();
  int64_t before = 0;
  for (int64_t r = 0; r < starts.size(); ++r) {
    const int64_t least = r == 0 ? 0 : before, most = r == 0 ? 0 : edits;
    if (first[r] < least || first[r] > most) {
      return InputValueError(
          args, kSampleIn["edit_starts"],
          StrCat("expected ", least, " to ", most, " at ", r, ", got ", first[r]));
    }
    before = first[r];
  }
  if (before == edits) return absl::OkStatus();
  return InputValueError(args, kSampleIn["edit_starts"],
                         StrCat("expected ", edits, " last, the number of edits, got ", before));
}

// The row with its edits, where it has some; tokens beyond it are none of its.
std::vector<float> Edited(const KernelArgs& args, int64_t row, std::span<const float> logits,
                          const double* settings) {
  const auto* starts = args.input(kSampleIn["edit_starts"]).as<const int32_t>();
  const auto* tokens = args.input(kSampleIn["edit_tokens"]).as<const int32_t>();
  const auto* bias = args.input(kSampleIn["edit_bias"]).as<const double>();
  const auto* counts = args.input(kSampleIn["edit_counts"]).as<const int32_t>();
  std::vector<float> edited(logits.begin(), logits.end());
  const LogitPenalties penalties = {settings[kRepetition], settings[kFrequency],
                                    settings[kPresence]};
  for (int32_t e = starts[row]; e < starts[row + 1]; ++e) {
    if (tokens[e] < 0 || static_cast<size_t>(tokens[e]) >= edited.size()) continue;
    edited[tokens[e]] = EditedLogit(logits[tokens[e]], {bias[e], counts[e]}, penalties);
  }
  return edited;
}

int64_t TokenOf(const KernelArgs& args, int64_t row) {
  constexpr int64_t kNone = -1;
  const TensorArg& logits = args.input(kSampleIn["logits"]);
  const auto columns = static_cast<size_t>(logits.dim(1));
  const std::span<const float> raw(logits.as<const float>() + row * logits.dim(1), columns);
  const double* settings =
      args.input(kSampleIn["settings"]).as<const double>() + row * kSampleSettings;
  const DrawSettings draw = {.temperature = settings[kTemperature],
                             .top_k = static_cast<int64_t>(settings[kTopK]),
                             .min_p = settings[kMinP],
                             .top_p = settings[kTopP]};
  if (!LogitRow::Of(raw).ok() || (draw.temperature != 0 && columns > kMostWeights)) return kNone;
  const std::vector<float> edited = Edited(args, row, raw, settings);
  const absl::StatusOr<LogitRow> logit_row = LogitRow::Of(edited);
  if (!logit_row.ok()) return kNone;
  const auto random = args.input(kSampleIn["random"]).as<const int64_t>()[row];
  return DrawToken(*logit_row, draw, static_cast<uint64_t>(random)).value_or(kNone);
}

absl::Status Run(KernelArgs& args) {
  for (int64_t row = 0; row < args.output(0).size(); ++row) {
    args.output(0).as<int64_t>()[row] = TokenOf(args, row);
  }
  return absl::OkStatus();
}

}  // namespace

OpDef SampleTokensDef() {
  return OpDef("pagefuse", "SampleTokens", 1)
      .Doc(
          "Chooses a token for each row of logits. First logits of edit_tokens[edit_starts[r], edit_starts[r + 1]) "
          "change: edit_bias is added (-infinity: the token cannot come), and where edit_counts, how often it is in "
          "the output, is not negative, which says that the token was seen, the repetition penalty divides what is "
          "positive and multiplies what is not, the frequency penalty times the count is taken away, and the presence "
          "penalty where the count is not 0. With temperature 0 the largest logit is chosen, of several the first. "
          "Else the top_k largest, with those equal to the last (0: all), of these those with min_p of the largest "
          "probability, of these the fewest whose probabilities reach top_p stay, and one is drawn by `random` divided "
          "by 2^64, whose bits it has. `settings` has temperature, top_k, min_p, top_p, and the penalties of "
          "repetition, frequency and presence. -1 for a row that has NaN or infinity, or where no token can come.")
      .Inputs(kSampleIn)
      .Outputs(kSampleOut)
      .Validate(Validate)
      .AddKernel({.name = "reference", .run = Run});
}

}  // namespace pagefuse::pagefuse_ops
