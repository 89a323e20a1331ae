#include "pagefuse/runtime/decoder.h"

#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(
    const std::function<absl::StatusOr<Model>()>& load, const EngineOptions& options,
    bool require_paged) {
  auto decoder = std::unique_ptr<Decoder>(new Decoder);
  PF_ASSIGN_OR_RETURN(Model model, load());
  auto engine = Engine::Create(std::move(model), options);
  if (engine.ok()) {
    decoder->engine_ = *std::move(engine);
    return decoder;
  }
  const bool asks_for_pages = require_paged || options.kv_cache || options.block_size ||
                              options.session.pipeline.options.contains("indexer_cache");
  if (asks_for_pages || engine.status().code() != absl::StatusCode::kFailedPrecondition) {
    return engine.status();
  }
  decoder->why_not_paged_ = std::string(engine.status().message());
  PF_ASSIGN_OR_RETURN(Model again, load());
  auto plain = PlainDecoder::Create(std::move(again), options);
  if (!plain.ok()) {
    return absl::Status(plain.status().code(),
                        StrCat("not paged: ", decoder->why_not_paged_,
                               "; and as it was exported: ", StdView(plain.status().message())));
  }
  decoder->plain_ = *std::move(plain);
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
