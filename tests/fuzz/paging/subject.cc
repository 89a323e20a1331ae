// SPDX-License-Identifier: Apache-2.0
#include "subject.h"

#include <algorithm>
#include <filesystem>

#include "../decoders/decoder_feeds.h"
#include "../random.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kLargestFile = 4 << 20;

const Value* PresentOf(const Graph& graph, const std::string& past) {
  for (const auto& [from, to] : {std::pair{"past_key_values", "present"}, {"past", "present"}}) {
    const Value* output = graph.FindValue(absl::StrReplaceAll(past, {{from, to}}));
    if (output && output->is_output() && output->name() != past) return output;
  }
  return nullptr;
}

absl::Status AddRole(const Value& input, DecoderCase& decoder) {
  const std::string& name = input.name();
  const auto role = [&](FeedRole found) {
    decoder.feeds[name] = found;
    return absl::OkStatus();
  };
  const int rank = input.shape() ? input.shape()->rank() : -1;
  if (name == "input_ids" && rank == 2) return role(FeedRole::kIds);
  if (name == "attention_mask" && rank == 2) return role(FeedRole::kMask);
  if (name == "attention_mask" && rank == 4) return role(FeedRole::kMask4);
  if (name == "position_ids" && rank == 2) return role(FeedRole::kPositions);
  if (name == "token_type_ids" && rank == 2) return role(FeedRole::kTypes);
  const Value* present =
      absl::StartsWith(name, "past") && rank >= 3 ? PresentOf(*decoder.model.graph, name) : nullptr;
  if (!present)
    return absl::UnimplementedError(StrCat("input \"", name, "\" has no known meaning"));
  decoder.presents[name] = present->name();
  return role(FeedRole::kPast);
}

bool IsDecoder(const std::string& path) {
  const auto decoder = ReadDecoder(path);
  return decoder.ok() && std::ranges::any_of(decoder->feeds, [](const auto& feed) {
           return feed.second == FeedRole::kIds;
         });
}

}  // namespace

int64_t VocabularyOf(const DecoderCase& decoder) {
  const auto& shape = decoder.model.graph->FindValue(decoder.logits)->shape();
  if (!shape || shape->rank() == 0) return kVocabularySize;
  return std::max<int64_t>(shape->back(0).constant().value_or(kVocabularySize), 2);
}

absl::StatusOr<DecoderCase> ReadDecoder(const std::string& path) {
  PF_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  if (absl::StrContains(bytes.substr(0, 10'000), "# feed ")) return ParseDecoderCase(bytes);
  DecoderCase decoder;
  PF_ASSIGN_OR_RETURN(decoder.model, LoadModel(path));
  for (const Value* input : decoder.model.graph->inputs()) {
    if (input->initializer()) continue;
    PF_RETURN_IF_ERROR(AddRole(*input, decoder));
  }
  decoder.logits = "logits";
  const Value* logits = decoder.model.graph->FindValue("logits");
  if (logits && logits->is_output()) return decoder;
  return absl::UnimplementedError("no output is called \"logits\"");
}

Subject MakeSubject(const Plan& plan) {
  auto decoder = ParseDecoderCase(WriteDecoder(plan));
  PF_CHECK(decoder.ok());
  return {.name = plan.ToString(),
          .plan = plan,
          .decoder = *std::move(decoder),
          .vocabulary = kVocabularySize};
}

Subjects::Subjects(const std::vector<std::string>& paths) {
  const auto add = [this](const fs::path& path) {
    const std::string extension = path.extension().string();
    if (extension != ".onnx" && extension != ".onnxtxt") return;
    if (fs::file_size(path) <= kLargestFile && IsDecoder(path.string())) {
      files_.push_back(path.string());
    }
  };
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      add(path);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) add(entry.path());
    }
  }
  std::sort(files_.begin(), files_.end());
}

Subject Subjects::Pick(uint64_t seed, const std::string& family) const {
  Random random(seed);
  if (!files_.empty() && random.OneIn(3)) {
    const std::string& path = files_[random.Below(files_.size())];
    auto decoder = ReadDecoder(path);
    PF_CHECK(decoder.ok());
    Subject subject{
        .name = path, .plan = std::nullopt, .decoder = *std::move(decoder), .vocabulary = 0};
    subject.vocabulary = VocabularyOf(subject.decoder);
    return subject;
  }
  // What mixes tokens is refused, whatever is changed.
  const bool any = random.OneIn(10);
  Plan plan = Plan::Random(random.Next());
  while (!any && (plan.Has(Meaning::kMixes) || plan.Has(Meaning::kSizes))) {
    plan = Plan::Random(random.Next());
  }
  if (family == "pasts") plan = plan.With("cache", "past");
  if (family == "pasts" && plan.Is("layers", "1")) plan = plan.With("layers", "2");
  if (family == "attributes") {
    static constexpr const char* kOps[] = {"op4", "op4_float", "op3", "gqa", "gqa_rotary"};
    plan = plan.With("attention", kOps[random.Below(std::size(kOps))]);
  }
  return MakeSubject(plan);
}

}  // namespace pagefuse::fuzz
