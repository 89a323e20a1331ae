// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/indexed/attention_mask_ports.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

using Kind = IndexSymbol::Kind;

absl::Status NotVisible(const IndexExpr& condition, std::string_view why) {
  return MatchFailure("the mask's condition ", condition.Key(), " >= 0 ", why);
}

// The first tokens of sequences behind `owner`, which counts how many of them a token has passed:
// of the entries after the first, or of all, less one.
struct FirstTokens {
  Value* tensor = nullptr;
  IndexSymbolPtr token;
};
absl::StatusOr<FirstTokens> FirstTokensOf(const IndexExpr& owner) {
  const auto refuse = [&](std::string_view why) {
    return MatchFailure("a token's sequence ", owner.Key(), " is no count of first tokens: ", why);
  };
  const IndexSymbolPtr count = owner.terms().begin()->second.first;
  if (count->args.size() != 2) return refuse("it counts by more than one condition");
  const IndexSymbolPtr counted = count->args[0].symbol();
  FirstTokens first;
  IndexExpr place;
  for (const auto& [key, term] : count->args[1].terms()) {
    const IndexSymbolPtr& symbol = term.first;
    if (symbol->kind == Kind::kAxis && ProvablyEqual(term.second, Dim(1))) first.token = symbol;
    if (symbol->kind == Kind::kLoad && symbol->args.size() == 1 &&
        ProvablyEqual(term.second, Dim(-1))) {
      first.tensor = symbol->tensor;
      place = symbol->args[0];
    }
  }
  if (!first.token || !first.tensor || count->args[1].constant().constant() != 0) {
    return refuse("tokens are compared with something else");
  }
  // owner = count - 1 + the offset of the entries that were compared.
  const IndexExpr offset = place - IndexExpr::Of(counted);
  const IndexExpr rest = owner - IndexExpr::Of(count) - offset;
  if (rest.number() != -1) return refuse("it is off by some sequences");
  return first;
}

// Behind the last token of a ragged sequence.
IndexExpr EndOf(const PagedAxes& axes, const AttentionMaskPorts& visible) {
  return IndexExpr::Of(MakeLoad(visible.first_tokens, {axes.owner + IndexExpr(1)}));
}

// A bound of keys, and the condition that it was read of.
struct Bound {
  IndexExpr form, condition;
  bool outside_ranges = false;
};

class VisibleReader {
 public:
  VisibleReader(const AttentionMatch& match, const PagedAxes& axes) : match_(match), axes_(axes) {}

  absl::StatusOr<AttentionMaskPorts> Read() {
    if (axes_.ragged) PF_RETURN_IF_ERROR(ReadFirstTokens());
    if (!axes_.ragged && axes_.query && axes_.owner.number() == 0) FindOnlySequence();
    for (const IndexExpr& condition : match_.visible) {
      PF_RETURN_IF_ERROR(Sort(condition));
    }
    PF_RETURN_IF_ERROR(ReadUpper());
    if (ranges_) PF_RETURN_IF_ERROR(ReadRanges());
    for (const Bound& lower : lowers_) {
      PF_RETURN_IF_ERROR(ReadWindow(lower.form, lower.condition));
    }
    if (ahead_ && (keys_.causal_flags || keys_.window != *ahead_ + 1)) {
      return MatchFailure("rows see ", *ahead_, " keys ahead, and a window of ", keys_.window);
    }
    for (const auto& [chunk, condition] : chunks_) {
      PF_RETURN_IF_ERROR(ReadChunk(chunk, condition));
    }
    return keys_;
  }

 private:
  absl::Status ReadFirstTokens() {
    PF_ASSIGN_OR_RETURN(const FirstTokens first, FirstTokensOf(axes_.owner));
    if (axes_.sequence.size() != 1 || axes_.sequence[0]->key != first.token->key) {
      return MatchFailure("a token's sequence depends on more than the token");
    }
    keys_.first_tokens = first.tensor;
    keys_.token = first.token;
    return absl::OkStatus();
  }

  // A packed batch of one sequence reads where that ends, [0, end][1], to know a row's position.
  void FindOnlySequence() {
    for (const IndexExpr& condition : match_.visible) FindEnd(condition);
  }

  void FindEnd(const IndexExpr& form) {
    for (const auto& [key, term] : form.terms()) {
      const IndexSymbolPtr& symbol = term.first;
      const bool second =
          symbol->kind == Kind::kLoad && symbol->args.size() == 1 && symbol->args[0].number() == 1;
      if (second && (*symbol->tensor->shape())[0].constant() == 2) {
        keys_.first_tokens = symbol->tensor;
        keys_.token = axes_.query;
      }
      for (const IndexExpr& arg : symbol->args) FindEnd(arg);
    }
  }

