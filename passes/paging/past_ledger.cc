// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/past_ledger.h"

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/paging/grouped_attention.h"

namespace pagefuse {
namespace {

constexpr int kLeastCacheRank = 3;

bool IsCache(const Value& input) {
  return input.shape() && input.shape()->rank() >= kLeastCacheRank;
}

}  // namespace

const Value* NamedPresentOf(const Graph& graph, const std::string& past) {
  for (const auto& [from, to] : {std::pair{"past_key_values", "present"},
                                 {"past_key_values", "present_key_values"},
                                 {"past", "present"}}) {
    const Value* output = graph.FindValue(absl::StrReplaceAll(past, {{from, to}}));
    if (output && output->is_output() && output->name() != past) return output;
  }
  return nullptr;
}

PastLedger::PastLedger(const Graph& graph) {
  for (const Value* input : graph.inputs()) {
    if (input->initializer() || !IsCache(*input)) continue;
    const Value* present = NamedPresentOf(graph, input->name());
    if (present || absl::StrContains(input->name(), "past")) unread_ = input->name();
    if (!present) continue;
    presents_[input->name()] = present->name();
    pasts_[present->name()] = input->name();
  }
}

absl::Status PastLedger::Note(const Node& attention, const PastUse& use) {
  if (with_past_.empty()) with_past_ = attention.Description();
  const auto [it, first] = taken_.try_emplace({use.past->name(), use.place},
                                              Taken{attention.Description(), use.role, use.fresh});
  if (first) return CheckPresent(attention, use);
  const Taken& taken = it->second;
  if (use.fresh && taken.fresh == use.fresh && taken.role == use.role) {
    return use.present ? CheckPresent(attention, use) : absl::OkStatus();
  }
  return Unfit(attention,
               StrCat("past \"", use.past->name(), "\"", use.place,
                      ": expected one reader in one role, got the past ", use.role,
                      " of this attention and the past ", taken.role, " of ", taken.attention));
}

void PastLedger::NoteNone(const Node& attention) {
  if (without_past_.empty()) without_past_ = attention.Description();
}

absl::Status PastLedger::CheckPresent(const Node& attention, const PastUse& use) {
  const auto unfit = [&](const std::string& expected) {
    const std::string got =
        use.present
            ? StrCat("\"", use.present->name(), "\"")
            : std::string("none that has its rows at the same places, and the new ones behind");
    return Unfit(attention, StrCat("present of the ", use.role, " of past \"", use.past->name(),
                                   "\"", use.place, ": expected ", expected, ", got ", got));
  };
  const auto named = presents_.find(use.past->name());
  if (named != presents_.end() && (!use.present || use.present->name() != named->second)) {
    return unfit(StrCat("\"", named->second, "\""));
  }
  if (!use.present && use.in_place) return absl::OkStatus();
  if (!use.present) return unfit("an output that the attention gives it back by");
  const auto other = pasts_.find(use.present->name());
  if (other != pasts_.end() && other->second != use.past->name()) {
    return unfit(StrCat("an output that is not called the present of \"", other->second, "\""));
  }
  const std::string &past = use.past->name(), &present = use.present->name();
  const auto with = present_of_.try_emplace(past, present).first;
  if (with->second != present)
    return unfit(StrCat("\"", with->second, "\", as of its other parts"));
  const auto of = past_of_.try_emplace(present, past).first;
  if (of->second == past) return absl::OkStatus();
  return unfit(StrCat("an output that is not the present of \"", of->second, "\" too"));
}

absl::Status PastLedger::Check() const {
  if (!with_past_.empty() && !without_past_.empty()) {
    return absl::FailedPreconditionError(
        StrCat(without_past_,
               ": attends to the tokens of one step, and has no past: expected one, "
               "as that of ",
               with_past_));
  }
  if (with_past_.empty() && !unread_.empty()) {
    return absl::FailedPreconditionError(
        StrCat("input \"", unread_, "\" is a past, and no attention reads it as one"));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
