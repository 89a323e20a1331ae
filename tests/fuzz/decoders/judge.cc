// SPDX-License-Identifier: Apache-2.0
#include "judge.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>

#include "compare_outputs.h"
#include "decoder_feeds.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::fuzz {
namespace {

constexpr RunLimits kLimits = {.max_tensor_bytes = 1 << 22, .max_body_runs = 1000};

std::string Message(const absl::Status& status) { return status.ToString(); }

SessionOptions Options(bool optimise) {
  SessionOptions options;
  options.num_threads = 1;
  options.limits = kLimits;
  options.optimise = optimise;
  options.load_passes = optimise;
  options.pipeline.page = false;
  return options;
}

Verdict Invalid(const std::string& why) { return {Judgement::kInvalid, ReasonKind(why), why}; }

Verdict Found(const std::string& kind, const std::string& where) {
  return {Judgement::kFinding, kind, StrCat(kind, ": ", where)};
}

Verdict Failed(const std::string& what, const absl::Status& status) {
  return {Judgement::kFinding, StrCat(what, ": ", ReasonKind(Message(status))),
          StrCat(what, ": ", Message(status))};
}

const Verdict& Same() {
  static const Verdict& same = *new Verdict{Judgement::kPaged, "", ""};
  return same;
}

bool HasNan(const std::vector<Tensor>& outputs) {
  return std::any_of(outputs.begin(), outputs.end(), [](const Tensor& output) {
    if (output.dtype() != DataType::kFloat) return false;
    const auto values = output.values<float>();
    return std::any_of(values.begin(), values.end(), [](float x) { return std::isnan(x); });
  });
}

// Where tokens are mixed, a NaN inside decides where other numbers stand (which one is the largest,
// say), and the passes promise nothing of a NaN.
bool MakesNan(const DecoderCase& decoder, const Feeds& feeds) {
  Model model = decoder.model.Clone();
  for (const auto& node : model.graph->nodes()) {
    for (Value* output : node->outputs()) {
      if (output && !output->is_output()) model.graph->AddOutput(output);
    }
  }
  const auto session = Session::Create(std::move(model), Options(/*optimise=*/false));
  if (!session.ok()) return false;
  const auto outputs = (*session)->Run(feeds);
  return outputs.ok() && HasNan(*outputs);
}

// An output that is not as long as the model declares; empty if there is none.
std::string Contradiction(const Model& model, const std::vector<Tensor>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Value& output = *model.graph->outputs()[i];
    for (int axis = 0; output.shape() && axis < output.shape()->rank(); ++axis) {
      const auto declared = (*output.shape())[axis].constant();
      if (!declared || *declared == outputs[i].dims()[axis]) continue;
      return StrCat("output \"", output.name(), "\" is declared ", output.shape()->ToString(),
                    " and is ", DimsToString(outputs[i].dims()));
    }
  }
  return "";
}

// All outputs of both on the same inputs. A refusal of the exported graph is none of ours.
Verdict CompareFused(const DecoderCase& decoder, Session& exported) {
  auto fused = Session::Create(decoder.model.Clone(), Options(/*optimise=*/true));
  static constexpr StepKind kKinds[] = {{},
                                        {.padded = true},
                                        {.one_token = true},
                                        {.loose = true},
                                        {.padded = true, .one_token = true},
                                        {.loose = true},
                                        {.loose = true}};
  Random random(1);
  int ran = 0;
  std::string refusal;
  for (const StepKind& kind : kKinds) {
    const auto step = MakeStep(decoder, kind, random);
    if (!step.ok()) return Invalid(Message(step.status()));
    const auto expected = exported.Run(step->feeds);
    if (!expected.ok()) {
      refusal = Message(expected.status());
      continue;
    }
    ++ran;
    const std::string contradiction = Contradiction(exported.model(), *expected);
    if (!contradiction.empty()) return Invalid(contradiction);
    if (!fused.ok()) return Failed("fused: not made", fused.status());
    const auto found = (*fused)->Run(step->feeds);
    const std::string loose = step->repeated.empty()
                                  ? ""
                                  : StrCat(" where axes of 1 are repeated (", step->repeated, ")");
    if (!found.ok()) return Failed(StrCat("fused: refused at run time", loose), found.status());
    const absl::Status same = CompareOutputs(*step, exported.model(), *expected, *found);
    if (same.ok() || (!decoder.pageable && MakesNan(decoder, step->feeds))) continue;
    return Found(StrCat("fused: other numbers", loose), Message(same));
  }
  return ran == 0 ? Invalid(StrCat("runs on no input: ", refusal)) : Same();
}

// The logits of the last token after a full forward pass; empty if there are none.
absl::StatusOr<std::vector<float>> LastLogits(const DecoderCase& decoder, Session& exported,
                                              const std::vector<int64_t>& tokens) {
  PF_ASSIGN_OR_RETURN(const Feeds feeds, FullForward(decoder, tokens));
  PF_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, exported.Run(feeds, {decoder.logits}));
  const auto values = outputs[0].values<float>();
  const size_t columns = std::min<size_t>(values.size(), kVocabularySize);
  return std::vector<float>(values.end() - static_cast<std::ptrdiff_t>(columns), values.end());
}

struct Generation {
  Request request;
  std::vector<std::vector<float>> logits;  // of the export, a row a new token
};

