// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/engine.h"

#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/runtime/engine_impl.h"
#include "pagefuse/runtime/prefix_index.h"
#include "pagefuse/runtime/runnable.h"

namespace pagefuse {
namespace {

constexpr int64_t kUsualSequences = 64;

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

bool IsFirstSample(const Progress& item, const std::vector<Progress>& progress) {
  return &item == progress.data() || (&item)[-1].request != item.request;
}

}  // namespace

absl::Status CheckEngineOptions(const EngineOptions& options) {
  constexpr int64_t kLeastTokens = 4;  // a piece of a prompt beside a sequence that decodes
  if (options.max_tokens_per_step < kLeastTokens) {
    return absl::InvalidArgumentError(StrCat("engine: max_tokens_per_step: expected ", kLeastTokens,
                                             " or more, got ", options.max_tokens_per_step));
  }
  const int64_t half = options.max_tokens_per_step / 2;
  const int64_t sequences = options.max_sequences.value_or(1);
  if (sequences < 1 || sequences > half) {
    return absl::InvalidArgumentError(
        StrCat("engine: max_sequences: expected 1 to ", half,
               ", half of max_tokens_per_step, so that prompts have the rest, got ", sequences));
  }
  if (options.cache_tokens >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("engine: cache_tokens: expected 0 or more, got ", options.cache_tokens));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::StatusOr<std::unique_ptr<Engine>> Engine::Load(const std::string& path,
                                                     const EngineOptions& options) {
  PF_ASSIGN_OR_RETURN(Model model, LoadModel(path, {.map_files = options.session.map_files}));
  return Create(std::move(model), options);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(Model model, const EngineOptions& options) {
  PF_RETURN_IF_ERROR(CheckEngineOptions(options));
  PF_ASSIGN_OR_RETURN(auto paged, PagedModel::Create(std::move(model), PagedOptions(options)));
  return Create(std::move(paged), options);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::unique_ptr<PagedModel> model,
                                                       const EngineOptions& options) {
  PF_RETURN_IF_ERROR(CheckEngineOptions(options));
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->max_sequences =
      options.max_sequences.value_or(std::min(kUsualSequences, options.max_tokens_per_step / 2));
  impl->model = std::move(model);
  impl->stats.cache_bytes_per_token = impl->model->layout().bytes_per_token();
  impl->stats.cache_bytes_per_sequence = impl->model->layout().bytes_per_sequence();
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

absl::Status Engine::Impl::Check(const Request& request) const {
  PF_RETURN_IF_ERROR(CheckRequest(request, model->vocabulary()));
  const int64_t tokens = TokensToRun(request);
  PF_RETURN_IF_ERROR(model->CheckLength(tokens));
  PF_RETURN_IF_ERROR(model->CheckTokens(request.prompt));
  PF_RETURN_IF_ERROR(model->CheckTokens(request.forced));
  if (request.max_new_tokens == 0) return absl::OkStatus();
  return model->CheckRoom(tokens, options.max_tokens_per_step, options.cache_tokens);
}

std::vector<Progress> Engine::Impl::Begin(const std::vector<Request>& requests) const {
  return pagefuse::Begin(requests, [this](const Request& request) { return Check(request); });
}

// Room for the longest requests that may run at once, or for what the options say.
absl::Status Engine::Impl::MakeCache(const std::vector<Request>& requests) {
  kept.clear();  // their cache goes
  kept_room = 0;
  std::vector<int64_t> lengths;
  for (const Request& request : requests) {
    if (!Check(request).ok()) continue;
    lengths.insert(lengths.end(), request.samples, TokensToRun(request));
  }
  std::sort(lengths.rbegin(), lengths.rend());
  if (static_cast<int64_t>(lengths.size()) > max_sequences) {
    lengths.resize(max_sequences);
  }
  return model->Reserve(lengths, options.max_tokens_per_step, options.cache_tokens);
}

absl::StatusOr<Tensor> Engine::Impl::RunStep(const Scheduler::Step& step,
                                             const std::vector<const Progress*>& progress) {
  std::vector<int64_t> input_ids;
  for (const Scheduler::Work& work : step.work) {
    auto first = progress[work.request]->tokens.begin() + work.first_token;
    input_ids.insert(input_ids.end(), first, first + work.num_tokens);
  }
  return RunTokens(input_ids, step.metadata);
}

absl::StatusOr<Tensor> Engine::Impl::RunTokens(const std::vector<int64_t>& input_ids,
                                               const StepMetadata& metadata) {
  const auto start = std::chrono::steady_clock::now();
  PF_ASSIGN_OR_RETURN(Tensor logits, model->Run(input_ids, metadata));
  if (logits.dims().back() == 0) {
    return absl::FailedPreconditionError("engine: logits: expected at least one column, got none");
  }
  const double seconds = Seconds(start);
  const auto tokens = static_cast<int64_t>(input_ids.size());
  ++stats.steps;
  const bool decode = input_ids.size() == metadata.seq_lens.size();
  (decode ? stats.decode_seconds : stats.prefill_seconds) += seconds;
  (decode ? stats.decode_tokens : stats.prefill_tokens) += tokens;
  stats.peak_blocks = std::max(stats.peak_blocks, model->cache().blocks_in_use());
  if (options.on_step) {
    PF_RETURN_IF_ERROR(options.on_step({&model->session(), decode, tokens, start, seconds}));
  }
  return logits;
}

void Engine::Impl::Take(const Request& request, std::span<const float> logits, Progress& progress,
                        size_t index, const OnToken& on_token) {
  AddToken(request, logits, progress, index, on_token);
  if (progress.done || model->Runs(progress.tokens.back())) return;
  Completion& completion = progress.completion;
  const absl::Status why = model->CheckTokens({&progress.tokens.back(), 1});
  completion.error = absl::FailedPreconditionError(
      StrCat("new token ", completion.tokens.size() - 1, ": ", StdView(why.message())));
  completion.finish = FinishReason::kFailed;
  progress.done = true;
}

absl::Status Engine::Impl::RunAll(const std::vector<Request>& requests,
                                  std::vector<Progress>& progress, const OnToken& on_token) {
  Scheduler scheduler(&model->cache(), {.max_tokens_per_step = options.max_tokens_per_step,
                                        .max_sequences = max_sequences});
  std::vector<Progress*> scheduled;  // by the scheduler's index: the other samples come in later
  std::vector<const Progress*> tokens_of;
  const auto add = [&](Progress& item) {
    scheduled.push_back(&item);
    tokens_of.push_back(&item);
  };
  const auto take = [&](size_t index, std::span<const float> logits) {
    Progress& item = *scheduled[index];
    const size_t completion = &item - progress.data();
    Take(requests[item.request], logits, item, completion, on_token);
    if (item.completion.error.ok()) scheduler.AddToken(index);
  };
  PrefixIndex prefixes;
  for (size_t i = 0; i < progress.size(); i += NumCompletions(requests[progress[i].request])) {
    if (progress[i].done) continue;  // refused, or without new tokens
    const std::vector<int64_t>& tokens = progress[i].tokens;
    scheduler.Add(static_cast<int64_t>(tokens.size()),
                  options.share_prefixes ? prefixes.Add(tokens) : std::nullopt);
    add(progress[i]);
  }
  while (!scheduler.done()) {
    PF_ASSIGN_OR_RETURN(Scheduler::Step step, scheduler.Next());
    PF_ASSIGN_OR_RETURN(Tensor logits, RunStep(step, tokens_of));
    const int64_t vocabulary = logits.dims().back();
    int64_t row = 0;
    for (const Scheduler::Work& work : step.work) {
      if (!work.last) continue;
      const auto values = logits.values<float>().subspan(row++ * vocabulary, vocabulary);
      std::vector<size_t> indices = {work.request};
      // The first token of the first sample: the prompt is computed, the others go on from here.
      Progress* first = scheduled[indices[0]];
      const bool forks = first->completion.tokens.empty() && IsFirstSample(*first, progress);
      for (int64_t sample = 1; forks && sample < requests[first->request].samples; ++sample) {
        PF_ASSIGN_OR_RETURN(indices.emplace_back(), scheduler.Fork(indices[0]));
        add(first[sample]);
      }
      for (size_t index : indices) take(index, values);
      for (size_t index : indices) {
        if (scheduled[index]->done) scheduler.Finish(index);
      }
    }
  }
  stats.shared_tokens += scheduler.shared_tokens();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Completion>> Engine::Generate(const std::vector<Request>& requests,
                                                         const OnToken& on_token) {
  std::vector<Progress> progress = impl_->Begin(requests);
  if (std::ranges::any_of(progress, [](const Progress& item) { return !item.done; })) {
    PF_RETURN_IF_ERROR(impl_->MakeCache(requests));
    PF_RETURN_IF_ERROR(impl_->RunAll(requests, progress, on_token));
  }
  return Completions(std::move(progress));
}

absl::Status Engine::WarmUp(const std::vector<Request>& requests) {
  PF_RETURN_IF_ERROR(impl_->MakeCache(requests));
  std::vector<Request> shorter = requests;
  std::erase_if(shorter, [this](const Request& request) { return !impl_->Check(request).ok(); });
  for (Request& request : shorter) {
    request.max_new_tokens = std::min<int64_t>(request.max_new_tokens, 2);
    request.keep_logits = false;
  }
  const EngineStats stats = impl_->stats;
  const auto on_step = std::exchange(impl_->options.on_step, nullptr);
  absl::Status status;
  for (int run = 0; run < 2 && status.ok(); ++run) {
    std::vector<Progress> progress = impl_->Begin(shorter);
    status = impl_->RunAll(shorter, progress, nullptr);
  }
  impl_->stats = stats;
  impl_->options.on_step = on_step;
  return status;
}

std::optional<int64_t> Engine::max_tokens() const { return impl_->model->max_tokens(); }

bool Engine::Runs(int64_t token) const { return impl_->model->Runs(token); }
bool Engine::runs_all_tokens() const { return impl_->model->runs_all_tokens(); }
int64_t Engine::NextThatRuns(int64_t token) const { return impl_->model->NextThatRuns(token); }

std::optional<int64_t> Engine::capacity() const {
  if (impl_->options.cache_tokens == 0) return std::nullopt;
  return impl_->model->Capacity(impl_->options.cache_tokens);
}

const Session& Engine::session() const { return impl_->model->session(); }
const PagedCache& Engine::cache() const { return impl_->model->cache(); }
const CacheSettings& Engine::cache_settings() const { return impl_->model->cache_settings(); }
EngineStats Engine::stats() const { return impl_->stats; }
int64_t Engine::vocabulary() const { return impl_->model->vocabulary(); }

}  // namespace pagefuse