  // upper - n >= 0, or n - lower >= 0; what always holds is dropped.
  absl::Status Sort(const IndexExpr& condition) {
    if (ProvablyNotNegative(condition.Lower())) return absl::OkStatus();
    if (const auto both = Halves(condition)) {
      PF_RETURN_IF_ERROR(Sort(both->first));
      return Sort(both->second);
    }
    if (const auto past = BehindFlag(condition)) {
      if (keys_.causal_flags) return NotVisible(condition, "is a second choice of causality");
      keys_.causal_flags = past->second;
      return Sort(past->first);
    }
    if (const auto elsewhere = OutsideRanges(condition)) {
      if (ranges_) return NotVisible(condition, "is a second choice of ranges");
      ranges_ = elsewhere->second;
      outside_ranges_ = true;
      const absl::Status sorted = Sort(elsewhere->first);
      outside_ranges_ = false;
      return sorted;
    }
    if (const IndexSymbolPtr chunk = ChunkOf(condition)) {
      (outside_ranges_ ? narrows_ : clamps_) = true;
      chunks_.emplace_back(chunk, condition);
      return absl::OkStatus();
    }
    const auto term = condition.terms().find(match_.n->key);
    if (term == condition.terms().end()) return NotVisible(condition, "does not compare keys");
    const IndexExpr n = IndexExpr::Of(match_.n);
    const std::optional<int64_t> sign = term->second.second.constant();
    if (sign == -1) {
      uppers_.push_back({condition + n, condition, outside_ranges_});
    } else if (sign == 1) {
      (outside_ranges_ ? narrows_ : clamps_) = true;
      lowers_.push_back({n - condition, condition, outside_ranges_});
    } else {
      return NotVisible(condition, "is no bound of keys");
    }
    return absl::OkStatus();
  }

  // x - max(a, b) >= 0 is both x - a >= 0 and x - b >= 0; so for the lesser of two.
  static std::optional<std::pair<IndexExpr, IndexExpr>> Halves(const IndexExpr& condition) {
    for (const auto& [key, term] : condition.terms()) {
      const IndexSymbolPtr& symbol = term.first;
      const int64_t sign = symbol->kind == Kind::kMin ? 1 : -1;
      const bool extreme = symbol->kind == Kind::kMin || symbol->kind == Kind::kMax;
      if (!extreme || term.second.constant() != sign) continue;
      const IndexExpr rest = condition - IndexExpr::Of(symbol).Times(term.second);
      return std::make_pair(rest + symbol->args[0].Times(term.second),
                            rest + symbol->args[1].Times(term.second));
    }
    return std::nullopt;
  }

  // x >= 0 wherever the flag of the sequence is set: max(x, -flag).
  std::optional<std::pair<IndexExpr, Value*>> BehindFlag(const IndexExpr& condition) const {
    const IndexSymbolPtr either = condition.symbol();
    if (!either || either->kind != Kind::kMax) return std::nullopt;
    for (int side : {0, 1}) {
      const IndexSymbolPtr flag = either->args[side].Times(Dim(-1)).symbol();
      const bool owned = flag && flag->kind == Kind::kLoad && flag->args.size() == 1 &&
                         flag->tensor->dtype() == DataType::kBool && keys_.first_tokens &&
                         flag->args[0].Key() == axes_.owner.Key();
      if (owned) return std::make_pair(either->args[1 - side], flag->tensor);
    }
    return std::nullopt;
  }

  // x >= 0 but where a range holds key and query: max(x, count of ranges - 1).
  static std::optional<std::pair<IndexExpr, IndexSymbolPtr>> OutsideRanges(
      const IndexExpr& condition) {
    const IndexSymbolPtr either = condition.symbol();
    if (!either || either->kind != Kind::kMax) return std::nullopt;
    for (int side : {0, 1}) {
      const IndexSymbolPtr count = (either->args[side] + IndexExpr(1)).symbol();
      if (!count || count->kind != Kind::kCount) continue;
      return std::make_pair(either->args[1 - side], count);
    }
    return std::nullopt;
  }

