#include "pagefuse/passes/fuse/visible_keys.h"

#include <algorithm>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"

namespace pagefuse {
namespace {

using Kind = IndexAtom::Kind;

absl::Status NotVisible(const IndexForm& condition, std::string_view why) {
  return absl::FailedPreconditionError(
      StrCat("the mask's condition ", condition.Key(), " >= 0 ", why));
}

// The first tokens of sequences behind `owner`, which counts how many of them a token has passed:
// of the entries after the first, or of all, less one.
struct FirstTokens {
  Value* tensor = nullptr;
  AtomPtr token;
};
absl::StatusOr<FirstTokens> FirstTokensOf(const IndexForm& owner) {
  const auto refuse = [&](std::string_view why) {
    return absl::FailedPreconditionError(
        StrCat("a token's sequence ", owner.Key(), " is no count of first tokens: ", why));
  };
  const AtomPtr count = owner.terms().begin()->second.first;
  if (count->args.size() != 2) return refuse("it counts by more than one condition");
  const AtomPtr counted = count->args[0].atom();
  FirstTokens first;
  IndexForm place;
  for (const auto& [key, term] : count->args[1].terms()) {
    const AtomPtr& atom = term.first;
    if (atom->kind == Kind::kAxis && ProvablyEqual(term.second, Dim(1))) first.token = atom;
    if (atom->kind == Kind::kLoad && atom->args.size() == 1 &&
        ProvablyEqual(term.second, Dim(-1))) {
      first.tensor = atom->tensor;
      place = atom->args[0];
    }
  }
  if (!first.token || !first.tensor || count->args[1].constant().constant() != 0) {
    return refuse("tokens are compared with something else");
  }
  // owner = count - 1 + the offset of the entries that were compared.
  const IndexForm offset = place - IndexForm::Of(counted);
  const IndexForm rest = owner - IndexForm::Of(count) - offset;
  if (rest.number() != -1) return refuse("it is off by some sequences");
  return first;
}

class VisibleReader {
 public:
  VisibleReader(const AttentionSite& site, const PagedAxes& axes) : site_(site), axes_(axes) {}

  absl::StatusOr<VisibleKeys> Read() {
    if (axes_.ragged) PF_RETURN_IF_ERROR(ReadFirstTokens());
    for (const IndexForm& condition : site_.visible) {
      PF_RETURN_IF_ERROR(Sort(condition));
    }
    PF_RETURN_IF_ERROR(ReadUpper());
    for (const auto& [lower, condition] : lowers_) {
      PF_RETURN_IF_ERROR(ReadWindow(lower, condition));
    }
    if (ahead_ && (keys_.causal_flags || keys_.window != *ahead_ + 1)) {
      return absl::FailedPreconditionError(
          StrCat("rows see ", *ahead_, " keys ahead, and a window of ", keys_.window));
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
      return absl::FailedPreconditionError("a token's sequence depends on more than the token");
    }
    keys_.first_tokens = first.tensor;
    token_ = first.token;
    end_ = IndexForm::Of(MakeLoad(first.tensor, {axes_.owner + IndexForm(1)}));
    return absl::OkStatus();
  }

  // upper - n >= 0, or n - lower >= 0; what always holds is dropped.
  absl::Status Sort(const IndexForm& condition) {
    const Dim least = condition.Lower();
    if (least.known() && ProvablyNotNegative(least)) return absl::OkStatus();
    if (const auto both = Halves(condition)) {
      PF_RETURN_IF_ERROR(Sort(both->first));
      return Sort(both->second);
    }
    if (const auto past = BehindFlag(condition)) {
      if (keys_.causal_flags) return NotVisible(condition, "is a second choice of causality");
      keys_.causal_flags = past->second;
      return Sort(past->first);
    }
    if (const AtomPtr chunk = ChunkOf(condition)) {
      chunks_.emplace_back(chunk, condition);
      return absl::OkStatus();
    }
    const auto term = condition.terms().find(site_.n->key);
    if (term == condition.terms().end()) return NotVisible(condition, "does not compare keys");
    const IndexForm n = IndexForm::Of(site_.n);
    const std::optional<int64_t> sign = term->second.second.constant();
    if (sign == -1) {
      uppers_.emplace_back(condition + n, condition);
    } else if (sign == 1) {
      lowers_.emplace_back(n - condition, condition);
    } else {
      return NotVisible(condition, "is no bound of keys");
    }
    return absl::OkStatus();
  }

  // x - max(a, b) >= 0 is both x - a >= 0 and x - b >= 0; so for the lesser of two.
  static std::optional<std::pair<IndexForm, IndexForm>> Halves(const IndexForm& condition) {
    for (const auto& [key, term] : condition.terms()) {
      const AtomPtr& atom = term.first;
      const int64_t sign = atom->kind == Kind::kMin ? 1 : -1;
      const bool extreme = atom->kind == Kind::kMin || atom->kind == Kind::kMax;
      if (!extreme || term.second.constant() != sign) continue;
      const IndexForm rest = condition - IndexForm::Of(atom).Times(term.second);
      return std::make_pair(rest + atom->args[0].Times(term.second),
                            rest + atom->args[1].Times(term.second));
    }
    return std::nullopt;
  }

