// SPDX-License-Identifier: Apache-2.0
// Identifies the inputs of a decoder by what the graph does with them.
#include <algorithm>
#include <functional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/paging/grouped_attention.h"
#include "pagefuse/passes/paging/paged_inputs.h"

namespace pagefuse {
namespace {

bool IsIndexMatrix(const Value* value) {
  const bool counts = IsInteger(value->dtype()) || value->dtype() == DataType::kBool;
  return counts && value->shape() && value->shape()->rank() == 2;
}

bool IsView(const Node* node) {
  return IsAnyOf(*node, {"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand"});
}

// Arithmetic that may stand between positions and the angles they become.
bool LeadsToAngles(const Node* node) {
  return IsAnyOf(*node, {"Mul", "Div", "MatMul", "Einsum", "Transpose", "Concat", "Add"}) ||
         IsView(node) || node->Is("FusedMatMul", "com.microsoft");
}

// "input "x"", or by which op of the file it is counted where that has no such input.
std::string Described(const Value& input) {
  const auto counted_by = FindMetadata(input.metadata, kCountedBy);
  if (!counted_by) return StrCat("input \"", input.name(), "\"");
  return StrCat("what ", *counted_by, " counts as positions");
}

// What an input is read for, behind views and casts.
struct Reading {
  std::vector<const Value*> tables;  // constant matrices that it indexes by row
  const Value* of_angles = nullptr;  // likewise, whose rows queries and keys are rotated by
  bool angles = false;               // becomes cos and sin, or chooses rows of them
  bool counted = false;              // is summed along a row, as masks are
  bool only_summed = true;           // is read for the sum of a row alone
  bool computed_with = false;        // is more than an index of tables
  bool added = true;                 // the rows of tables are added to something alone
  bool more_than_sizes = false;
};

const Value* TableIndexedBy(const Use& use) {
  const Node* node = use.node;
  const bool gather = node->Is("Gather") || node->Is("GatherBlockQuantized", "com.microsoft");
  if (!gather || use.index != 1) return nullptr;
  const Value* table = node->input(0);
  return table->IsConstant() && table->initializer()->rank() == 2 ? table : nullptr;
}

bool IsAngleReader(const Use& use) {
  return use.node->Is("Cos") || use.node->Is("Sin") ||
         (use.node->Is("RotaryEmbedding") && use.index == 3) ||
         (use.node->Is("GroupQueryAttention", "com.microsoft") &&
          use.index == ports::GroupQueryAttention::kPositionIds) ||
         (use.node->Is("RotaryEmbedding", "com.microsoft") && use.index == 1);
}

// True if rows of a table are what queries and keys are rotated by.
bool AreAngles(const Value* rows, absl::flat_hash_set<const Value*>& seen) {
  if (!seen.insert(rows).second) return false;
  return std::ranges::any_of(rows->uses(), [&seen](const Use& use) {
    if (use.node->Is("RotaryEmbedding")) return use.index == 1 || use.index == 2;
    const bool moved =
        IsView(use.node) || IsAnyOf(*use.node, {"Slice", "Split", "Concat", "Transpose"});
    if (!moved) return false;
    const auto& outputs = use.node->outputs();
    return std::ranges::any_of(
        outputs, [&seen](const Value* output) { return output && AreAngles(output, seen); });
  });
}

// True if rows of a table are added to something and do nothing else.
bool AreAdded(const Value* rows) {
  return std::ranges::all_of(rows->uses(), [](const Use& use) {
    return use.node->Is("Add") || use.node->Is("Sum") ||
           (IsView(use.node) && AreAdded(use.node->output(0)));
  });
}

// Notes what a reader of the input does with it.
void NoteUse(const Use& use, bool only_views, Reading& reading) {
  reading.more_than_sizes = true;
  if (const Value* table = only_views ? TableIndexedBy(use) : nullptr) {
    absl::flat_hash_set<const Value*> seen;
    const bool rotates = AreAngles(use.node->output(0), seen);
    if (rotates) {
      reading.of_angles = table;
    } else {
      reading.tables.push_back(table);
    }
    reading.angles |= rotates;
    reading.added &= AreAdded(use.node->output(0));
  } else if (!only_views || !IsView(use.node)) {
    reading.computed_with = true;
  }
  reading.angles |= IsAngleReader(use);
  reading.counted |= only_views && (use.node->Is("CumSum") || use.node->Is("ReduceSum"));
  reading.only_summed &= !only_views || IsView(use.node) || use.node->Is("ReduceSum");
}

Reading ReadingOf(const Value* input) {
  Reading reading;
  absl::flat_hash_set<const Value*> seen = {input};
  std::vector<std::pair<const Value*, bool>> open = {{input, true}};  // value, views only so far
  while (!open.empty()) {
    const auto [value, only_views] = open.back();
    open.pop_back();
    for (const Use& use : value->uses()) {
      if (use.node->Is("Shape") || use.node->Is("Size")) continue;
      NoteUse(use, only_views, reading);
      if (!LeadsToAngles(use.node)) continue;
      for (const Value* output : use.node->outputs()) {
        if (!output || !seen.insert(output).second) continue;
        open.emplace_back(output, only_views && IsView(use.node));
      }
    }
  }
  return reading;
}

struct Candidate {
  Value* input = nullptr;
  Reading reading;
};

// The table is the matrix behind the logits too.
bool IsTied(const Candidate* candidate) {
  return std::ranges::any_of(candidate->reading.tables, [](const Value* table) {
    return std::ranges::any_of(table->uses(),
                               [](const Use& use) { return !use.node->Is("Gather"); });
  });
}

bool IndexesTheVocabulary(const Graph& graph, const Candidate& candidate) {
  for (const Value* output : graph.outputs()) {
    if (!output->shape() || output->shape()->empty()) continue;
    for (const Value* table : candidate.reading.tables) {
      const auto words = output->shape()->back(0).constant();
      if (words && *words == table->initializer()->dims()[0]) return true;
    }
  }
  return false;
}

bool IsNamed(const Value* input, std::string_view part) {
  return absl::StrContains(input->name(), AbslView(part));
}

// Keeps those that pass, if any does.
template <typename Test>
void Narrow(std::vector<const Candidate*>& candidates, Test passes) {
  std::vector<const Candidate*> kept;
  for (const Candidate* candidate : candidates) {
    if (passes(candidate)) kept.push_back(candidate);
  }
  if (!kept.empty()) candidates = std::move(kept);
}

constexpr std::string_view kIds = "input_ids", kPosition = "position", kTypes = "token_type",
                           kSegments = "segment";

absl::Status Doubt(const Value& first, const Value& second) {
  return absl::FailedPreconditionError(
      StrCat("inputs \"", first.name(), "\" and \"", second.name(), "\" may both be token ids"));
}

// Of the inputs that index tables, the one whose table holds the vocabulary: it has as many rows as
// logits have columns, or is the matrix behind the logits. Names decide between tables that are
// alike, and where ids index none as they are; nothing does where they say the contrary of tables.
absl::StatusOr<Value*> FindTokens(const Graph& graph, const std::vector<Candidate>& all) {
  std::vector<const Candidate*> candidates, called;
  for (const Candidate& candidate : all) {
    if (!candidate.reading.tables.empty()) candidates.push_back(&candidate);
    if (IsNamed(candidate.input, kIds)) called.push_back(&candidate);
  }
  const auto of_words = [&](const Candidate* c) { return IndexesTheVocabulary(graph, *c); };
  const auto is_called = [](const Candidate* c) { return IsNamed(c->input, kIds); };
  const auto is_place = [](const Candidate* c) { return IsNamed(c->input, kPosition); };
  const auto is_other = [&](const Candidate* c) {
    return is_place(c) || IsNamed(c->input, kTypes);
  };
  // All are called what they may be.
  const auto ids = std::ranges::find_if(candidates, is_called);
  const bool well = ids != candidates.end() && std::ranges::all_of(candidates, [&](const auto* c) {
                      return c == *ids || (is_other(c) && !IsTied(c));
                    });
  if (well) return (*ids)->input;
  Narrow(candidates, of_words);
  Narrow(candidates, IsTied);
  if (candidates.size() == 1 && IsTied(candidates[0])) return candidates[0]->input;
  Narrow(candidates, is_called);
  const bool places = std::ranges::all_of(candidates, is_place);
  if (!called.empty() && !(candidates.size() == 1 && is_called(candidates[0]))) {
    // Ids may be computed with, beside positions that index a table.
    const bool computed = called.size() == 1 && called[0]->reading.more_than_sizes && places;
    if (computed && std::ranges::none_of(candidates, of_words)) return called[0]->input;
    return candidates.empty() ? Doubt(*called[0]->input, *called.back()->input)
                              : Doubt(*candidates[0]->input, *called[0]->input);
  }
  Narrow(candidates, std::not_fn(is_place));
  if (candidates.size() > 1) return Doubt(*candidates[0]->input, *candidates[1]->input);
  if (candidates.size() == 1 && (!places || of_words(candidates[0]))) return candidates[0]->input;
  return absl::FailedPreconditionError("no input indexes an embedding table");
}

absl::Status CheckSizes(const DecoderInputs& found) {
  if (auto batch = found.batch.constant(); batch && *batch != 1) {
    return absl::FailedPreconditionError(StrCat("the batch of \"", found.tokens->name(),
                                                "\" is fixed to ", *batch,
                                                "; packed tokens are a batch of one"));
  }
  if (ProvablyEqual(found.batch, found.sequence)) {
    return absl::FailedPreconditionError(
        StrCat("\"", found.tokens->name(), "\" is declared with as many sequences as tokens, ",
               found.batch.ToString(), ": its axes cannot be told apart"));
  }
  if (auto length = found.sequence.constant()) {
    return absl::FailedPreconditionError(StrCat("the length of \"", found.tokens->name(),
                                                "\" is fixed to ", *length,
                                                "; a step has any number of tokens"));
  }
  return absl::OkStatus();
}

// True if the graph turns something into angles: positions are known without a table of them.
bool HasAngles(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const auto& node) {
    return node->Is("Cos") || node->Is("Sin") || node->Is("RotaryEmbedding");
  });
}

