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
  }
  decoder->plain_ = std::move(made->plain);
  return decoder;
}

absl::StatusOr<std::vector<Completion>> Decoder::Generate(const std::vector<Request>& requests,
                                                          const OnToken& on_token) {
  return engine_ ? engine_->Generate(requests, on_token) : plain_->Generate(requests, on_token);
}

absl::StatusOr<Completion> Decoder::Continue(const Request& request, int64_t room,
                                             const OnToken& on_token) {
  if (engine_) return engine_->Continue(request, room, on_token);
  PF_ASSIGN_OR_RETURN(std::vector<Completion> completions, plain_->Generate({request}, on_token));
  PF_RETURN_IF_ERROR(FirstError(completions));
  return std::move(completions[0]);
}

absl::Status Decoder::WarmUp(const std::vector<Request>& requests) {
  return engine_ ? engine_->WarmUp(requests) : absl::OkStatus();
}

}  // namespace pagefuse
