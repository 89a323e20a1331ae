// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/batch.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "pagefuse/base/progress.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

constexpr int kGoodStatus = 200;
constexpr std::chrono::milliseconds kBatchRound(50);  // between two looks at `stops`

struct BatchReplied {
  int status = 0;
  std::string request_id, ignored;
  std::string line = {};
};

// Tells of a whole reply; of none, if it ends without one.
class BatchReply final : public HttpReply {
 public:
  using Done = std::function<void(int status, const Headers& headers, std::string_view body)>;
  explicit BatchReply(Done done) : done_(std::move(done)) {}
  ~BatchReply() override {
    Tell(500, {}, R"({"error":{"message":"no answer was given","type":"server_error"}})");
  }
  BatchReply(const BatchReply&) = delete;
  BatchReply& operator=(const BatchReply&) = delete;

  void Send(int status, Headers headers, std::string body) override { Tell(status, headers, body); }
  // Streams are refused before they begin.
  void Begin(int /*status*/, Headers /*headers*/, std::string /*ping*/) override {}
  void Write(std::string /*piece*/) override {}
  void End() override {}
  // Who waits for a line does not leave.
  void OnGone(std::function<void()> /*gone*/) override {}

 private:
  void Tell(int status, const Headers& headers, std::string_view body) {
    if (const Done done = std::exchange(done_, nullptr)) done(status, headers, body);
  }
  Done done_;
};

std::string HeaderOf(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return "";
}

class BatchRun {
 public:
  BatchRun(Service& service, BatchInput& input, BatchOutput& output, const BatchOptions& options)
      : service_(service),
        input_(input),
        output_(output),
        options_(options),
        progress_("batch", options.to_run, "lines") {}

  absl::StatusOr<BatchResult> Run() {
    const absl::Status status = RunLines();
    // Also after a failure: replies come until all have ended.
    if (!status.ok()) Stop();
    while (in_flight_ > 0) {
      service_.generations().CancelAll();
      (void)WriteReplies();
    }
    PF_RETURN_IF_ERROR(status);
    PF_RETURN_IF_ERROR(output_.Sync());
    return std::move(result_);
  }

 private:
  absl::Status RunLines() {
    bool more = true;
    while (more || in_flight_ > 0) {
      if (options_.stops && options_.stops()) {
        Stop();
        return absl::OkStatus();
      }
      while (more && in_flight_ < options_.in_flight) {
        PF_ASSIGN_OR_RETURN(more, TakeLine());
      }
      if (in_flight_ > 0) PF_RETURN_IF_ERROR(WriteReplies());
    }
    return absl::OkStatus();
  }
  void Stop() {
    result_.stopped = true;
    service_.generations().Drain();
  }

  // False at the end of the input.
  absl::StatusOr<bool> TakeLine() {
    PF_ASSIGN_OR_RETURN(std::optional<BatchLine> line, input_.Next());
    if (!line) return false;
    if (output_.Has(*line)) return true;
    if (line->error) {
      PF_RETURN_IF_ERROR(Write(BatchErrorLine(*line), /*good=*/false));
    } else {
      Start(*std::move(line));
    }
    return true;
  }
  void Start(BatchLine line) {
    ++in_flight_;
    const Route& route = *line.route;
    HttpRequest request = std::move(line.request);
    // By a worker.
    const auto done = [this, line = std::move(line)](int status, const Headers& headers,
                                                     std::string_view body) {
      BatchReplied replied = {.status = status,
                              .request_id = HeaderOf(headers, "X-Request-Id"),
                              .ignored = HeaderOf(headers, "Pagefuse-Ignored")};
      if (replied.request_id.empty()) replied.request_id = NewId("req_");
      replied.line = BatchAnswerLine(line, status, replied.request_id, body);
      const std::lock_guard lock(mutex_);
      replied_.push_back(std::move(replied));
      came_.notify_one();
    };
    service_.Answer(route, std::move(request), std::make_shared<BatchReply>(done));
  }

  // Waits for replies, not for long, and writes what there is.
  absl::Status WriteReplies() {
    std::vector<BatchReplied> replied;
    {
      std::unique_lock lock(mutex_);
      came_.wait_for(lock, kBatchRound, [this] { return !replied_.empty(); });
      replied.swap(replied_);
    }
    in_flight_ -= static_cast<int64_t>(replied.size());
    for (const BatchReplied& one : replied) {
      const bool good = one.status == kGoodStatus;
      // What was cut short is asked again by a later run.
      if (result_.stopped && !good) continue;
      if (!one.ignored.empty()) result_.ignored.insert(one.ignored);
      PF_RETURN_IF_ERROR(Write(one.line, good));
    }
    return absl::OkStatus();
  }
  absl::Status Write(std::string_view line, bool good) {
    PF_RETURN_IF_ERROR(output_.Write(line));
    ++(good ? result_.answered : result_.failed);
    progress_.Reach(result_.answered + result_.failed);
    return absl::OkStatus();
  }

  Service& service_;
  BatchInput& input_;
  BatchOutput& output_;
  const BatchOptions& options_;
  ProgressStage progress_;
  BatchResult result_;
  int64_t in_flight_ = 0;  // whose reply was not written
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<BatchReplied> replied_;
};

}  // namespace

absl::StatusOr<BatchResult> RunBatch(Service& service, BatchInput& input, BatchOutput& output,
                                     const BatchOptions& options) {
  return BatchRun(service, input, output, options).Run();
}

}  // namespace pagefuse::serve
