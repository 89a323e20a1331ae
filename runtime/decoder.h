// SPDX-License-Identifier: Apache-2.0
// A decoder that runs in the best way its graph allows: paged with continuous batching, or else as
// it was exported.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/plain_decoder.h"
#include "pagefuse/runtime/plain_queue.h"
#include "pagefuse/runtime/rewrite_check.h"

namespace pagefuse {

struct DecoderOptions {
  // A graph that cannot be paged, or whose logits are others when it is, is an error.
  bool require_paged = false;
  CheckPaging check_paging = CheckPaging::kOnce;
  // That the check may take (RewriteCheckOptions::seconds), or 15 % of loading if that is more.
  double check_seconds = RewriteCheckOptions{}.seconds;
  // Folder of what was found; empty: that of the user (VerdictFolder).
  std::string verdicts = {};
};

// Not thread-safe, but for Submit and Cancel.
class Decoder {
 public:
  // A graph that cannot be paged runs as a PlainDecoder, unless that is required, or options of the
  // paged cache are set: then FailedPrecondition says why, as it does where neither can run. So it
  // is for a graph whose logits change when it is paged; where leaving out a rule or two mends
  // them, it runs without.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(
      const std::function<absl::StatusOr<Model>()>& load, const EngineOptions& options,
      const DecoderOptions& how = {});

  // Null where it is not paged.
  const Engine* engine() const { return engine_.get(); }
  // Null where it is.
  const PlainDecoder* plain() const { return plain_.get(); }
  // Why the graph could not be paged: node and condition.
  const std::string& why_not_paged() const { return why_not_paged_; }
  // What the comparison with the graph as it was exported gave; nullopt if there was none.
  const std::optional<RewriteVerdict>& verdict() const { return verdict_; }

  const Session& session() const { return engine_ ? engine_->session() : plain_->session(); }
  EngineStats stats() const { return engine_ ? engine_->stats() : plain_->stats(); }
  // Engine::capacity; a graph that is not paged has no cache to fill.
  std::optional<int64_t> capacity() const { return engine_ ? engine_->capacity() : std::nullopt; }
  int64_t vocabulary() const { return engine_ ? engine_->vocabulary() : plain_->vocabulary(); }

  // What is said of a request that is longer than the paged graph runs (Engine::max_tokens), or has a
  // token that it does not run (Engine::Runs), and so runs as the graph was exported; empty for others.
  std::string WhyAsExported(const Request& request) const;

  // Engine::Generate and Engine::WarmUp; a graph that is not paged has nothing to warm up. Requests
  // that the paged graph does not run are generated as it was exported, behind the others, and so is
  // what follows a new token that it does not run; they are refused, and this is FailedPrecondition,
  // where pages or options of them are asked for.
  absl::StatusOr<std::vector<Completion>> Generate(const std::vector<Request>& requests,
                                                   const OnToken& on_token = nullptr);
  absl::Status WarmUp(const std::vector<Request>& requests);

  // As those of Engine; a graph that is not paged runs one request a step, to its end. Requests that the
  // paged graph does not run are FailedPrecondition (WhyAsExported), and what followed a new token that
  // it does not run ends there. Not to be mixed with Generate.
  absl::StatusOr<RequestId> Submit(Request request, Sink sink);
  void Cancel(RequestId id);
  StepReport Step();
  // Engine::ForgetTexts.
  void ForgetTexts();
  // Reads answers of earlier calls, as a next turn will (EngineOptions::rereads), until none is left or
  // `goes_on` says no between two steps. For a time in which nobody waits; no other call may run.
  void Reread(const std::function<bool()>& goes_on);

 private:
  Decoder() = default;
  static absl::StatusOr<Runnable> MakeChecked(const Model& exported, const EngineOptions& options,
                                              const DecoderOptions& how,
                                              std::optional<RewriteVerdict>& verdict);
  bool IsBeyond(const Request& request) const;
  // A token of the request that the paged graph does not run.
  std::optional<int64_t> BarredIn(const Request& request) const;
  // Whether it ended at such a token, and goes on as the graph was exported.
  bool GoesOn(const Completion& completion) const;
  absl::Status GoOn(const Request& request, int64_t sample, Completion& completion, size_t place,
                    const OnToken& on_token);
  absl::StatusOr<std::vector<Completion>> GeneratePaged(const std::vector<Request>& requests,
                                                        const OnToken& on_token);
  absl::StatusOr<std::vector<Completion>> GenerateBeyond(const std::vector<Request>& requests,
                                                         const OnToken& on_token);

  // As the graph was exported, for requests that it does not run paged.
  struct Beyond {
    Model exported;
    EngineOptions options;
    std::unique_ptr<PlainDecoder> decoder;  // made when the first of them comes
  };

  std::unique_ptr<Engine> engine_;
  std::optional<Beyond> beyond_;
  std::unique_ptr<PlainDecoder> plain_;
  std::unique_ptr<PlainQueue> queue_;  // of plain_
  std::string why_not_paged_;
  std::optional<RewriteVerdict> verdict_;
};

}  // namespace pagefuse