// Token types choose rows of a table that are added, and are nothing else: what is computed with may be positions
// under any name, and so may what chooses among many rows of a graph without other positions.
bool AreSegments(const Graph& graph, const Value* input, const Reading& reading) {
  constexpr int64_t kMostTypes = 16;
  const bool named = IsNamed(input, kTypes) || IsNamed(input, kSegments);
  if (!named || reading.tables.empty() || reading.computed_with || !reading.added) return false;
  return HasAngles(graph) || std::ranges::all_of(reading.tables, [](const Value* table) {
           return table->initializer()->dims()[0] <= kMostTypes;
         });
}

// What is counted is a mask only if it is called one, or nothing else is done with it: ids may be
// counted too.
bool IsCountedMask(const Candidate& candidate) {
  const Reading& reading = candidate.reading;
  const bool called = IsNamed(candidate.input, "mask") || IsNamed(candidate.input, "padding");
  const bool summed = reading.only_summed && !IsNamed(candidate.input, kIds);
  return (called || summed) && reading.counted && reading.tables.empty() && !reading.of_angles;
}

absl::Status Assign(const Graph& graph, const Candidate& candidate, DecoderInputs& found) {
  Value* input = candidate.input;
  const Reading& reading = candidate.reading;
  const bool of_tokens = ProvablyEqual((*input->shape())[1], found.sequence);
  const bool placed = reading.angles || (!reading.tables.empty() && IsNamed(input, kPosition));
  if (!reading.more_than_sizes) {
    found.unread.push_back(input);
  } else if (of_tokens && placed && !IsNamed(input, kIds)) {
    if (found.positions) {
      return absl::FailedPreconditionError(StrCat(Described(*found.positions), " and ",
                                                  Described(*input), " may both be positions"));
    }
    found.positions = input;
  } else if (of_tokens && AreSegments(graph, input, reading)) {
    found.segments.push_back(input);
  } else if (!found.padding && IsCountedMask(candidate)) {
    found.padding = input;
  } else {
    // Of an input that lowering an op added, and of the nodes that read it, the file knows nothing.
    const bool added = FindMetadata(input->metadata, kCountedBy).has_value();
    return absl::FailedPreconditionError(
        StrCat(Described(*input), " is neither token ids, positions, mask nor past",
               added ? std::string(": it rotates by no constant table")
                     : StrCat(": ", input->uses().front().node->Description(), " reads it")));
  }
  return absl::OkStatus();
}

