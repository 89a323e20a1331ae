// SPDX-License-Identifier: Apache-2.0
// Exact answers of the bundled gemma3_recall model per cache mode and format of weights: what they do to
// attention over long contexts, what it takes and how fast it decodes.
//
//   recall_bench [--prompts-30 100] [--prompts-60 50] [--modes NAME ..] [--skip-layers 0,1,-2,-1]
//                [--weights float32 bf16 int8 int4]
//
// Prompts are generated from a fixed seed: 30 or 60 facts, then a question about one of them. The
// unfused graph (past/present tensors, no pass at all) is the reference that mode none must equal
// on every prompt.
#include <algorithm>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/kernels/formats/cache_choice.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

constexpr int64_t kBos = 2;
constexpr int64_t kNewline = 10;
constexpr int64_t kMaxAnswer = 16;

struct Options {
  std::string dir = PAGEFUSE_SOURCE_DIR "/models/gemma3_recall";
  int prompts_30 = 100, prompts_60 = 50;
  std::vector<std::string> modes;  // empty: all
  std::string skip_layers;
  std::vector<std::string> weights = {"float32"};
};

std::string GraphOf(const Options& bench) { return bench.dir + "/model_with_past.onnx"; }

struct Question {
  std::vector<int64_t> prompt;
  std::string answer;
};

Question MakeQuestion(int facts, std::mt19937& random) {
  static const char* const kAdjectives[] = {
      "red",   "blue",  "green", "tin",  "oak",  "glass", "silver",  "round",
      "tall",  "small", "heavy", "old",  "iron", "paper", "clay",    "amber",
      "ivory", "black", "white", "flat", "deep", "plain", "striped", "gilded"};
  static const char* const kNouns[] = {"box",   "jar",  "crate",  "cup",  "drawer", "basket",
                                       "chest", "tray", "barrel", "vase", "bag",    "shelf",
                                       "tube",  "bowl", "case",   "bin"};
  static const char* const kUnits[] = {"coins",  "beads", "nails", "stamps",
                                       "shells", "keys",  "pins",  "seeds"};
  std::set<std::string> used;
  std::vector<std::pair<std::string, std::string>> pairs;  // thing, contents
  while (static_cast<int>(pairs.size()) < facts) {
    const std::string thing = std::string(kAdjectives[random() % 24]) + " " + kNouns[random() % 16];
    if (!used.insert(thing).second) continue;
    pairs.emplace_back(thing, std::to_string(2 + random() % 98) + " " + kUnits[random() % 8]);
  }
  std::string text;
  for (const auto& [thing, contents] : pairs) {
    text += (text.empty() ? "The " : " The ") + thing + " holds " + contents + ".";
  }
  const auto& [thing, contents] = pairs[random() % pairs.size()];
  text += "\nWhat does the " + thing + " hold? ";
  Question question{.prompt = {kBos}, .answer = contents + ".\n"};
  for (unsigned char byte : text) question.prompt.push_back(byte);
  return question;
}

std::string Text(const std::vector<int64_t>& tokens) {
  std::string text;
  for (int64_t token : tokens) text.push_back(static_cast<char>(token));
  return text;
}

// Greedy answers of the exported graph as it is, one prompt after the other.
absl::StatusOr<std::vector<std::string>> UnfusedAnswers(const std::string& path,
                                                        const std::vector<Question>& questions) {
  SessionOptions options;
  options.optimise = false;
  PF_ASSIGN_OR_RETURN(auto session, Session::Load(path, options));
  std::vector<std::string> answers;
  for (const Question& question : questions) {
    std::map<std::string, Tensor> feeds;
    for (const Value* input : session->model().graph->inputs()) {
      if (!input->shape() || input->shape()->rank() != 4) continue;
      const Shape& shape = *input->shape();
      PF_ASSIGN_OR_RETURN(
          feeds[input->name()],
          Tensor::Allocate(input->dtype(), {1, *shape[1].constant(), 0, *shape[3].constant()}));
    }
    std::vector<int64_t> tokens, fresh = question.prompt;
    int64_t total = 0;
    while (static_cast<int64_t>(tokens.size()) < kMaxAnswer) {
      const auto count = static_cast<int64_t>(fresh.size());
      std::vector<int64_t> positions(count);
      for (int64_t i = 0; i < count; ++i) positions[i] = total + i;
      total += count;
      feeds["input_ids"] = Tensor::Of<int64_t>({1, count}, fresh);
      feeds["position_ids"] = Tensor::Of<int64_t>({1, count}, positions);
      feeds["attention_mask"] = Tensor::Of<int64_t>({1, total}, std::vector<int64_t>(total, 1));
      PF_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, session->Run(feeds));
      const auto& names = session->model().graph->outputs();
      for (size_t o = 1; o < outputs.size(); ++o) {
        // present.N.key feeds past_key_values.N.key
        feeds["past_key_values" + names[o]->name().substr(std::string("present").size())] =
            outputs[o];
      }
      std::span<const float> last = outputs[0].values<float>().last(256);
      fresh = {std::max_element(last.begin(), last.end()) - last.begin()};
      tokens.push_back(fresh[0]);
      if (fresh[0] == kNewline) break;
    }
    answers.push_back(Text(tokens));
  }
  return answers;
}

