#include "tools/ort_steps.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/strip.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/compare_models.h"
#include "pagefuse/passes/page/cache_settings.h"
#include "pagefuse/runtime/paged_model.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::tools {
namespace {

// Prompts of two sequences: one longer than a block, none of a length that blocks have.
constexpr int64_t kPrompts[] = {21, 6};
constexpr int kDecodeSteps = 2;

absl::StatusOr<std::map<std::string, Tensor>> Copies(const std::map<std::string, Tensor>& tensors) {
  std::map<std::string, Tensor> copies;
  for (const auto& [name, tensor] : tensors) {
    PF_ASSIGN_OR_RETURN(copies[name], tensor.Clone());
  }
  return copies;
}

std::vector<std::string> OutputNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const Value* output : graph.outputs()) names.push_back(output->name());
  return names;
}

// kv_cache_out.3.key is kv_cache.3.key, written to.
std::map<std::string, std::string> WrittenCaches(const Graph& graph) {
  std::map<std::string, std::string> written;
  for (const Value* output : graph.outputs()) {
    absl::string_view part = output->name();
    if (!absl::ConsumePrefix(&part, "kv_cache_out.")) continue;
    written[output->name()] = absl::StrCat("kv_cache.", part);
  }
  return written;
}

// Any tokens, the same in every run.
std::vector<int64_t> Tokens(int64_t count, int64_t vocabulary) {
  std::vector<int64_t> tokens(count);
  for (int64_t i = 0; i < count; ++i) tokens[i] = (i * 7 + 3) % vocabulary;
  return tokens;
}

absl::StatusOr<OrtStep> RunStep(PagedModel& model, const std::vector<int64_t>& tokens,
                                const StepMetadata& step) {
  OrtStep made;
  const Graph& graph = *model.session().model().graph;
  made.output_names = OutputNames(graph);
  made.in_place = WrittenCaches(graph);
  PF_ASSIGN_OR_RETURN(made.feeds, Copies(model.cache_tensors()));
  std::map<std::string, Tensor> feeds = model.cache_tensors();
  model.layout().AddStepFeeds(tokens, step, feeds);
  model.layout().AddStepFeeds(tokens, step, made.feeds);
  PF_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, model.session().Run(feeds));
  for (const Tensor& output : outputs) {
    PF_ASSIGN_OR_RETURN(Tensor copy, output.Clone());
    made.expected.push_back(std::move(copy));
  }
  return made;
}

absl::StatusOr<std::vector<OrtStep>> PagedSteps(Model model, int64_t cache_bytes) {
  PF_ASSIGN_OR_RETURN(auto paged, PagedModel::Create(std::move(model), {}));
  std::vector<int64_t> lengths;
  std::vector<StepEntry> entries;
  int64_t tokens = 0;
  for (const int64_t prompt : kPrompts) {
    lengths.push_back(prompt + kDecodeSteps);
    tokens += prompt;
  }
  const int64_t token_bytes = std::max<int64_t>(paged->layout().bytes_per_token(), 1);
  PF_RETURN_IF_ERROR(paged->Reserve(lengths, tokens, cache_bytes / token_bytes));
  for (const int64_t prompt : kPrompts) entries.push_back({paged->cache().AddSequence(), prompt});
  std::vector<OrtStep> steps;
  for (int i = 0; i <= kDecodeSteps; ++i) {
    PF_ASSIGN_OR_RETURN(const StepMetadata step, paged->cache().Append(entries));
    PF_ASSIGN_OR_RETURN(OrtStep made, RunStep(*paged, Tokens(tokens, paged->vocabulary()), step));
    steps.push_back(std::move(made));
    tokens = 0;
    for (StepEntry& entry : entries) tokens += entry.num_tokens = 1;
  }
  return steps;
}

absl::StatusOr<std::vector<OrtStep>> RandomStep(Model model) {
  OrtStep made;
  PF_ASSIGN_OR_RETURN(made.feeds, RandomFeeds(model, 0));
  made.output_names = OutputNames(*model.graph);
  SessionOptions options;
  options.optimise = false;
  PF_ASSIGN_OR_RETURN(auto session, Session::Create(std::move(model), options));
  auto feeds = Copies(made.feeds);
  PF_RETURN_IF_ERROR(feeds.status());
  PF_ASSIGN_OR_RETURN(made.expected, session->Run(*feeds));
  return std::vector<OrtStep>{std::move(made)};
}

}  // namespace

absl::StatusOr<std::vector<OrtStep>> MakeSteps(Model model, int64_t cache_bytes) {
  return CacheSettingsOf(model) ? PagedSteps(std::move(model), cache_bytes)
                                : RandomStep(std::move(model));
}

absl::StatusOr<StepMemory> MemoryOf(const OrtStep& step, bool bind) {
  StepMemory memory{.feeds = step.feeds};
  for (const auto& [output, input] : step.in_place) {
    PF_ASSIGN_OR_RETURN(memory.feeds[input], step.feeds.at(input).Clone());
    if (bind) memory.bound[output] = memory.feeds[input];
  }
  return memory;
}

}  // namespace pagefuse::tools
