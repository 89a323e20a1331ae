// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/generation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/answer_constraint.h"
#include "pagefuse/serve/http_error.h"

namespace pagefuse::serve {
namespace {

using Clock = std::chrono::steady_clock;

std::string_view NameOf(AnswerFinish finish) {
  switch (finish) {
    case AnswerFinish::kStop:
      return "stop";
    case AnswerFinish::kLength:
      return "length";
    case AnswerFinish::kCalls:
      return "tool_calls";
    case AnswerFinish::kCancelled:
      return "abort";
    case AnswerFinish::kFailed:
      return "error";
  }
  return "";
}

// Ends an answer at a stop string, in the thread of the engine: no token behind it is computed.
class StopWatch {
 public:
  StopWatch(const std::shared_ptr<const Tokenizer>& tokenizer,
            const std::vector<std::string>& stops, const AnswerReading& reading)
      : text_(tokenizer, {.marks = reading.marks, .keeps_special = reading.keeps_special}, stops) {}
  bool StopsAt(int64_t token, bool ends) {
    text_.Add(token, nullptr, ends);
    return text_.stopped();
  }

 private:
  AnswerText text_;
};

}  // namespace

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(Generations* owner, GenerationRequest request,
             std::shared_ptr<GenerationClient> client)
      : owner_(owner),
        strand_(owner->workers_),
        request_(std::move(request)),
        client_(std::move(client)) {
    const auto samples = static_cast<size_t>(request_.request.samples);
    for (size_t i = 0; i < samples; ++i) {
      answers_.push_back({AnswerText(owner_->model_->tokenizer, request_.reading, request_.stops)});
      if (!request_.stops.empty()) {
        watches_.emplace_back(owner_->model_->tokenizer, request_.stops, request_.reading);
      }
    }
    left_ = request_.request.samples;
  }

  // By the thread of the engine.
  void OnStart() {
    started_ = Clock::now();
    has_started_ = true;
    --owner_->waiting_;
  }
  bool OnToken(const NewToken& token) {
    const auto now = Clock::now();
    std::optional<TokenLogprobs> logprobs;
    if (token.logprobs != nullptr) logprobs = *token.logprobs;
    strand_.Post([self = shared_from_this(), sample = token.completion, id = token.token, now,
                  logprobs = std::move(logprobs)] { self->Take(sample, id, logprobs, now); });
    return watches_.empty() ||
           !watches_[token.completion].StopsAt(token.token, EndsAt(token.token));
  }
  void OnDone(int64_t sample, Completion completion) {
    if (!has_started_ && !std::exchange(told_waiting_, true)) --owner_->waiting_;
    completion.tokens.clear();
    completion.logprobs.clear();
    strand_.Post([self = shared_from_this(), sample, completion = std::move(completion)] {
      self->End(sample, completion);
    });
  }

  RequestId id = -1;

 private:
  struct Answer {
    AnswerText text;
    int64_t tokens = 0, reasoning_tokens = 0;
    int64_t last_token = -1;
    std::vector<TokenDelta> held = {};  // whose text has not come
    std::optional<Clock::time_point> last = {};
  };

  bool EndsAt(int64_t token) const {
    return std::ranges::count(request_.request.stop_tokens, token) > 0;
  }