absl::StatusOr<std::vector<std::string>> FusedAnswers(const Options& bench,
                                                      const std::string& kv_cache,
                                                      const std::string& weights,
                                                      const std::vector<Question>& questions,
                                                      EngineStats* stats) {
  EngineOptions options;
  options.kv_cache = kv_cache;
  if (!bench.skip_layers.empty()) {
    options.session.pipeline.options["kv_cache_skip_layers"] = bench.skip_layers;
  }
  PF_ASSIGN_OR_RETURN(const WeightFormat format, FindWeightFormat(weights));
  UseWeights(format, options.session);
  options.max_sequences = 16;
  options.prefix_reuse = PrefixReuse::kOff;  // every prompt is computed
  options.drafts = false;                    // and every token alone
  PF_ASSIGN_OR_RETURN(auto engine, Engine::Load(GraphOf(bench), options));
  std::vector<Request> requests;
  for (const Question& question : questions) {
    Request request{.prompt = question.prompt, .max_new_tokens = kMaxAnswer};
    request.stop_tokens = {kNewline};
    requests.push_back(std::move(request));
  }
  PF_ASSIGN_OR_RETURN(std::vector<Completion> completions, engine->Generate(requests));
  PF_RETURN_IF_ERROR(FirstError(completions));
  *stats = engine->stats();
  std::vector<std::string> answers;
  for (const Completion& completion : completions) answers.push_back(Text(completion.tokens));
  return answers;
}

int CountRight(const std::vector<std::string>& answers, const std::vector<Question>& questions) {
  int right = 0;
  for (size_t i = 0; i < answers.size(); ++i) right += answers[i] == questions[i].answer;
  return right;
}

int CountEqual(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  int equal = 0;
  for (size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
  return equal;
}

using QuestionSets = std::vector<std::pair<int, std::vector<Question>>>;  // by number of facts

QuestionSets MakeQuestions(const Options& bench) {
  std::mt19937 random(20260);
  QuestionSets sets;
  for (const auto& [facts, count] :
       {std::pair{30, bench.prompts_30}, std::pair{60, bench.prompts_60}}) {
    std::vector<Question> questions;
    for (int i = 0; i < count; ++i) questions.push_back(MakeQuestion(facts, random));
    sets.emplace_back(facts, std::move(questions));
  }
  return sets;
}

std::vector<std::string> Modes(const Options& bench) {
  if (!bench.modes.empty()) return bench.modes;
  std::vector<std::string> modes;
  for (const CacheChoice& choice : CacheChoices()) {
    if (!choice.grouped()) modes.emplace_back(choice.name);
  }
  return modes;
}

absl::Status Run(const Options& bench) {
  std::printf(
      "| facts | weights | cache | bytes a token | exact answers | as the unfused graph | decoded a "
      "second |\n|---|---|---|---|---|---|---|\n");
  for (const auto& [facts, questions] : MakeQuestions(bench)) {
    if (questions.empty()) continue;
    PF_ASSIGN_OR_RETURN(std::vector<std::string> unfused,
                        UnfusedAnswers(GraphOf(bench), questions));
    const auto count = static_cast<int>(questions.size());
    std::printf("| %d | float32 | unfused graph | - | %d of %d | - | - |\n", facts,
                CountRight(unfused, questions), count);
    for (const std::string& weights : bench.weights) {
      for (const std::string& mode : Modes(bench)) {
        EngineStats stats;
        PF_ASSIGN_OR_RETURN(std::vector<std::string> answers,
                            FusedAnswers(bench, mode, weights, questions, &stats));
        const double rate = static_cast<double>(stats.decode_tokens) / stats.decode_seconds;
        std::printf(
            "| %d | %s | %s | %lld | %d of %d | %d of %d | %.0f |\n", facts, weights.c_str(),
            mode.c_str(), static_cast<long long>(stats.cache_bytes_per_token),
            CountRight(answers, questions), count, CountEqual(answers, unfused), count, rate);
        std::fflush(stdout);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  CLI::App app("exact answers of gemma3_recall per format of weights and cache");
  pagefuse::Options options;
  app.add_option("--model-dir", options.dir)->capture_default_str();
  app.add_option("--prompts-30", options.prompts_30, "prompts with 30 facts")
      ->capture_default_str();
  app.add_option("--prompts-60", options.prompts_60, "prompts with 60 facts")
      ->capture_default_str();
  app.add_option("--modes", options.modes, "formats as --kv-cache takes them; all if left out");
  app.add_option("--skip-layers", options.skip_layers, "as --kv-cache-skip-layers");
  app.add_option("--weights", options.weights, pagefuse::WeightFormatNames());
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = pagefuse::Run(options);
  if (!status.ok())
    std::fprintf(stderr, "recall_bench: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
