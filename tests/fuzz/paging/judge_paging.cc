// SPDX-License-Identifier: Apache-2.0
#include "judge_paging.h"

#include <algorithm>
#include <array>
#include <utility>

#include "../random.h"
#include "absl/strings/str_join.h"
#include "as_exported.h"
#include "rounding.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/engine.h"

namespace pagefuse::fuzz {
namespace {

Verdict Of(Judgement judgement, const std::string& kind, const std::string& reason) {
  return {judgement, kind, reason};
}

Verdict Invalid(const absl::Status& status) {
  const std::string why = status.ToString();
  return Of(Judgement::kInvalid, ReasonKind(why), why);
}

// An error is an answer, with a reason, unless it says that the fault is ours.
Verdict Refused(const std::string& when, const absl::Status& status) {
  const std::string why = StrCat(when, StdView(status.message()));
  const bool ours = absl::IsInternal(status);
  return Of(ours ? Judgement::kFinding : Judgement::kRefused,
            StrCat(ours ? "internal error: " : "", ReasonKind(why)), why);
}

absl::StatusOr<std::unique_ptr<Engine>> Paged(const DecoderCase& decoder, const PagingRun& run) {
  EngineOptions options;
  options.session = FuzzSession(/*optimise=*/true);
  options.session.pipeline.page = true;
  if (run.absorb_latent) options.session.pipeline.options["absorb_mla"] = "on";
  options.block_size = run.block_size;
  options.max_tokens_per_step = run.tokens_per_step;
  return Engine::Create(decoder.model.Clone(), options);
}

std::string Tokens(const std::vector<std::vector<float>>& rows) {
  return absl::StrJoin(rows, ",", [](std::string* text, const std::vector<float>& row) {
    StrAppend(text, std::max_element(row.begin(), row.end()) - row.begin());
  });
}

// One prompt's rows against the export's. Nothing, or the difference.
std::string Difference(const Generation& expected, const Completion& found, float allowed) {
  for (size_t row = 0; row < expected.logits.size(); ++row) {
    if (row >= found.logits.size()) {
      // A row that no token can be taken of is an error, in both ways of running.
      if (!HasLikeliest(expected.logits[row])) return "";
      // It ended at a token that the paged graph does not run.
      if (absl::IsFailedPrecondition(found.error)) return "";
      return StrCat("new token ", row, ": ", StdView(found.error.message()));
    }
    const std::string difference = CompareLogits(expected.logits[row], found.logits[row], allowed);
    if (!difference.empty()) return StrCat("new token ", row, ": ", difference);
  }
  return "";
}

class Comparison {
 public:
  Comparison(const DecoderCase& decoder, Engine& engine, const std::vector<Generation>& generations,
             float allowed)
      : decoder_(decoder), engine_(engine), generations_(generations), allowed_(allowed) {}

  Verdict Run() {
    std::vector<size_t> all;
    for (size_t i = 0; i < generations_.size(); ++i) all.push_back(i);
    Verdict verdict = Ask("together", all);
    for (size_t i = 0; i < all.size() && verdict.judgement == Judgement::kPaged; ++i) {
      verdict = Ask("alone", {i});
    }
    return verdict;
  }

 private:
  Verdict Ask(const std::string& how, const std::vector<size_t>& which) {
    std::vector<Request> requests;
    for (const size_t i : which) requests.push_back(generations_[i].request);
    const auto completions = engine_.Generate(requests);
    if (!completions.ok()) return Refused("at run time: ", completions.status());
    absl::Status refusal;
    for (size_t i = 0; i < which.size(); ++i) {
      const Generation& expected = generations_[which[i]];
      const Completion& found = (*completions)[i];
      if (found.finish == FinishReason::kRefused) {
        refusal = found.error;
        continue;  // the others are as without it
      }
      if (Difference(expected, found, allowed_).empty()) continue;
      const std::string difference =
          Difference(expected, found, std::max(allowed_, RoundingOf(decoder_, expected)));
      if (difference.empty()) continue;
      const std::string tokens = Tokens(found.logits), wanted = Tokens(expected.logits);
      return Of(Judgement::kFinding, tokens == wanted ? "other logits" : "other tokens",
                StrCat(how, ", prompt [", absl::StrJoin(expected.request.prompt, ","), "], ",
                       difference, "; tokens [", tokens, "], as exported [", wanted, "]"));
    }
    if (!refusal.ok()) return Refused("at run time: ", refusal);
    return Of(Judgement::kPaged, "", "");
  }

  const DecoderCase& decoder_;
  Engine& engine_;
  const std::vector<Generation>& generations_;
  const float allowed_;  // whatever moves the export
};

}  // namespace

std::string PagingRun::ToString() const {
  return StrCat("blocks of ", block_size, ", steps of ", tokens_per_step,
                absorb_latent ? ", latent rows absorbed" : "");
}

PagingRun RandomRun(uint64_t seed, int64_t vocabulary) {
  static constexpr std::array<int64_t, 3> kBlocks = {4, 1, 16};
  static constexpr std::array<int64_t, 4> kSteps = {7, 5, 64, 4};
  static constexpr std::array<int64_t, 8> kLong = {0, 0, 0, 0, 0, 0, 70, 140};
  Random random(seed);
  PagingRun run;
  run.block_size = kBlocks[random.Below(kBlocks.size())];
  run.tokens_per_step = kSteps[random.Below(kSteps.size())];
  run.absorb_latent = random.OneIn(4);
  const auto add = [&](std::vector<int64_t> tokens, int64_t length) {
    while (static_cast<int64_t>(tokens.size()) < length) {
      tokens.push_back(static_cast<int64_t>(random.Below(static_cast<size_t>(vocabulary))));
    }
    run.prompts.push_back(std::move(tokens));
  };
  add({}, 5);
  add({}, 1);
  add({}, 11);
  add({run.prompts[2].begin(), run.prompts[2].begin() + 6}, 21);
  const int64_t longest = kLong[random.Below(kLong.size())];
  if (longest > 0) add({}, longest);
  return run;
}

Verdict JudgePaging(const DecoderCase& decoder, const PagingRun& run) {
  auto exported = AsExported::Create(decoder);
  if (!exported.ok()) return Invalid(exported.status());
  std::vector<Generation> generations;
  absl::Status refusal = absl::InvalidArgumentError("there is no prompt");
  size_t asked = 0;
  const auto ask = [&](size_t count) {
    for (; asked < std::min(count, run.prompts.size()); ++asked) {
      auto made = exported->Generate(run.prompts[asked], run.new_tokens);
      if (made.ok()) generations.push_back(*std::move(made));
      if (!made.ok()) refusal = made.status();
    }
  };
  ask(2);  // of changed graphs many do not run at all, and most others are refused
  const auto engine = Paged(decoder, run);
  if (engine.ok() || generations.empty()) ask(run.prompts.size());
  if (generations.empty()) return Invalid(refusal);
  if (!engine.ok()) return Refused("", engine.status());
  return Comparison(decoder, **engine, generations, RoundingOfTypes(exported->model())).Run();
}

}  // namespace pagefuse::fuzz
