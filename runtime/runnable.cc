// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/runnable.h"

#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// Runs the texts of a probe over a paged cache, all of them in each step.
class PagedProbe {
 public:
  PagedProbe(PagedModel& model, const Probe& probe) : model_(model), probe_(probe) {}

  absl::StatusOr<std::vector<LogitRows>> Run() {
    std::vector<int64_t> lengths;
    size_t most_following = 0;
    for (const ProbeText& text : probe_.texts) {
      lengths.push_back(static_cast<int64_t>(text.prompt.size() + text.following.size()));
      most_following = std::max(most_following, text.following.size());
      step_tokens_ += static_cast<int64_t>(text.prompt.size());
    }
    PF_RETURN_IF_ERROR(model_.Reserve(lengths, step_tokens_));
    for (size_t i = 0; i < probe_.texts.size(); ++i) {
      sequences_.push_back(model_.cache().AddSequence());
    }
    rows_.resize(probe_.texts.size());
    PF_RETURN_IF_ERROR(RunPrompts());
    for (size_t i = 0; i < most_following; ++i) PF_RETURN_IF_ERROR(RunFollowing(i));
    PF_RETURN_IF_ERROR(model_.Reserve({}, 0));
    return std::move(rows_);
  }

 private:
  struct Part {
    size_t text;
    std::vector<int64_t> ids;
    bool ends;  // its logits are wanted, as the engine asks for them
  };

  absl::Status Step(const std::vector<Part>& parts) {
    std::vector<StepEntry> entries;
    std::vector<int64_t> ids, shifts;
    for (const Part& part : parts) {
      entries.push_back({sequences_[part.text], static_cast<int64_t>(part.ids.size()), part.ends});
      ids.insert(ids.end(), part.ids.begin(), part.ids.end());
      shifts.resize(ids.size(), probe_.texts[part.text].first_position);
    }
    PF_ASSIGN_OR_RETURN(StepMetadata step, model_.cache().Append(entries));
    for (size_t i = 0; i < shifts.size(); ++i) step.positions[i] += shifts[i];
    PF_ASSIGN_OR_RETURN(const Tensor logits, model_.Run(ids, step));
    size_t row = 0;
    for (const Part& part : parts) {
      if (part.ends) Take(logits, row++, part.text);
    }
    return absl::OkStatus();
  }

  // In pieces, as long as a prompt has some left.
  absl::Status RunPrompts() {
    const int64_t piece = probe_.piece > 0 ? probe_.piece : step_tokens_;
    for (int64_t first = 0; first < step_tokens_; first += piece) {
      std::vector<Part> step;
      for (size_t i = 0; i < probe_.texts.size(); ++i) {
        const std::vector<int64_t>& prompt = probe_.texts[i].prompt;
        const auto size = static_cast<int64_t>(prompt.size());
        if (first >= size) continue;
        const int64_t end = std::min(first + piece, size);
        step.push_back({i, {prompt.begin() + first, prompt.begin() + end}, end == size});
      }
      if (step.empty()) break;
      PF_RETURN_IF_ERROR(Step(step));
    }
    return absl::OkStatus();
  }

  absl::Status RunFollowing(size_t place) {
    std::vector<Part> step;
    for (size_t i = 0; i < probe_.texts.size(); ++i) {
      const std::vector<int64_t>& following = probe_.texts[i].following;
      if (place >= following.size()) continue;
      step.push_back({i, {following[place]}, true});
    }
    return Step(step);
  }

  void Take(const Tensor& logits, size_t row, size_t text) {
    const auto width = static_cast<size_t>(logits.dims().back());
    const auto values = logits.values<float>().subspan(row * width, width);
    rows_[text].emplace_back(values.begin(), values.end());
  }

  PagedModel& model_;
  const Probe& probe_;
  int64_t step_tokens_ = 0;
  std::vector<SequenceId> sequences_;
  std::vector<LogitRows> rows_;
};

}  // namespace

PagedModelOptions PagedOptions(const EngineOptions& options) {
  return {.session = options.session,
          .kv_cache = options.kv_cache,
          .block_size = options.block_size,
          .device = options.device};
}

bool AsksForPages(const EngineOptions& options) {
  const auto set = [&](const char* option) {
    return options.session.pipeline.options.contains(option);
  };
  return options.kv_cache || options.block_size || std::ranges::any_of(kCacheOptions, set);
}

namespace {

// Whether an error may be of the graph alone. What is wrong with other options, the decoder that runs
// as it was exported finds again; further rules may be wrong about paged graphs alone.
bool MayBeOfTheGraph(const absl::Status& status, const EngineOptions& options) {
  return absl::IsFailedPrecondition(status) ||
         (absl::IsInvalidArgument(status) && options.session.pipeline.rules.empty());
}

}  // namespace

absl::StatusOr<Runnable> MakeRunnable(const Model& exported, const EngineOptions& options,
                                      bool require_paged) {
  Runnable runnable;
  auto paged = PagedModel::Create(exported.Clone(), PagedOptions(options));
  if (paged.ok()) {
    runnable.paged = *std::move(paged);
    return runnable;
  }
  if (require_paged || AsksForPages(options) || !MayBeOfTheGraph(paged.status(), options)) {
    return paged.status();
  }
  runnable.why_not_paged = std::string(paged.status().message());
  auto plain = PlainDecoder::Create(exported.Clone(), options);
  if (plain.status() == paged.status()) return plain.status();
  if (!plain.ok()) {
    return absl::Status(plain.status().code(),
                        StrCat("not paged: ", runnable.why_not_paged,
                               "; and as it was exported: ", StdView(plain.status().message())));
  }
  runnable.plain = *std::move(plain);
  return runnable;
}

absl::StatusOr<std::vector<LogitRows>> ProbeLogits(Runnable& runnable, const Probe& probe) {
  if (runnable.paged) return PagedProbe(*runnable.paged, probe).Run();
  std::vector<LogitRows> rows;
  for (const ProbeText& text : probe.texts) {
    PF_ASSIGN_OR_RETURN(rows.emplace_back(),
                        runnable.plain->Logits(text.prompt, text.following, text.first_position));
  }
  return rows;
}

}  // namespace pagefuse
