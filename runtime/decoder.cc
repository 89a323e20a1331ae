// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/decoder.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "pagefuse/base/progress.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/verdict_store.h"

namespace pagefuse {

namespace {

using Clock = std::chrono::steady_clock;

// DecoderOptions::check_seconds.
constexpr double kShareOfLoading = 0.15;

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
  check.seconds = std::max(how.check_seconds, kShareOfLoading * seconds);
  const ProgressStage progress("comparing with the graph as it was exported");
  PF_ASSIGN_OR_RETURN(verdict, CheckRewrites(exported, options, &made, check));
  if (store) store->Keep(*verdict);
  if (!verdict->differs()) return made;
  made = {};
  return MakeRunnable(exported, UnderVerdict(options, *verdict));
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(
    const std::function<absl::StatusOr<Model>()>& load, const EngineOptions& options,
    const DecoderOptions& how) {
  PF_RETURN_IF_ERROR(CheckEngineOptions(options));
  auto decoder = std::unique_ptr<Decoder>(new Decoder);
  PF_ASSIGN_OR_RETURN(const Model exported, load());
  absl::StatusOr<Runnable> made = MakeChecked(exported, options, how, decoder->verdict_);
  const bool differs = decoder->verdict_ && decoder->verdict_->differs();
  if (differs && (how.require_paged || (made.ok() && !made->paged && AsksForPages(options)))) {
    return absl::FailedPreconditionError(decoder->verdict_->reason);
  }
  PF_RETURN_IF_ERROR(made.status());
  decoder->why_not_paged_ = differs ? decoder->verdict_->reason : made->why_not_paged;
  if (made->paged) {
    PF_ASSIGN_OR_RETURN(decoder->engine_, Engine::Create(std::move(made->paged), options));
    const Engine& engine = *decoder->engine_;
    const bool bounded = engine.max_tokens() || !engine.runs_all_tokens();
    if (bounded && HasExportedForm(exported) && !how.require_paged && !AsksForPages(options)) {
      const RewriteVerdict verdict = decoder->verdict_.value_or(RewriteVerdict{});
      decoder->beyond_ = {exported.Clone(), UnderVerdict(options, verdict), nullptr};
    }
  }
  decoder->plain_ = std::move(made->plain);
  if (decoder->plain_) decoder->queue_ = std::make_unique<PlainQueue>(decoder->plain_.get());
  return decoder;
}

std::optional<int64_t> Decoder::BarredIn(const Request& request) const {
  for (const std::vector<int64_t>* tokens : {&request.prompt, &request.forced}) {
    for (const int64_t token : *tokens) {
      if (!engine_->Runs(token)) return token;
    }
  }
  return std::nullopt;
}

bool Decoder::IsBeyond(const Request& request) const {
  if (!beyond_ || !CheckRequest(request, vocabulary()).ok()) return false;
  const auto most = engine_->max_tokens();
  return (most && TokensToRun(request) > *most) || BarredIn(request);
}

std::string Decoder::WhyAsExported(const Request& request) const {
  if (!IsBeyond(request)) return "";
  if (const auto barred = BarredIn(request)) {
    return StrCat("paged, the graph does not run token ", *barred,
                  ", with which it does otherwise");
  }
  return StrCat("a prompt of ", request.prompt.size(), " tokens and ", request.max_new_tokens,
                " new ones: paged, the graph runs ", *engine_->max_tokens(),
                " tokens, behind which it computes otherwise");
}

absl::StatusOr<std::vector<Completion>> Decoder::GenerateBeyond(
    const std::vector<Request>& requests, const OnToken& on_token) {
  if (!beyond_->decoder) {
    PF_ASSIGN_OR_RETURN(beyond_->decoder,
                        PlainDecoder::Create(beyond_->exported.Clone(), beyond_->options));
  }
  PF_ASSIGN_OR_RETURN(std::vector<Completion> completions,
                      beyond_->decoder->Generate(requests, on_token));
  for (Completion& completion : completions) completion.as_exported = true;
  return completions;
}

bool Decoder::GoesOn(const Completion& completion) const {
  return beyond_ && !completion.error.ok() && !completion.tokens.empty() &&
         !engine_->Runs(completion.tokens.back());
}

// What has come is fed as it is: another token may be as likely to the graph as it was exported.
absl::Status Decoder::GoOn(const Request& request, int64_t sample, Completion& completion,
                           size_t place, const OnToken& on_token) {
  Request whole = request;
  whole.sampling.seed = completion.seed;
  whole.samples = sample + 1;  // what is drawn depends on its number
  const size_t come = completion.tokens.size();
  while (whole.forced.size() < come) {
    whole.forced.push_back(completion.tokens[whole.forced.size()]);
  }
  size_t told = 0;
  const auto on_new = [&](const NewToken& token) {
    if (token.completion != static_cast<size_t>(sample)) return false;
    return ++told <= come || !on_token || on_token({place, token.token, token.logprobs});
  };
  PF_ASSIGN_OR_RETURN(std::vector<Completion> made, GenerateBeyond({whole}, on_new));
  Completion& all = made[sample];
  if (all.tokens.size() < come) {
    completion.error = all.error;
    return absl::OkStatus();
  }
  std::ranges::copy(completion.tokens, all.tokens.begin());
  std::ranges::copy(completion.logits, all.logits.begin());
  std::ranges::copy(completion.logprobs, all.logprobs.begin());
  all.request = completion.request;
  completion = std::move(all);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Completion>> Decoder::GeneratePaged(const std::vector<Request>& requests,
                                                               const OnToken& on_token) {
  PF_ASSIGN_OR_RETURN(std::vector<Completion> completions, engine_->Generate(requests, on_token));
  size_t place = 0;
  for (const Request& request : requests) {
    for (int64_t sample = 0; sample < NumCompletions(request); ++sample, ++place) {
      if (!GoesOn(completions[place])) continue;
      PF_RETURN_IF_ERROR(GoOn(request, sample, completions[place], place, on_token));
    }
  }
  return completions;
}

absl::StatusOr<std::vector<Completion>> Decoder::Generate(const std::vector<Request>& requests,
                                                          const OnToken& on_token) {
  if (!engine_) return plain_->Generate(requests, on_token);
  if (std::ranges::none_of(requests, [&](const Request& r) { return IsBeyond(r); })) {
    return GeneratePaged(requests, on_token);
  }
  std::vector<Completion> completions;
  for (const bool beyond : {false, true}) {
    std::vector<Request> part;
    std::vector<size_t> places, owners;  // of their completions
    size_t place = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const bool here = IsBeyond(requests[i]) == beyond;
      if (here) part.push_back(requests[i]);
      for (int64_t sample = 0; sample < NumCompletions(requests[i]); ++sample, ++place) {
        if (!here) continue;
        places.push_back(place);
        owners.push_back(i);
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
                        beyond ? GenerateBeyond(part, on_part) : GeneratePaged(part, on_part));
    for (size_t i = 0; i < made.size(); ++i) {
      made[i].request = owners[i];
      completions[places[i]] = std::move(made[i]);
    }
  }
  return completions;
}

absl::StatusOr<RequestId> Decoder::Submit(Request request, Sink sink) {
  if (!engine_) return queue_->Submit(std::move(request), std::move(sink));
  const std::string why = WhyAsExported(request);
  if (!why.empty()) return absl::FailedPreconditionError(why);
  return engine_->Submit(std::move(request), std::move(sink));
}

void Decoder::Cancel(RequestId id) { engine_ ? engine_->Cancel(id) : queue_->Cancel(id); }

StepReport Decoder::Step() { return engine_ ? engine_->Step() : queue_->Step(); }

void Decoder::ForgetTexts() {
  if (engine_) engine_->ForgetTexts();
}

void Decoder::Reread(const std::function<bool()>& goes_on) {
  while (engine_ && goes_on() && engine_->Step().tokens > 0) {
  }
}

absl::Status Decoder::WarmUp(const std::vector<Request>& requests) {
  if (!engine_) return absl::OkStatus();
  std::vector<Request> paged = requests;
  std::erase_if(paged, [&](const Request& request) { return IsBeyond(request); });
  return paged.empty() ? absl::OkStatus() : engine_->WarmUp(paged);
}

}  // namespace pagefuse