  // By workers, one call at a time.
  void Take(size_t sample, int64_t token, const std::optional<TokenLogprobs>& logprobs,
            Clock::time_point now) {
    Answer& answer = answers_[sample];
    if (answer.text.stopped()) return;
    if (answer.last) {
      owner_->metrics_->AddTokenGap(Seconds(*answer.last, now));
    } else if (!first_token_) {
      first_token_ = now;
    }
    answer.last = now;
    ++answer.tokens;
    answer.last_token = token;
    answer.reasoning_tokens += answer.text.in_reasoning() ? 1 : 0;
    Tell(sample, answer.text.Add(token, logprobs ? &*logprobs : nullptr, EndsAt(token)), false);
  }
  // Tokens whose text is held back come with the text.
  void Tell(size_t sample, AnswerDelta delta, bool all) {
    Answer& answer = answers_[sample];
    std::ranges::move(delta.tokens, std::back_inserter(answer.held));
    const bool due = all || request_.reading.tells_tokens;
    if (delta.empty() && !(due && !answer.held.empty())) return;
    delta.sample = static_cast<int64_t>(sample);
    delta.tokens = std::exchange(answer.held, {});
    const auto start = Clock::now();
    client_->OnDelta(delta);
    owner_->metrics_->AddSendSeconds(Seconds(start, Clock::now()));
  }
  void End(int64_t sample, const Completion& completion) {
    Answer& answer = answers_[sample];
    AnswerEnd end = {.sample = sample,
                     .finish = FinishOf(completion, answer.text),
                     .error = completion.error,
                     .tokens = answer.tokens,
                     .reasoning_tokens = answer.reasoning_tokens,
                     .prompt_tokens = static_cast<int64_t>(request_.request.prompt.size()),
                     .cached_tokens = completion.cached_tokens};
    if (end.finish != AnswerFinish::kFailed) Tell(sample, answer.text.Finish(), true);
    end.stop = std::string(answer.text.stop());
    const bool stopped = completion.finish == FinishReason::kStop;
    if (stopped && EndsAt(answer.last_token)) end.stop_token = answer.last_token;
    if (answer.text.calls() > 0 && end.finish == AnswerFinish::kStop) {
      end.finish = AnswerFinish::kCalls;
    }
    ends_.push_back(end);
    const bool last = --left_ == 0;
    if (last) Count();  // who asks for figures behind the answer finds it in them
    client_->OnEnd(end);
    if (!last) return;
    client_.reset();
    owner_->Forget(this);
  }
  static AnswerFinish FinishOf(const Completion& completion, const AnswerText& text) {
    switch (completion.finish) {
      case FinishReason::kLength:
        return text.stopped() ? AnswerFinish::kStop : AnswerFinish::kLength;
      case FinishReason::kStop:
      case FinishReason::kEnded:
        return AnswerFinish::kStop;
      case FinishReason::kCancelled:
        return AnswerFinish::kCancelled;
      default:
        return AnswerFinish::kFailed;
    }
  }
  static double Seconds(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }

  void Count() {
    const auto now = Clock::now();
    FinishedRequest finished = {.finish = NameOf(ends_[0].finish),
                                .prompt_tokens = ends_[0].prompt_tokens,
                                .cached_tokens = ends_[0].cached_tokens,
                                .seconds = Seconds(came_, now),
                                .started = has_started_,
                                .has_tokens = first_token_.has_value()};
    for (const AnswerEnd& end : ends_) finished.tokens += end.tokens;
    if (has_started_) finished.queue_seconds = Seconds(came_, started_);
    if (first_token_) finished.first_token_seconds = Seconds(came_, *first_token_);
    owner_->metrics_->AddFinished(finished);
    if (ends_[0].finish == AnswerFinish::kCancelled) {
      owner_->metrics_->AddCancelled(!has_started_  ? "queued"
                                     : first_token_ ? "writing"
                                                    : "reading");
    }
    Write(finished);
    if (owner_->options_.trace == nullptr) return;
    RequestTimes times = {.id = request_.id,
                          .came = came_,
                          .ended = now,
                          .started = {},
                          .first_token = first_token_,
                          .prompt_tokens = finished.prompt_tokens,
                          .cached_tokens = finished.cached_tokens,
                          .tokens = finished.tokens,
                          .finish = std::string(finished.finish)};
    if (has_started_) times.started = started_;
    owner_->options_.trace->AddRequest(times);
  }
  void Write(const FinishedRequest& finished) const {
    nlohmann::ordered_json facts = {{"id", request_.id},
                                    {"prompt_tokens", finished.prompt_tokens},
                                    {"cached_tokens", finished.cached_tokens},
                                    {"tokens", finished.tokens},
                                    {"samples", ends_.size()},
                                    {"queue_seconds", finished.queue_seconds},
                                    {"first_token_seconds", finished.first_token_seconds},
                                    {"seconds", finished.seconds},
                                    {"finish", finished.finish}};
    if (!ends_[0].error.ok()) facts["error"] = std::string(ends_[0].error.message());
    if (owner_->options_.log_prompts && owner_->model_->tokenizer) {
      facts["prompt"] =
          owner_->model_->tokenizer->Decode(request_.request.prompt, /*special=*/true);
    }
    owner_->log_->Add("request", facts);
  }