  // x >= 0 wherever the flag of the sequence is set: max(x, -flag).
  std::optional<std::pair<IndexForm, Value*>> BehindFlag(const IndexForm& condition) const {
    const AtomPtr either = condition.atom();
    if (!either || either->kind != Kind::kMax) return std::nullopt;
    for (int side : {0, 1}) {
      const AtomPtr flag = either->args[side].Times(Dim(-1)).atom();
      const bool owned = flag && flag->kind == Kind::kLoad && flag->args.size() == 1 &&
                         flag->tensor->dtype() == DataType::kBool && axes_.ragged &&
                         flag->args[0].Key() == axes_.owner.Key();
      if (owned) return std::make_pair(either->args[1 - side], flag->tensor);
    }
    return std::nullopt;
  }

  // n / size, if that is what is compared.
  AtomPtr ChunkOf(const IndexForm& condition) const {
    for (const auto& [key, term] : condition.terms()) {
      const AtomPtr& atom = term.first;
      if (atom->kind == Kind::kDiv && atom->args[0].Key() == site_.n->key) return atom;
    }
    return nullptr;
  }

  // n / size - position / size + back >= 0
  absl::Status ReadChunk(const AtomPtr& chunk, const IndexForm& condition) {
    const auto size = chunk->divisor.constant();
    const IndexForm own = DivMod(Position(), chunk->divisor).first;
    const auto back = (condition - IndexForm::Of(chunk) + own).number();
    if (!size || !back || *back < 0 || keys_.chunk != 0 || keys_.window != 0) {
      return NotVisible(condition, "is no chunk of the row's own position");
    }
    keys_.chunk = *size;
    keys_.chunks_before = *back;
    return absl::OkStatus();
  }

  // The axis along which queries of one sequence advance.
  AtomPtr Advance() const { return axes_.ragged ? token_ : axes_.query; }

  // The length that follows from the last key that a query sees: that of the sequence's last query.
  IndexForm LengthOf(const IndexForm& upper) const {
    if (axes_.ragged) return upper - IndexForm::Of(token_) + end_;
    if (!axes_.query) return upper + IndexForm(1);
    return upper - IndexForm::Of(axes_.query) + IndexForm(axes_.query->extent);
  }

  bool Advances(const IndexForm& upper) const {
    const AtomPtr axis = Advance();
    return axis && (upper.terms().contains(axis->key));
  }

  absl::Status ReadUpper() {
    std::optional<IndexForm> length;
    bool causal = false;
    // What ends at the sequence's length says more than what ends at a position.
    std::stable_sort(uppers_.begin(), uppers_.end(), [this](const auto& a, const auto& b) {
      return Advances(a.first) < Advances(b.first);
    });
    for (const auto& [upper, condition] : uppers_) {
      const bool advances = Advances(upper);
      if (advances && length) {
        const auto ahead = (LengthOf(upper) - *length).number();
        if (ahead && *ahead > 0) {
          ahead_ = ahead_ ? std::min(*ahead_, *ahead) : *ahead;
          continue;
        }
      }
      const IndexForm here = advances || !Advance() ? LengthOf(upper) : upper + IndexForm(1);
      if (length && length->Key() != here.Key()) {
        return NotVisible(condition, StrCat("gives another length than ", length->Key()));
      }
      if (Advance() && here.Mentions(Advance()->key) && !axes_.ragged) {
        return NotVisible(condition, "does not advance by one key a query");
      }
      length = here;
      causal = causal || advances;
    }
    keys_.length = length ? *length : IndexForm(site_.n->extent);
    keys_.causal = causal || !Advance();
    if (keys_.causal) ahead_.reset();
    return absl::OkStatus();
  }

  // Of the row.
  IndexForm Position() const {
    if (axes_.ragged) return keys_.length - end_ + IndexForm::Of(token_);
    if (!axes_.query) return keys_.length - IndexForm(1);
    return keys_.length - IndexForm(axes_.query->extent) + IndexForm::Of(axes_.query);
  }

  // n - lower >= 0 with lower = position - window + 1.
  absl::Status ReadWindow(const IndexForm& lower, const IndexForm& condition) {
    if (!keys_.causal && !ahead_) return NotVisible(condition, "is a window without causality");
    if (keys_.causal_flags) return NotVisible(condition, "is a window of causal rows alone");
    const IndexForm window = Position() - lower + IndexForm(1);
    const auto width = window.number();
    if (!width || *width < 1) {
      return NotVisible(condition, StrCat("is a window of ", window.Key(), " keys"));
    }
    keys_.window = keys_.window == 0 ? *width : std::min(keys_.window, *width);
    return absl::OkStatus();
  }

  const AttentionSite& site_;
  const PagedAxes& axes_;
  VisibleKeys keys_;
  AtomPtr token_;
  IndexForm end_;
  std::optional<int64_t> ahead_;  // keys behind the own position that are seen
  std::vector<std::pair<IndexForm, IndexForm>> uppers_, lowers_;
  std::vector<std::pair<AtomPtr, IndexForm>> chunks_;
};

}  // namespace

absl::StatusOr<VisibleKeys> VisibleKeysOf(const AttentionSite& site, const PagedAxes& axes) {
  return VisibleReader(site, axes).Read();
}

}  // namespace pagefuse
