// SPDX-License-Identifier: Apache-2.0
#include "tools/ort/ort_steps.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "tools/ort/builder_steps.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/cache/cache_groups.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/verify/compare_models.h"
#include "pagefuse/runtime/paged_model.h"
#include "pagefuse/runtime/plain_decoder.h"

namespace pagefuse::tools {
namespace {

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

// By output of the graph the input that it is, written to: caches.
std::map<std::string, std::string> WrittenCaches(const Model& model) {
  std::map<std::string, std::string> written;
  for (const Value* output : model.graph->outputs()) {
    const Node* writer = output->producer();
    if (writer == nullptr) continue;
    const OpDef* op = OpRegistry::Global().Find(writer->domain(), writer->op_type(),
                                                model.OpsetVersion(writer->domain()));
    if (op == nullptr) continue;
    for (const auto& [out, in] : op->aliases()) {
      const Value* cache = writer->input(in);
      if (writer->output(out) != output || cache == nullptr || !cache->is_input()) continue;
      written[output->name()] = cache->name();
    }
  }
  return written;
}

absl::StatusOr<OrtStep> RunStep(PagedModel& model, const std::vector<int64_t>& tokens,
                                const StepMetadata& step, int repeats) {
  std::map<std::string, Tensor> feeds = model.cache_tensors();
  StepRecord record;
  PF_RETURN_IF_ERROR(model.layout().WriteRecord(tokens, step, record));
  PF_RETURN_IF_ERROR(record.AddFeeds(feeds));
  return RecordStep(model.session(), feeds, repeats);
}

absl::StatusOr<std::vector<OrtStep>> PagedSteps(Model model, const StepOptions& options) {
  PagedModelOptions paging{.in_pages = false};
  paging.session.num_threads = options.threads;
  PF_ASSIGN_OR_RETURN(auto paged, PagedModel::Create(std::move(model), paging));
  std::vector<int64_t> lengths;
  std::vector<StepEntry> entries;
  int64_t tokens = 0;
  for (const int64_t prompt : kStepPrompts) {
    lengths.push_back(prompt + kDecodeSteps);
    tokens += prompt;
  }
  // A larger cache shows what copies of it cost.
  const int64_t asked =
      options.cache_bytes / std::max<int64_t>(paged->layout().bytes_per_page(), 1);
  PF_RETURN_IF_ERROR(
      paged->ReservePages(std::max(asked, paged->layout().PagesFor(lengths, tokens))));
  for (const int64_t prompt : kStepPrompts)
    entries.push_back({paged->cache().AddSequence(), prompt});
  std::vector<OrtStep> steps;
  for (int i = 0; i <= kDecodeSteps; ++i) {
    PF_ASSIGN_OR_RETURN(const StepMetadata step, paged->cache().Append(entries));
    PF_ASSIGN_OR_RETURN(OrtStep made, RunStep(*paged, StepTokens(tokens, paged->vocabulary()), step,
                                              options.repeats));
    steps.push_back(std::move(made));
    tokens = 0;
    for (StepEntry& entry : entries) tokens += entry.num_tokens = 1;
  }
  return steps;
}

// A decoder as it was exported: the prompt of one sequence, then steps of a token each.
absl::StatusOr<std::vector<OrtStep>> DecoderSteps(Model model, const StepOptions& options) {
  EngineOptions engine{.session = PlainSession(options)};
  PF_ASSIGN_OR_RETURN(auto decoder, PlainDecoder::Create(model.Clone(), engine));
  std::vector<std::map<std::string, Tensor>> runs;
  decoder->set_on_run([&](const auto& feeds) { runs.push_back(feeds); });
  const int64_t vocabulary = decoder->vocabulary() > 0 ? decoder->vocabulary() : kAnyVocabulary;
  PF_RETURN_IF_ERROR(
      decoder->Logits(StepTokens(kStepPrompts[1], vocabulary), StepTokens(kDecodeSteps, vocabulary))
          .status());
  PF_ASSIGN_OR_RETURN(auto session, Session::Create(std::move(model), PlainSession(options)));
  std::vector<OrtStep> steps;
  for (const auto& feeds : runs) {
    PF_ASSIGN_OR_RETURN(OrtStep step, RecordStep(*session, feeds, options.repeats));
    steps.push_back(std::move(step));
  }
  return steps;
}

// Sizes that differ, and 1 for all, as far as the graph takes them: one may be made for one sequence,
// or for rows as long as each other.
absl::StatusOr<std::vector<OrtStep>> RandomSteps(Model model, const StepOptions& options) {
  std::vector<std::map<std::string, Tensor>> tries(kFeedAttempts);
  for (int attempt = 0; attempt < kFeedAttempts; ++attempt) {
    PF_ASSIGN_OR_RETURN(tries[attempt], RandomFeeds(model, attempt));
  }
  PF_ASSIGN_OR_RETURN(auto session, Session::Create(std::move(model), PlainSession(options)));
  std::vector<OrtStep> steps;
  absl::Status refused;
  for (const auto& feeds : tries) {
    absl::StatusOr<OrtStep> made = RecordStep(*session, feeds, options.repeats);
    if (refused.ok()) refused = made.status();
    if (made.ok()) steps.push_back(*std::move(made));
  }
  if (steps.empty()) return refused;
  return steps;
}

}  // namespace

std::vector<int64_t> StepTokens(int64_t count, int64_t vocabulary) {
  std::vector<int64_t> tokens(count);
  for (int64_t i = 0; i < count; ++i) tokens[i] = (i * 7 + 3) % vocabulary;
  return tokens;
}

SessionOptions PlainSession(const StepOptions& options) {
  SessionOptions session;
  session.optimise = false;
  session.num_threads = options.threads;
  return session;
}

absl::StatusOr<OrtStep> RecordStep(Session& session, const std::map<std::string, Tensor>& feeds,
                                   int repeats) {
  OrtStep step;
  step.output_names = OutputNames(*session.model().graph);
  step.in_place = WrittenCaches(session.model());
  PF_ASSIGN_OR_RETURN(step.feeds, Copies(feeds));
  PF_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, session.Run(feeds));
  for (const Tensor& output : outputs) {
    PF_ASSIGN_OR_RETURN(Tensor copy, output.Clone());
    step.expected.push_back(std::move(copy));
  }
  step.microseconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    PF_ASSIGN_OR_RETURN(const auto memory, Copies(step.feeds));
    const auto start = std::chrono::steady_clock::now();
    PF_RETURN_IF_ERROR(session.Run(memory).status());
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    step.microseconds = std::min(step.microseconds, time.count());
  }
  return step;
}

absl::StatusOr<std::vector<OrtStep>> MakeSteps(Model model, const StepOptions& options) {
  if (ReadCacheGroups(model).ok()) return PagedSteps(std::move(model), options);
  if (IsPagedBuilderExport(model)) return BuilderSteps(std::move(model), options);
  auto steps = DecoderSteps(model.Clone(), options);
  // Of graphs that are no decoders.
  return steps.ok() ? std::move(steps) : RandomSteps(std::move(model), options);
}

absl::StatusOr<StepMemory> MemoryOf(const OrtStep& step, bool bind) {
  StepMemory memory;
  memory.feeds = step.feeds;
  for (const auto& [output, input] : step.in_place) {
    PF_ASSIGN_OR_RETURN(memory.feeds[input], step.feeds.at(input).Clone());
    if (bind) memory.bound[output] = memory.feeds[input];
  }
  return memory;
}

}  // namespace pagefuse::tools