  // The ranges [sequence, range, 2] that are counted: lo < hi, lo <= p, n <= hi.
  absl::Status ReadRanges() {
    const auto counted = ranges_->args[0].symbol();
    const std::vector<IndexExpr> conditions(ranges_->args.begin() + 1, ranges_->args.end());
    for (const Bound& upper : uppers_) {
      const bool hides = Advances(upper.form) && !upper.outside_ranges;
      if (hides) return NotVisible(upper.condition, "hides keys of ranges");
    }
    if (keys_.causal_flags) {
      return MatchFailure("ranges beside a choice of causality");
    }
    if (clamps_ && narrows_) {
      return MatchFailure("one window outside of ranges, another within them too");
    }
    const IndexSymbolPtr entry = EntryOf(conditions);
    const auto& shape = entry ? entry->tensor->shape() : std::nullopt;
    const bool known =
        shape && (entry->args[1].Key() == counted->key || (*shape)[1].constant() == 1);
    if (!known) return NotVisible(IndexExpr::Of(ranges_), "counts no ranges [sequence, range, 2]");
    const IndexExpr& owner = entry->args[0];
    if (!IsSameCount(owner, axes_.owner)) {
      return NotVisible(owner, "is not the sequence whose ranges are counted");
    }
    const auto bound = [&](int64_t which) {
      return IndexExpr::Of(MakeLoad(entry->tensor, {owner, entry->args[1], IndexExpr(which)}));
    };
    const IndexExpr low = bound(0), high = bound(1), n = IndexExpr::Of(match_.n);
    const IndexExpr position = PositionWithin(owner);
    std::set<std::string> expected, found;
    for (const IndexExpr& form :
         {high - low - IndexExpr(1), position - low, high - position, n - low, high - n}) {
      expected.insert(form.Key());
    }
    for (const IndexExpr& form : conditions) found.insert(form.Key());
    if (found != expected) {
      return NotVisible(IndexExpr::Of(ranges_), "counts other ranges than those that hold both");
    }
    keys_.ranges = entry->tensor;
    keys_.ranges_clamped = clamps_;
    return absl::OkStatus();
  }

  // A row's position by another name of its sequence: within a count, axes have other names.
  IndexExpr PositionWithin(const IndexExpr& owner) const {
    PagedAxes axes = axes_;
    AttentionMaskPorts keys = keys_;
    axes.owner = owner;
    const IndexSymbolPtr length = keys.length.symbol();
    const bool owned = length && length->kind == Kind::kLoad && length->args.size() == 1 &&
                       length->args[0].Key() == axes_.owner.Key();
    if (owned) keys.length = IndexExpr::Of(MakeLoad(length->tensor, {owner}));
    return PositionOf(axes, keys);
  }

  // The same form, but for the name of the axis that it counts along.
  static bool IsSameCount(const IndexExpr& a, const IndexExpr& b) {
    if (a.Key() == b.Key()) return true;
    if (a.terms().size() != 1 || b.terms().size() != 1) return false;
    const auto& [count, factor] = a.terms().begin()->second;
    const auto& [other, other_factor] = b.terms().begin()->second;
    const bool counts = count->kind == Kind::kCount && other->kind == Kind::kCount &&
                        count->args.size() == 2 && other->args.size() == 2;
    return counts && factor == other_factor && a.constant() == b.constant() &&
           Renamed(count->args[1], count->args[0].symbol(), other->args[0].symbol()).Key() ==
               other->args[1].Key();
  }

  // An element of the tensor of rank 3 that conditions read.
  static IndexSymbolPtr EntryOf(const std::vector<IndexExpr>& conditions) {
    for (const IndexExpr& condition : conditions) {
      for (const auto& [key, term] : condition.terms()) {
        const IndexSymbolPtr& symbol = term.first;
        if (symbol->kind == Kind::kLoad && symbol->args.size() == 3) return symbol;
      }
    }
    return nullptr;
  }

  // n / size, if that is what is compared.
  IndexSymbolPtr ChunkOf(const IndexExpr& condition) const {
    for (const auto& [key, term] : condition.terms()) {
      const IndexSymbolPtr& symbol = term.first;
      if (symbol->kind == Kind::kDiv && symbol->args[0].Key() == match_.n->key) return symbol;
    }
    return nullptr;
  }

  // n / size - position / size + back >= 0
  absl::Status ReadChunk(const IndexSymbolPtr& chunk, const IndexExpr& condition) {
    const auto size = chunk->divisor.constant();
    const IndexExpr own = DivMod(PositionOf(axes_, keys_), chunk->divisor).first;
    const auto back = (condition - IndexExpr::Of(chunk) + own).number();
    if (!size || !back || *back < 0 || keys_.chunk != 0 || keys_.window != 0) {
      return NotVisible(condition, "is no chunk of the row's own position");
    }
    keys_.chunk = *size;
    keys_.chunks_before = *back;
    return absl::OkStatus();
  }

