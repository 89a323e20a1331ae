// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/kernels/linalg/cpu_features.h"
#include "pagefuse/runtime/cache_size.h"
#include "pagefuse/runtime/engine_impl.h"
#include "pagefuse/runtime/runnable.h"

namespace pagefuse {
namespace {

constexpr int64_t kUsualSequences = 64;

// Rows of a step that take hardly longer than one: a product reads the weights as often.
int64_t DraftRows(const Session& session) {
  return session.device() != nullptr || HasAmxBf16() ? 16 : 4;
}

// Of the memory that is left when the weights are there; the rest is for what steps compute.
constexpr double kShareOfMemory = 0.6;

// Of the device, where the session has one.
int64_t FreeMemory(const Session& session) {
  if (session.device() != nullptr) {
    const std::optional<MemoryRoom> room = session.device()->memory().Room();
    if (room) return static_cast<int64_t>(room->free);
  }
  return session.memory()->limit() - session.memory()->used();
}

}  // namespace

absl::StatusOr<PrefixReuse> ParsePrefixReuse(std::string_view name) {
  if (name == "exact") return PrefixReuse::kExact;
  if (name == "all") return PrefixReuse::kAll;
  if (name == "off") return PrefixReuse::kOff;
  return absl::InvalidArgumentError(StrCat("expected exact, all or off, got \"", name, "\""));
}

absl::StatusOr<bool> ParseDrafts(std::string_view name) {
  if (name == "auto") return true;
  if (name == "off") return false;
  return absl::InvalidArgumentError(StrCat("expected auto or off, got \"", name, "\""));
}

absl::StatusOr<double> StepSecondsOf(int64_t milliseconds) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (milliseconds >= 1 && milliseconds <= kMost) return static_cast<double>(milliseconds) / 1000;
  return absl::InvalidArgumentError(StrCat("expected 1 to ", kMost, ", got ", milliseconds));
}

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
  if (!(options.step_seconds > 0)) {
    return absl::InvalidArgumentError(
        StrCat("engine: step_seconds: expected more than 0, got ", options.step_seconds));
  }
  if (options.cache_tokens < 0) {
    return absl::InvalidArgumentError(
        StrCat("engine: cache_tokens: expected 0 or more, got ", options.cache_tokens));
  }
  if (options.cache_bytes < 0) {
    return absl::InvalidArgumentError(
        StrCat("engine: cache_bytes: expected 0 or more, got ", options.cache_bytes));
  }
  if (options.cache_bytes == 0 || options.cache_tokens == 0) return absl::OkStatus();
  return absl::InvalidArgumentError("engine: cache_bytes: expected none beside cache_tokens");
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
  PF_RETURN_IF_ERROR(impl->MakeCache());
  impl->stats.cache_bytes_per_token = impl->model->layout().bytes_per_token();
  impl->stats.cache_bytes_per_sequence = impl->model->layout().bytes_per_sequence();
  impl->stats.bytes_per_page = impl->model->layout().bytes_per_page();
  if (const PrefixTree* tree = impl->model->cache().tree()) impl->stats.hit_unit = tree->unit();
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

absl::Status Engine::Impl::Check(const Request& request) const {
  PF_RETURN_IF_ERROR(CheckRequest(request, model->vocabulary()));
  const int64_t tokens = TokensToRun(request);
  PF_RETURN_IF_ERROR(model->CheckLength(tokens));
  PF_RETURN_IF_ERROR(model->CheckTokens(request.prompt));
  PF_RETURN_IF_ERROR(model->CheckTokens(request.forced));
  if (request.max_new_tokens == 0) return absl::OkStatus();
  return model->CheckRoom(tokens, options.max_tokens_per_step);
}

absl::Status Engine::Impl::MakeCache() {
  if (options.cache_bytes > 0 || options.cache_tokens > 0) return MakeCacheOf(options.cache_bytes);
  // A machine may promise less memory than it has.
  constexpr int64_t kLeast = int64_t{1} << 20;
  auto bytes =
      static_cast<int64_t>(kShareOfMemory * static_cast<double>(FreeMemory(model->session())));
  const absl::Status first = MakeCacheOf(bytes);
  absl::Status made = first;
  while (absl::IsResourceExhausted(made) && bytes > kLeast) made = MakeCacheOf(bytes /= 2);
  return made.ok() ? made : first;
}

