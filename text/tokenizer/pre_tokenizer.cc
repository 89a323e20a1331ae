// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/tokenizer/pre_tokenizer.h"

#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/text/tokenizer/byte_level.h"

namespace pagefuse {
namespace {

// GPT-2's words, which ByteLevel means by use_regex.
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A range of a text: matched, or what lies between matches.
struct Part {
  size_t first, end;
  bool match;
};

absl::StatusOr<std::vector<Part>> PartsOf(const TextPattern& pattern, std::string_view text,
                                          bool invert) {
  std::vector<Part> parts;
  size_t covered = 0;
  const auto add = [&](size_t first, size_t end, bool match) {
    if (first < end) parts.push_back({first, end, match != invert});
  };
  PF_RETURN_IF_ERROR(pattern.ForEachMatch(text, [&](size_t first, size_t end) {
    add(covered, first, false);
    add(first, end, true);
    covered = end;
  }));
  add(covered, text.size(), false);
  return parts;
}

// Joins each part with the one before it where `joins(previous, part)` holds.
template <typename Joins>
std::vector<Part> Joined(const std::vector<Part>& parts, const Joins& joins) {
  std::vector<Part> out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && joins(parts[i - 1], parts[i])) {
      out.back().end = parts[i].end;
    } else {
      out.push_back(parts[i]);
    }
  }
  return out;
}

}  // namespace

absl::Status PreTokenizer::ReadSplit(const JsonFields& part, Step& step) {
  static constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"Isolated", Behavior::kIsolated},
      {"Removed", Behavior::kRemoved},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  PF_ASSIGN_OR_RETURN(const JsonFields pattern, part.Object("pattern"));
  PF_ASSIGN_OR_RETURN(step.pattern, TextPattern::FromJson(pattern));
  PF_ASSIGN_OR_RETURN(step.invert, part.Flag("invert", false));
  PF_ASSIGN_OR_RETURN(const std::string behavior, part.Text("behavior"));
  for (const auto& [name, value] : kBehaviors) {
    if (behavior != name) continue;
    step.behavior = value;
    return absl::OkStatus();
  }
  return part.Wrong("behavior",
                    "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

absl::Status PreTokenizer::ReadByteLevel(const JsonFields& part, Step& step) {
  step.kind = Step::kByteLevel;
  PF_ASSIGN_OR_RETURN(const bool prefix, part.Flag("add_prefix_space", true));
  if (prefix) step.prefix = Prefix::kAlways;
  step.replacement.assign(1, ' ');
  PF_ASSIGN_OR_RETURN(step.splits, part.Flag("use_regex", true));
  if (!step.splits) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(step.pattern, TextPattern::Regex(kGpt2Words));
  return absl::OkStatus();
}

absl::Status PreTokenizer::ReadMetaspace(const JsonFields& part, Step& step) {
  step.kind = Step::kMetaspace;
  step.behavior = Behavior::kMergedWithNext;
  PF_ASSIGN_OR_RETURN(step.replacement, part.Text("replacement"));
  PF_ASSIGN_OR_RETURN(step.splits, part.Flag("split", true));
  step.pattern = TextPattern::String(step.replacement);
  PF_ASSIGN_OR_RETURN(const bool prefix, part.Flag("add_prefix_space", true));
  step.prefix = prefix ? Prefix::kAlways : Prefix::kNever;
  if (!part.Has("prepend_scheme")) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const std::string scheme, part.Text("prepend_scheme"));
  if (scheme == "never") step.prefix = Prefix::kNever;
  if (scheme == "first") step.prefix = Prefix::kFirst;
  if (scheme == "always") step.prefix = Prefix::kAlways;
  if (scheme == "never" || scheme == "first" || scheme == "always") return absl::OkStatus();
  return part.Wrong("prepend_scheme", "always, first or never");
}