  // The axis along which queries of one sequence advance.
  IndexSymbolPtr Advance() const { return keys_.first_tokens ? keys_.token : axes_.query; }

  // The length that follows from the last key that a query sees: that of the sequence's last query.
  IndexExpr LengthOf(const IndexExpr& upper) const {
    if (keys_.first_tokens) return upper - IndexExpr::Of(keys_.token) + EndOf(axes_, keys_);
    if (!axes_.query) return upper + IndexExpr(1);
    return upper - IndexExpr::Of(axes_.query) + IndexExpr(axes_.query->extent);
  }

  bool Advances(const IndexExpr& upper) const {
    const IndexSymbolPtr axis = Advance();
    return axis && (upper.terms().contains(axis->key));
  }

  absl::Status ReadUpper() {
    std::optional<IndexExpr> length;
    bool causal = false;
    // What ends at the sequence's length says more than what ends at a position.
    std::stable_sort(uppers_.begin(), uppers_.end(), [this](const auto& a, const auto& b) {
      return Advances(a.form) < Advances(b.form);
    });
    for (const auto& [upper, condition, outside] : uppers_) {
      const bool advances = Advances(upper);
      if (advances && length) {
        const auto ahead = (LengthOf(upper) - *length).number();
        if (ahead && *ahead > 0) {
          ahead_ = ahead_ ? std::min(*ahead_, *ahead) : *ahead;
          continue;
        }
      }
      const IndexExpr here = advances || !Advance() ? LengthOf(upper) : upper + IndexExpr(1);
      if (length && length->Key() != here.Key()) {
        return NotVisible(condition, StrCat("gives another length than ", length->Key()));
      }
      if (Advance() && here.Mentions(Advance()->key) && !keys_.first_tokens) {
        return NotVisible(condition, "does not advance by one key a query");
      }
      length = here;
      causal = causal || advances;
    }
    keys_.length = length ? *length : IndexExpr(match_.n->extent);
    keys_.causal = causal || !Advance();
    if (keys_.causal) ahead_.reset();
    return absl::OkStatus();
  }

  // n - lower >= 0 with lower = position - window + 1.
  absl::Status ReadWindow(const IndexExpr& lower, const IndexExpr& condition) {
    if (!keys_.causal && !ahead_) return NotVisible(condition, "is a window without causality");
    if (keys_.causal_flags) return NotVisible(condition, "is a window of causal rows alone");
    const IndexExpr window = PositionOf(axes_, keys_) - lower + IndexExpr(1);
    const auto width = window.number();
    if (!width || *width < 1) {
      return NotVisible(condition, StrCat("is a window of ", window.Key(), " keys"));
    }
    keys_.window = keys_.window == 0 ? *width : std::min(keys_.window, *width);
    return absl::OkStatus();
  }

  const AttentionMatch& match_;
  const PagedAxes& axes_;
  AttentionMaskPorts keys_;
  std::optional<int64_t> ahead_;  // keys behind the own position that are seen
  IndexSymbolPtr ranges_;         // counted where they hold key and query
  bool outside_ranges_ = false;   // what is sorted now holds outside of them alone
  bool clamps_ = false;           // some window holds within them too
  bool narrows_ = false;          // some window holds outside of them alone
  std::vector<Bound> uppers_, lowers_;
  std::vector<std::pair<IndexSymbolPtr, IndexExpr>> chunks_;
};

}  // namespace

IndexExpr PositionOf(const PagedAxes& axes, const AttentionMaskPorts& visible) {
  if (visible.first_tokens)
    return visible.length - EndOf(axes, visible) + IndexExpr::Of(visible.token);
  if (!axes.query) return visible.length - IndexExpr(1);
  return visible.length - IndexExpr(axes.query->extent) + IndexExpr::Of(axes.query);
}

IndexExpr ContextOf(const PagedAxes& axes, const AttentionMaskPorts& visible) {
  if (visible.first_tokens) {
    const IndexExpr start = IndexExpr::Of(MakeLoad(visible.first_tokens, {axes.owner}));
    return visible.length - EndOf(axes, visible) + start;
  }
  return visible.length - IndexExpr(axes.query ? axes.query->extent : Dim(1));
}

absl::StatusOr<AttentionMaskPorts> AttentionMaskPortsOf(const AttentionMatch& match,
                                                        const PagedAxes& axes) {
  return VisibleReader(match, axes).Read();
}

}  // namespace pagefuse