// What hides keys and has a value for each new token, where keys are those of a past too, is a mask
// only if it is called one: exporters name sizes carelessly, but not that.
absl::Status CheckPadding(const DecoderInputs& found) {
  const Value* padding = found.padding;
  if (!padding || found.pasts.empty() || !padding->shape() || padding->shape()->rank() != 2 ||
      IsNamed(padding, "mask") || IsNamed(padding, "padding") ||
      !ProvablyEqual((*padding->shape())[1], found.sequence)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(StrCat(
      "input \"", padding->name(), "\" hides keys, as a mask does: expected a value for each ",
      "key, those of the past among them, got ", padding->shape()->ToString()));
}

}  // namespace

bool MayBeMask(const Value& input) {
  return !IsNamed(&input, kIds) && !IsNamed(&input, kPosition) && !IsNamed(&input, kTypes) &&
         !IsNamed(&input, kSegments);
}

absl::StatusOr<DecoderInputs> FindDecoderInputs(const Graph& graph,
                                                const std::vector<Value*>& pasts, Value* padding) {
  DecoderInputs found;
  found.pasts = pasts;
  if (padding && !MayBeMask(*padding)) {
    return absl::FailedPreconditionError(
        StrCat("input \"", padding->name(),
               "\" hides keys, as a mask does: expected a name that does not say otherwise"));
  }
  found.padding = padding;
  std::vector<Candidate> candidates;
  for (Value* input : graph.inputs()) {
    if (input == padding || std::ranges::count(pasts, input) > 0) continue;
    if (input->initializer()) continue;
    Candidate candidate{.input = input, .reading = ReadingOf(input)};
    if (!IsIndexMatrix(input)) {
      if (!candidate.reading.more_than_sizes && input->shape()) {
        found.unread.push_back(input);
        continue;
      }
      return absl::FailedPreconditionError(
          StrCat("input \"", input->name(), "\" is neither token ids, positions, mask nor past"));
    }
    candidates.push_back(std::move(candidate));
  }
  PF_ASSIGN_OR_RETURN(found.tokens, FindTokens(graph, candidates));
  found.batch = (*found.tokens->shape())[0];
  found.sequence = (*found.tokens->shape())[1];
  PF_RETURN_IF_ERROR(CheckSizes(found));
  PF_RETURN_IF_ERROR(CheckPadding(found));
  for (const Candidate& candidate : candidates) {
    if (candidate.input != found.tokens) PF_RETURN_IF_ERROR(Assign(graph, candidate, found));
  }
  return found;
}

}  // namespace pagefuse