absl::Status Engine::Impl::MakeCacheOf(int64_t bytes) {
  const int64_t pages = PagesOf(model->layout(), {.tokens = options.cache_tokens,
                                                  .bytes = bytes,
                                                  .max_sequences = max_sequences,
                                                  .step_tokens = options.max_tokens_per_step});
  const int64_t least = LeastPages(model->layout(), options.max_tokens_per_step);
  if (pages < least) {
    const int64_t page = model->layout().bytes_per_page();
    const std::string pages_of_groups = StrCat(" a page of ", page, " for each group, ");
    if (options.cache_bytes == 0) {
      return absl::ResourceExhaustedError(StrCat("the cache: no memory for ", least * page,
                                                 " bytes,", pages_of_groups, "of ", bytes,
                                                 " that may be"));
    }
    return absl::InvalidArgumentError(StrCat("engine: cache_bytes: expected ", least * page,
                                             " or more,", pages_of_groups, "got ", bytes));
  }
  PF_RETURN_IF_ERROR(model->ReservePages(
      pages, {.keep = Drafts::kMost, .keeps_texts = options.prefix_reuse != PrefixReuse::kOff}));
  scheduler = std::make_unique<Scheduler>(
      &model->cache(),
      Scheduler::Options{.max_tokens_per_step = options.max_tokens_per_step,
                         .max_sequences = max_sequences,
                         .max_draft_rows = options.drafts ? DraftRows(model->session()) : 0});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Completion>> Engine::Impl::Run(const std::vector<Request>& requests,
                                                          const OnToken& on_token, bool shares) {
  std::vector<Completion> completions;
  size_t left = 0;
  for (const Request& request : requests) {
    completions.resize(completions.size() + NumCompletions(request));
  }
  size_t place = 0;
  for (size_t i = 0; i < requests.size(); place += NumCompletions(requests[i]), ++i) {
    Sink sink;
    if (on_token) {
      sink.on_token = [&on_token, place](const NewToken& token) {
        return on_token({place + token.completion, token.token, token.logprobs});
      };
    }
    sink.on_done = [&completions, &left, place, i](int64_t sample, Completion completion) {
      completion.request = i;
      completions[place + sample] = std::move(completion);
      --left;
    };
    const auto count = static_cast<size_t>(NumCompletions(requests[i]));
    const auto id = Submit(requests[i], std::move(sink), shares);
    left += id.ok() ? count : 0;
    for (size_t sample = 0; sample < count && !id.ok(); ++sample) {
      completions[place + sample].request = i;
      completions[place + sample].finish = FinishReason::kRefused;
      completions[place + sample].error = id.status();
    }
  }
  stopped = absl::OkStatus();
  while (left > 0 && stopped.ok()) Step();
  if (stopped.ok()) return completions;
  while (!active.empty()) End(active.begin()->first, FinishReason::kCancelled, stopped);
  return stopped;
}

absl::StatusOr<std::vector<Completion>> Engine::Generate(const std::vector<Request>& requests,
                                                         const OnToken& on_token) {
  return impl_->Run(requests, on_token, impl_->options.prefix_reuse != PrefixReuse::kOff);
}

absl::Status Engine::WarmUp(const std::vector<Request>& requests) {
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
    const auto completions = impl_->Run(shorter, nullptr, /*shares=*/false);
    status = completions.ok() ? FirstError(*completions) : completions.status();
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
  return impl_->model->Capacity(impl_->options.max_tokens_per_step);
}

const Session& Engine::session() const { return impl_->model->session(); }
const PagedCache& Engine::cache() const { return impl_->model->cache(); }
const CacheSettings& Engine::cache_settings() const { return impl_->model->cache_settings(); }
EngineStats Engine::stats() const {
  EngineStats stats = impl_->stats;
  stats.preemptions = impl_->scheduler->preemptions();
  stats.recomputed_tokens = impl_->scheduler->recomputed_tokens();
  stats.prefix_lost_tokens = impl_->scheduler->lost_tokens();
  return stats;
}
int64_t Engine::vocabulary() const { return impl_->model->vocabulary(); }

void Engine::ForgetTexts() {
  if (PrefixTree* tree = impl_->model->cache().tree()) tree->Clear();
}

}  // namespace pagefuse
