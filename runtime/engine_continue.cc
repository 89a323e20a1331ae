// SPDX-License-Identifier: Apache-2.0
// Engine::Continue: a text that grows by turns, over one cache.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/runtime/engine_impl.h"

namespace pagefuse {
namespace {

bool BeginsWith(const std::vector<int64_t>& tokens, const std::vector<int64_t>& beginning) {
  return beginning.size() < tokens.size() &&
         std::equal(beginning.begin(), beginning.end(), tokens.begin());
}

}  // namespace

void Engine::Impl::DropAll() {
  for (const Kept& text : kept) Drop(text);
  kept.clear();
}

// The cache holds a whole text, and beside it what the ends of kept ones do not share.
absl::Status Engine::Impl::MakeRoom(const Request& request, int64_t room) {
  const auto length = static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens;
  if (length <= kept_room) return absl::OkStatus();
  DropAll();
  room = std::max(room, length);
  const int64_t turn = std::min(room, request.max_new_tokens + options.max_tokens_per_step);
  PF_RETURN_IF_ERROR(
      model->Reserve({room, turn, turn}, options.max_tokens_per_step, options.cache_tokens));
  kept_room = room;
  return absl::OkStatus();
}

// A sequence with the longest kept text that the prompt begins with. One token at least is left to
// compute: the logits behind it are wanted.
absl::StatusOr<Engine::Impl::Kept> Engine::Impl::GoOnFrom(const std::vector<int64_t>& prompt) {
  const Kept* longest = nullptr;
  for (const Kept& text : kept) {
    const bool longer = longest == nullptr || text.tokens.size() > longest->tokens.size();
    if (longer && BeginsWith(prompt, text.tokens)) longest = &text;
  }
  if (longest == nullptr) return Kept{{}, model->cache().AddSequence()};
  PF_ASSIGN_OR_RETURN(const SequenceId sequence, model->cache().Fork(longest->sequence));
  return Kept{longest->tokens, sequence};
}

absl::StatusOr<Tensor> Engine::Impl::Append(Kept& text, const std::vector<int64_t>& tokens,
                                            bool wants_logits) {
  PF_ASSIGN_OR_RETURN(
      const StepMetadata metadata,
      model->cache().Append({{text.sequence, static_cast<int64_t>(tokens.size()), wants_logits}}));
  text.tokens.insert(text.tokens.end(), tokens.begin(), tokens.end());
  return RunTokens(tokens, metadata);
}

// Computes what is left of the prompt, keeps that, and goes on to the end of the answer.
absl::Status Engine::Impl::Answer(const Request& request, Kept& text, Progress& progress,
                                  const OnToken& on_token) {
  Tensor logits;
  while (text.tokens.size() < request.prompt.size()) {
    const size_t left = request.prompt.size() - text.tokens.size();
    const auto count =
        static_cast<size_t>(PromptPiece(static_cast<int64_t>(left), options.max_tokens_per_step));
    const auto first = request.prompt.begin() + static_cast<std::ptrdiff_t>(text.tokens.size());
    PF_ASSIGN_OR_RETURN(
        logits, Append(text, {first, first + static_cast<std::ptrdiff_t>(count)}, count == left));
  }
  DropAll();
  PF_ASSIGN_OR_RETURN(const SequenceId prompt, model->cache().Fork(text.sequence));
  kept.push_back({text.tokens, prompt});
  while (!progress.done) {
    Take(request, logits.values<float>(), progress, 0, on_token);
    PF_RETURN_IF_ERROR(progress.completion.error);
    if (progress.done) break;
    PF_ASSIGN_OR_RETURN(logits, Append(text, {progress.tokens.back()}, true));
  }
  return absl::OkStatus();
}

absl::StatusOr<Completion> Engine::Continue(const Request& request, int64_t room,
                                            const OnToken& on_token) {
  PF_RETURN_IF_ERROR(impl_->Check(request));
  if (request.samples != 1) return absl::InvalidArgumentError("samples: expected 1 to continue");
  PF_RETURN_IF_ERROR(impl_->MakeRoom(request, room));
  std::vector<Progress> progress = impl_->Begin({request});
  PF_ASSIGN_OR_RETURN(Impl::Kept text, impl_->GoOnFrom(request.prompt));
  const absl::Status status = impl_->Answer(request, text, progress[0], on_token);
  if (!status.ok()) {
    impl_->Drop(text);
    // Who stops a call asks again: what was kept is as it was.
    if (!absl::IsCancelled(status)) impl_->DropAll();
    return status;
  }
  impl_->kept.push_back(std::move(text));
  return std::move(progress[0].completion);
}

}  // namespace pagefuse
