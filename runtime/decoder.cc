#include "pagefuse/runtime/decoder.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/verdict_store.h"

namespace pagefuse {

namespace {

using Clock = std::chrono::steady_clock;

// The check may take so much of the time that loading took, and a few seconds in any case.
constexpr double kShareOfLoading = 0.15;

bool AsksForPages(const EngineOptions& options, const DecoderOptions& how) {
  return how.require_paged || options.kv_cache || options.block_size;
}

}  // namespace

absl::StatusOr<Runnable> Decoder::MakeChecked(const Model& exported, const EngineOptions& options,
                                              const DecoderOptions& how,
                                              std::optional<RewriteVerdict>& verdict) {
  const bool checks = how.check_paging != CheckPaging::kNever && HasExportedForm(exported);
  std::optional<VerdictStore> store;
  if (checks && how.check_paging == CheckPaging::kOnce) {
    store.emplace(how.verdicts, exported, options);
    verdict = store->Find();
    if (verdict) {
      return MakeRunnable(exported, UnderVerdict(options, *verdict), how.require_paged);
    }
  }
  const auto start = Clock::now();
  PF_ASSIGN_OR_RETURN(Runnable made, MakeRunnable(exported, options, how.require_paged));
  if (!checks) return made;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  RewriteCheckOptions check;
  check.seconds = std::max(check.seconds, kShareOfLoading * seconds);
  PF_ASSIGN_OR_RETURN(verdict, CheckRewrites(exported, options, &made, check));
  if (store) store->Keep(*verdict);
  if (!verdict->differs()) return made;
  made = {};
  return MakeRunnable(exported, UnderVerdict(options, *verdict));
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(
    const std::function<absl::StatusOr<Model>()>& load, const EngineOptions& options,
    const DecoderOptions& how) {
  auto decoder = std::unique_ptr<Decoder>(new Decoder);
  PF_ASSIGN_OR_RETURN(const Model exported, load());
  absl::StatusOr<Runnable> made = MakeChecked(exported, options, how, decoder->verdict_);
  const bool differs = decoder->verdict_ && decoder->verdict_->differs();
  if (differs && (how.require_paged || (made.ok() && !made->paged && AsksForPages(options, how)))) {
    return absl::FailedPreconditionError(decoder->verdict_->reason);
  }
  PF_RETURN_IF_ERROR(made.status());
  decoder->why_not_paged_ = differs ? decoder->verdict_->reason : made->why_not_paged;
  if (made->paged) {
    PF_ASSIGN_OR_RETURN(decoder->engine_, Engine::Create(std::move(made->paged), options));
    const bool bounded = decoder->engine_->max_tokens() && HasExportedForm(exported);
    if (bounded && !AsksForPages(options, how)) {
      const RewriteVerdict verdict = decoder->verdict_.value_or(RewriteVerdict{});
      decoder->beyond_ = {exported.Clone(), UnderVerdict(options, verdict), nullptr};
    }
  }
  decoder->plain_ = std::move(made->plain);
  return decoder;
}

bool Decoder::IsBeyond(const Request& request) const {
  return beyond_ && TokensToRun(request) > *engine_->max_tokens();
}

std::string Decoder::WhyAsExported(const Request& request) const {
  if (!IsBeyond(request)) return "";
  return StrCat("a prompt of ", request.prompt.size(), " tokens and ", request.max_new_tokens,
                " new ones: paged, the graph runs ", *engine_->max_tokens(),
                " tokens, behind which it rotates otherwise");
}

absl::StatusOr<std::vector<Completion>> Decoder::GenerateBeyond(
    const std::vector<Request>& requests, const OnToken& on_token) {
  if (!beyond_->decoder) {
    PF_ASSIGN_OR_RETURN(beyond_->decoder,
                        PlainDecoder::Create(beyond_->exported.Clone(), beyond_->options));
  }
  return beyond_->decoder->Generate(requests, on_token);
}

absl::StatusOr<std::vector<Completion>> Decoder::Generate(const std::vector<Request>& requests,
                                                          const OnToken& on_token) {
  if (!engine_) return plain_->Generate(requests, on_token);
  if (std::ranges::none_of(requests, [&](const Request& r) { return IsBeyond(r); })) {
    return engine_->Generate(requests, on_token);
  }
  PF_RETURN_IF_ERROR(CheckRequests(requests, vocabulary()));
  std::vector<Completion> completions;
  for (const bool beyond : {false, true}) {
    std::vector<Request> part;
    std::vector<size_t> places;  // of their completions
    size_t place = 0;
    for (const Request& request : requests) {
      const bool here = IsBeyond(request) == beyond;
      if (here) part.push_back(request);
      for (int64_t sample = 0; sample < request.samples; ++sample, ++place) {
        if (here) places.push_back(place);
      }
    }
    completions.resize(place);
    if (part.empty()) continue;
    OnToken on_part;
    if (on_token) {
      on_part = [&](const NewToken& token) {
        return on_token({places[token.completion], token.token, token.logprobs});
      };
    }
    PF_ASSIGN_OR_RETURN(std::vector<Completion> made,
                        beyond ? GenerateBeyond(part, on_part) : engine_->Generate(part, on_part));
    for (size_t i = 0; i < made.size(); ++i) completions[places[i]] = std::move(made[i]);
  }
  return completions;
}

absl::StatusOr<Completion> Decoder::Continue(const Request& request, int64_t room,
                                             const OnToken& on_token) {
  if (engine_ && !IsBeyond(request)) return engine_->Continue(request, room, on_token);
  PF_ASSIGN_OR_RETURN(std::vector<Completion> completions, Generate({request}, on_token));
  PF_RETURN_IF_ERROR(FirstError(completions));
  return std::move(completions[0]);
}

absl::Status Decoder::WarmUp(const std::vector<Request>& requests) {
  if (!engine_) return absl::OkStatus();
  std::vector<Request> paged = requests;
  std::erase_if(paged, [&](const Request& request) { return IsBeyond(request); });
  return paged.empty() ? absl::OkStatus() : engine_->WarmUp(paged);
}

}  // namespace pagefuse