  Generations* owner_;
  Strand strand_;
  GenerationRequest request_;
  std::shared_ptr<GenerationClient> client_;
  std::vector<Answer> answers_;
  std::vector<StopWatch> watches_;  // by the thread of the engine
  std::vector<AnswerEnd> ends_;
  int64_t left_ = 0;
  const Clock::time_point came_ = Clock::now();
  // Written by the thread of the engine before it posts what reads them.
  Clock::time_point started_;
  bool has_started_ = false, told_waiting_ = false;
  std::optional<Clock::time_point> first_token_;
};

Generations::Generations(EngineThread* engine, Workers* workers, const ServedModel* model,
                         Metrics* metrics, Log* log, const GenerationsOptions& options)
    : engine_(engine),
      workers_(workers),
      model_(model),
      metrics_(metrics),
      log_(log),
      options_(options) {}

Generations::~Generations() {
  constexpr std::chrono::milliseconds kRound(50);
  do {
    CancelAll();
  } while (!WaitUntil(Clock::now() + kRound));
}

absl::Status Generations::Constrain(GenerationRequest& request) const {
  if (!request.grammar) return absl::OkStatus();
  if (!model_->trie)
    return absl::InvalidArgumentError("an answer of this model has no text to bind");
  Grammar::Ptr grammar = request.grammar;
  const AnswerReading& reading = request.reading;
  if (reading.format.reasoning != nullptr) {
    const std::string name = StrCat("behind reasoning ", reading.begins_in_reasoning, " ",
                                    reinterpret_cast<uintptr_t>(grammar.get()));
    const auto make = [&] {
      return BehindReasoning(request.grammar, *reading.format.reasoning,
                             reading.begins_in_reasoning);
    };
    PF_ASSIGN_OR_RETURN(grammar, model_->grammars->Find(name, make, request.grammar));
  }
  request.request.constraint = ConstraintOf(grammar, *model_, request.request.stop_tokens);
  return absl::OkStatus();
}

Sink Generations::MakeSink(const std::shared_ptr<Generation>& generation) {
  return {.on_start = [generation] { generation->OnStart(); },
          .on_token = [generation](const NewToken& token) { return generation->OnToken(token); },
          .on_done =
              [generation](int64_t sample, Completion completion) {
                generation->OnDone(sample, std::move(completion));
              }};
}

absl::StatusOr<std::shared_ptr<Generation>> Generations::Start(
    GenerationRequest request, std::shared_ptr<GenerationClient> client) {
  if (draining_) {
    return WithCode(absl::UnavailableError("the server is being shut down"), "draining");
  }
  PF_RETURN_IF_ERROR(Constrain(request));
  if (++waiting_ > options_.limits.waiting_requests) {
    --waiting_;
    return WithCode(
        absl::ResourceExhaustedError(StrCat("there are ", options_.limits.waiting_requests,
                                            " requests waiting, as many as may")),
        "queue_full");
  }
  Request wanted = request.request;
  const auto generation = std::make_shared<Generation>(this, std::move(request), std::move(client));
  {
    const std::lock_guard lock(mutex_);
    active_.emplace(generation.get(), generation);
  }
  auto id = engine_->Submit(std::move(wanted), MakeSink(generation));
  if (id.ok()) {
    const std::lock_guard lock(mutex_);
    generation->id = *id;
    return generation;
  }
  --waiting_;
  Forget(generation.get());
  // It is the request that is too large, not the server that is busy.
  const absl::Status error = id.status();
  return absl::IsResourceExhausted(error) ? WithHttp(error, 400) : error;
}

void Generations::Cancel(const std::shared_ptr<Generation>& generation) {
  RequestId id;
  {
    const std::lock_guard lock(mutex_);
    id = generation->id;
  }
  if (id >= 0) engine_->Cancel(id);
}

void Generations::Forget(const Generation* generation) {
  const std::lock_guard lock(mutex_);
  active_.erase(generation);
  if (active_.empty()) done_.notify_all();
}

bool Generations::WaitUntil(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return done_.wait_until(lock, deadline, [this] { return active_.empty(); });
}

void Generations::CancelAll() {
  std::vector<std::shared_ptr<Generation>> active;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, generation] : active_) active.push_back(generation);
  }
  for (const auto& generation : active) Cancel(generation);
}

int64_t Generations::active() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(active_.size());
}

}  // namespace pagefuse::serve
