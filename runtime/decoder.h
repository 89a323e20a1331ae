// A decoder that runs in the best way its graph allows: paged with continuous batching, or else as
// it was exported.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/plain_decoder.h"

namespace pagefuse {

// Not thread-safe.
class Decoder {
 public:
  // Takes the model from `load`, a second time if its graph cannot be paged. A graph that cannot
  // runs as a PlainDecoder, unless `require_paged`, or options of the paged cache are set: then
  // FailedPrecondition says why, as it does where neither can run.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(
      const std::function<absl::StatusOr<Model>()>& load, const EngineOptions& options,
      bool require_paged = false);

  // Null where it is not paged.
  const Engine* engine() const { return engine_.get(); }
  // Null where it is.
  const PlainDecoder* plain() const { return plain_.get(); }
  // Why the graph could not be paged: node and condition.
  const std::string& why_not_paged() const { return why_not_paged_; }

  const Session& session() const { return engine_ ? engine_->session() : plain_->session(); }
  EngineStats stats() const { return engine_ ? engine_->stats() : plain_->stats(); }
  int64_t vocabulary() const { return engine_ ? engine_->vocabulary() : plain_->vocabulary(); }

  // Engine::Generate and Engine::WarmUp; a graph that is not paged has nothing to warm up.
  absl::StatusOr<std::vector<Completion>> Generate(const std::vector<Request>& requests,
                                                   const OnToken& on_token = nullptr);
  // Engine::Continue; a graph that is not paged computes the whole prompt.
  absl::StatusOr<Completion> Continue(const Request& request, int64_t room,
                                      const OnToken& on_token = nullptr);
  absl::Status WarmUp(const std::vector<Request>& requests);

 private:
  Decoder() = default;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<PlainDecoder> plain_;
  std::string why_not_paged_;
};

}  // namespace pagefuse