absl::StatusOr<PreTokenizer::Step> PreTokenizer::ReadStep(const JsonFields& part) {
  PF_ASSIGN_OR_RETURN(const std::string type, part.Text("type"));
  Step step;
  if (type == "Split") {
    PF_RETURN_IF_ERROR(ReadSplit(part, step));
  } else if (type == "ByteLevel") {
    PF_RETURN_IF_ERROR(ReadByteLevel(part, step));
  } else if (type == "Metaspace") {
    PF_RETURN_IF_ERROR(ReadMetaspace(part, step));
  } else if (type == "Digits") {
    PF_ASSIGN_OR_RETURN(step.pattern, TextPattern::Regex(R"(\p{N})"));
    PF_ASSIGN_OR_RETURN(const bool single, part.Flag("individual_digits", false));
    step.behavior = single ? Behavior::kIsolated : Behavior::kContiguous;
  } else {
    return part.UnknownType("Sequence, Split, ByteLevel, Metaspace, Digits");
  }
  return step;
}

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const nlohmann::json& json) {
  PreTokenizer tokenizer;
  PF_ASSIGN_OR_RETURN(const auto parts, SequenceOf(json, "pre_tokenizer", "pretokenizers"));
  for (const JsonFields& part : parts) {
    PF_ASSIGN_OR_RETURN(tokenizer.steps_.emplace_back(), ReadStep(part));
  }
  return tokenizer;
}

absl::Status PreTokenizer::Prefixed(const Step& step, Word& word, size_t most) {
  if (step.kind == Step::kMetaspace) {
    static const auto& space = *new TextPattern(TextPattern::String(" "));
    PF_ASSIGN_OR_RETURN(word.text, space.ReplaceAll(word.text, step.replacement, most));
  }
  const bool wanted =
      step.prefix == Prefix::kAlways || (step.prefix == Prefix::kFirst && word.first);
  if (wanted && !word.text.starts_with(step.replacement)) {
    word.text.insert(0, step.replacement);
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::SplitWord(const Step& step, const Word& word, std::vector<Word>& out) {
  std::vector<Part> parts = {{0, word.text.size(), false}};
  if (step.splits) {
    PF_ASSIGN_OR_RETURN(parts, PartsOf(step.pattern, word.text, step.invert));
  }
  switch (step.behavior) {
    case Behavior::kIsolated:
      break;
    case Behavior::kRemoved:
      std::erase_if(parts, [](const Part& part) { return part.match; });
      break;
    case Behavior::kMergedWithPrevious:
      parts = Joined(parts, [](const Part& a, const Part& b) { return b.match && !a.match; });
      break;
    case Behavior::kMergedWithNext:
      parts = Joined(parts, [](const Part& a, const Part& b) { return a.match && !b.match; });
      break;
    case Behavior::kContiguous:
      parts = Joined(parts, [](const Part& a, const Part& b) { return a.match == b.match; });
      break;
  }
  for (const Part& part : parts) {
    const std::string_view text =
        std::string_view(word.text).substr(part.first, part.end - part.first);
    out.push_back({step.kind == Step::kByteLevel ? BytesAsCharacters(text) : std::string(text),
                   word.first && part.first == 0});
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::Apply(const Step& step, Growth& growth, std::vector<Word>& words) {
  std::vector<Word> next;
  size_t made = 0;
  for (Word& word : words) {
    if (step.kind != Step::kSplit) PF_RETURN_IF_ERROR(Prefixed(step, word, growth.most()));
    const size_t known = next.size();
    PF_RETURN_IF_ERROR(SplitWord(step, word, next));
    for (size_t i = known; i < next.size(); ++i) made += next[i].text.size();
    if (made > growth.most()) break;
  }
  words = std::move(next);
  return growth.Add(made, "it");
}

absl::StatusOr<std::vector<std::string>> PreTokenizer::Split(std::string_view piece,
                                                             bool first) const {
  std::vector<Word> words;
  words.push_back({std::string(piece), first});
  Growth growth(piece.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    PF_RETURN_IF_ERROR(AtPlace(StrCat("pre_tokenizer: step ", i), Apply(steps_[i], growth, words)));
  }
  std::vector<std::string> texts;
  for (Word& word : words) texts.push_back(std::move(word.text));
  return texts;
}

}  // namespace pagefuse