// Greedy tokens by full forward passes. With a declared length there is one pass.
absl::StatusOr<Generation> Generate(const DecoderCase& decoder, Session& exported,
                                    std::vector<int64_t> tokens, int64_t new_tokens) {
  Generation generation;
  generation.request = {.prompt = tokens, .max_new_tokens = new_tokens, .keep_logits = true};
  for (int64_t i = 0; i < new_tokens; ++i) {
    PF_ASSIGN_OR_RETURN(std::vector<float> row, LastLogits(decoder, exported, tokens));
    if (row.empty()) return absl::FailedPreconditionError("no row of logits");
    const auto best = std::max_element(row.begin(), row.end()) - row.begin();
    tokens.push_back(best);
    generation.request.forced.push_back(best);
    generation.logits.push_back(std::move(row));
  }
  return generation;
}

std::vector<Generation> GenerateAll(const DecoderCase& decoder, Session& exported) {
  constexpr int64_t kNewTokens = 3;
  std::vector<int64_t> lengths = {5, 1, 11, 3};
  const int64_t declared = DeclaredSizes(decoder, {.batch = 1, .length = -1, .past = 0}).length;
  if (declared > 0) lengths = {declared, declared};
  std::vector<Generation> generations;
  Random random(2);
  for (const int64_t length : lengths) {
    std::vector<int64_t> prompt;
    for (int64_t i = 0; i < length; ++i) {
      prompt.push_back(static_cast<int64_t>(random.Below(kVocabularySize)));
    }
    auto generation = Generate(decoder, exported, prompt, declared > 0 ? 1 : kNewTokens);
    if (generation.ok()) generations.push_back(*std::move(generation));
  }
  return generations;
}

// kPaged if the engine gives the logits of the export.
Verdict Compare(Engine& engine, const std::vector<Generation>& generations,
                const std::string& how) {
  std::vector<Request> requests;
  for (const Generation& generation : generations) requests.push_back(generation.request);
  const auto completions = engine.Generate(requests);
  if (!completions.ok()) return Failed("paged: refused at run time", completions.status());
  for (size_t i = 0; i < generations.size(); ++i) {
    const Completion& found = (*completions)[i];
    if (found.finish == FinishReason::kRefused) {
      return Failed("paged: refused at run time", found.error);
    }
    for (size_t row = 0; row < generations[i].logits.size(); ++row) {
      // It ended at a token that the paged graph does not run.
      if (row >= found.logits.size() && absl::IsFailedPrecondition(found.error)) break;
      const std::string difference = CompareRows(generations[i].logits[row], found.logits[row]);
      if (difference.empty()) continue;
      return Found("paged: other logits", StrCat(how, ", prompt of ", requests[i].prompt.size(),
                                                 " tokens, new token ", row, ": ", difference));
    }
  }
  return Same();
}

Verdict ComparePaged(const DecoderCase& decoder, Session& exported) {
  EngineOptions options;
  options.session = Options(/*optimise=*/true);
  options.session.pipeline.page = true;
  options.block_size = 4;
  options.max_tokens_per_step = 7;  // longer prompts come in chunks
  const auto engine = Engine::Create(decoder.model.Clone(), options);
  if (!engine.ok()) {
    if (!absl::IsFailedPrecondition(engine.status())) {
      return Failed("paged: not made", engine.status());
    }
    const std::string reason(engine.status().message());
    return {Judgement::kRefused, ReasonKind(reason), reason};
  }
  const std::vector<Generation> generations = GenerateAll(decoder, exported);
  if (generations.empty()) return Invalid("no full forward pass runs");
  Verdict verdict = Compare(**engine, generations, "together");
  for (size_t i = 0; i < generations.size() && verdict.judgement == Judgement::kPaged; ++i) {
    verdict = Compare(**engine, {generations[i]}, "alone");
  }
  return verdict;
}

}  // namespace

const char* JudgementName(Judgement judgement) {
  static constexpr const char* kNames[] = {"invalid", "paged", "refused", "finding"};
  return kNames[static_cast<int>(judgement)];
}

Verdict JudgeDecoder(const DecoderCase& decoder) {
  auto exported = Session::Create(decoder.model.Clone(), Options(/*optimise=*/false));
  if (!exported.ok()) return Invalid(Message(exported.status()));
  const Verdict fused = CompareFused(decoder, **exported);
  if (fused.judgement == Judgement::kInvalid) return fused;
  const Verdict paged = ComparePaged(decoder, **exported);
  if (paged.judgement == Judgement::kFinding) return paged;  // wrong tokens before wrong numbers
  if (fused.judgement == Judgement::kFinding) return fused;
  if (!decoder.paged || paged.judgement != Judgement::kRefused) return paged;
  return Found("paged: refused although it can be", paged.reason);
}

std::string ReasonKind(const std::string& reason) {
  std::string kind;
  char until = '\0';  // the end of what is left out
  for (const char c : reason) {
    if (until != '\0') {
      if (c == until) until = '\0';
      continue;
    }
    if (c == '"' || c == '[') {
      until = c == '"' ? '"' : ']';
      kind += c == '"' ? "\"\"" : "[]";
    } else if (std::isdigit(static_cast<unsigned char>(c)) == 0) {
      kind += c;
    } else if (kind.empty() || kind.back() != 'N') {
      kind += 'N';
    }
  }
  return kind;
}

}  // namespace pagefuse::fuzz
