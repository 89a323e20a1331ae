#include "pagefuse/passes/fuse/paged_rows.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/refused.h"

namespace pagefuse {
namespace {

using Kind = IndexAtom::Kind;

bool MentionsAny(const std::vector<IndexForm>& forms, const AtomPtr& atom) {
  return std::any_of(forms.begin(), forms.end(),
                     [&](const IndexForm& form) { return form.Mentions(atom->key); });
}

// Adds the atoms of a form and those in its arguments that `wanted` wants.
template <typename Wanted>
void Collect(const IndexForm& form, const Wanted& wanted, std::vector<AtomPtr>& found) {
  for (const auto& [key, term] : form.terms()) {
    const AtomPtr& atom = term.first;
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const AtomPtr& other) { return other->key == atom->key; });
    if (wanted(*atom) && !known) found.push_back(atom);
    for (const IndexForm& arg : atom->args) Collect(arg, wanted, found);
  }
}

// Whether caches of the type hold codes in some format.
bool IsQuantised(DataType type) {
  return std::any_of(RowFormats().begin(), RowFormats().end(), [&](const RowFormat& format) {
    return format.scales != ScaleKind::kNone &&
           std::find(format.types.begin(), format.types.end(), type) != format.types.end();
  });
}

// The axes that the output's rows run over, in order.
AxisAtoms RowAxes(const AttentionSite& site) {
  AxisAtoms axes;
  for (const IndexForm& index : site.output.at) {
    std::vector<std::pair<Dim, AtomPtr>> digits;
    for (const auto& [key, term] : index.terms()) digits.emplace_back(term.second, term.first);
    // The slow digit first.
    std::sort(digits.begin(), digits.end(), [](const auto& a, const auto& b) {
      return ProvablyNotNegative(a.first - b.first - Dim(1));
    });
    for (const auto& [step, atom] : digits) {
      if (atom->key != site.d->key) axes.push_back(atom);
    }
  }
  return axes;
}

class AxesReader {
 public:
  AxesReader(const AttentionSite& site, const ReadRows& key) : site_(site), key_(key) {}

  absl::StatusOr<PagedAxes> Read() {
    PF_RETURN_IF_ERROR(FindBlock());
    for (const AtomPtr& axis : RowAxes(site_)) {
      PF_RETURN_IF_ERROR(Place(axis));
    }
    return axes_;
  }

 private:
  absl::Status FindBlock() {
    std::vector<AtomPtr> tables;
    const std::string& n = site_.n->key;
    const auto is_table = [&](const IndexAtom& atom) {
      return atom.kind == Kind::kLoad &&
             std::any_of(atom.args.begin(), atom.args.end(),
                         [&](const IndexForm& arg) { return arg.Mentions(n); });
    };
    for (const IndexForm& index : key_.codes.at) Collect(index, is_table, tables);
    if (const AtomPtr only = OnlyColumn(); tables.empty() && only) {
      axes_.block = only;
      axes_.owner = only->args[0];
      axes_.row = {site_.n};
      return FindOwner();
    }
    if (tables.empty()) {
      axes_.row = {site_.n};
      return absl::OkStatus();
    }
    if (tables.size() > 1) {
      return Refused("keys are read through more than one table");
    }
    axes_.block = tables[0];
    return ReadTable();
  }

  // table[owner, 0] of a table of one column: a sequence's rows are one block.
  AtomPtr OnlyColumn() const {
    const AtomPtr entry = key_.codes.at.empty() ? nullptr : key_.codes.at[0].atom();
    if (!entry || entry->kind != Kind::kLoad || entry->args.size() != 2) return nullptr;
    const auto& shape = entry->tensor->shape();
    const bool one = shape && shape->rank() == 2 && (*shape)[1].constant() == 1;
    return one && entry->args[1].number() == 0 ? entry : nullptr;
  }

  // table[owner, n / block_size], and the row n mod block_size.
  absl::Status ReadTable() {
    IndexForm column;
    for (const IndexForm& arg : axes_.block->args) {
      if (arg.Mentions(site_.n->key)) {
        column = arg;
      } else {
        axes_.owner = axes_.owner + arg;
      }
    }
    std::vector<AtomPtr> atoms;
    for (const auto& [key, term] : column.terms()) atoms.push_back(term.first);
    // One table [B * M] holds the owner in the same index.
    std::vector<AtomPtr> others = atoms;
    std::erase_if(others,
                  [&](const AtomPtr& atom) { return IndexForm::Of(atom).Mentions(site_.n->key); });
    for (const AtomPtr& atom : others) axes_.owner = axes_.owner + IndexForm::Of(atom);
    std::erase_if(atoms,
                  [&](const AtomPtr& atom) { return !IndexForm::Of(atom).Mentions(site_.n->key); });
    if (atoms.size() != 1) return NoColumn(column);
    const AtomPtr& place = atoms[0];
    if (place->key == site_.n->key) return FindOwner();  // one row a block
    if (place->kind != Kind::kDiv || place->args[0].Key() != site_.n->key) return NoColumn(column);
    axes_.row = {DivMod(IndexForm::Of(site_.n), place->divisor).second.atom()};
    return FindOwner();
  }

  static absl::Status NoColumn(const IndexForm& column) {
    return Refused("the table's column ", column.Key(), " is no position divided by a block size");
  }

  absl::Status FindOwner() {
    for (const auto& [key, term] : axes_.owner.terms()) {
      const AtomPtr& atom = term.first;
      if (atom->kind == Kind::kAxis) continue;
      if (atom->kind != Kind::kCount || axes_.owner.terms().size() != 1) {
        return Refused("a token's sequence ", axes_.owner.Key(),
                       " is not computed from first tokens");
      }
      axes_.ragged = true;
    }
    const auto is_axis = [](const IndexAtom& atom) { return atom.kind == Kind::kAxis; };
    Collect(axes_.owner, is_axis, owners_);
    return absl::OkStatus();
  }

  absl::Status Place(const AtomPtr& axis) {
    const bool owner = std::any_of(owners_.begin(), owners_.end(),
                                   [&](const AtomPtr& atom) { return atom->key == axis->key; });
    std::vector<IndexForm> direct;
    for (const IndexForm& index : key_.codes.at) {
      for (const auto& [key, term] : index.terms()) {
        if (!axes_.block || key != axes_.block->key) direct.push_back(IndexForm::Of(term.first));
      }
    }
    const bool in_cache = MentionsAny(direct, axis);
    if (owner || (in_cache && !axes_.block)) {
      axes_.sequence.push_back(axis);
    } else if (in_cache) {
      axes_.heads.push_back(axis);
    } else if (!MentionsAny(site_.visible, axis)) {
      axes_.groups.push_back(axis);
    } else if (!axes_.query) {
      axes_.query = axis;
    } else {
      return Refused("the mask depends on two axes, ", axes_.query->key, " and ", axis->key);
    }
    return absl::OkStatus();
  }

  const AttentionSite& site_;
  const ReadRows& key_;
  PagedAxes axes_;
  std::vector<AtomPtr> owners_;
};

}  // namespace

bool ReadRows::quantised() const { return e4m3 || IsQuantised(codes.value->dtype()); }

bool ReadRows::IsSingle(const Element& element) {
  const auto& shape = element.value->shape();
  return shape && std::all_of(shape->dims().begin(), shape->dims().end(),
                              [](const Dim& dim) { return dim.constant() == 1; });
}

absl::StatusOr<ReadRows> RowsOf(ElementReader& reader, const Factors& read, const AtomPtr& along,
                                DataType type) {
  ReadRows rows;
  Factors factors = read;
  if (read.others.size() == 1 && read.others[0].From("Cast") &&
      read.others[0].value->dtype() == type) {
    factors = FactorsOf(reader, reader.Operand(read.others[0], 0));
    factors.number *= read.number;
  }
  rows.number = factors.number;
  bool found = false;
  for (const Element& factor : factors.others) {
    const bool is_codes = factor.Mentions(along);
    if (is_codes && !found) {
      rows.codes = factor;
      found = true;
    } else if (!is_codes && !rows.scale) {
      rows.scale = factor;
    } else if (type == DataType::kFloat8E4M3FN && !rows.query_scale && !is_codes &&
               ReadRows::IsSingle(factor)) {
      // Both scales are factors of every score, in whichever order.
      rows.query_scale = factor;
    } else {
      return Refused(*factor.value, " is one factor too many of keys or values");
    }
  }
  if (!found) return Refused("no factor runs along keys or values");
  if (rows.codes.From("BitCast") && rows.codes.value->dtype() == DataType::kFloat8E4M3FN) {
    rows.codes = reader.Operand(rows.codes, 0);
    rows.e4m3 = true;
  }
  return rows;
}

absl::StatusOr<PagedAxes> PagedAxesOf(const AttentionSite& site, const ReadRows& key) {
  return AxesReader(site, key).Read();
}

absl::StatusOr<CacheFormat> FormatOf(const ReadRows& key, const ReadRows& value) {
  const bool tokens = key.per_token() && value.per_token();
  if (key.per_token() != value.per_token() || key.quantised() != value.quantised()) {
    return Refused("keys ", *key.codes.value, " and values ", *value.codes.value,
                   " are of different formats");
  }
  if (!key.quantised()) {
    if (key.scale || value.scale || value.number != 1) {
      return Refused("keys or values of floats have a scale");
    }
    return CacheFormat();
  }
  // The tensor's scale takes a number in, those of rows do not.
  if (tokens && value.number != 1) {
    return Refused("values with a scale for each row have a factor of ", value.number, " too");
  }
  const RowFormat* format =
      FindRowFormat(key.element(), tokens ? ScaleKind::kRow : ScaleKind::kTensor);
  if (format != nullptr && key.element() == value.element()) {
    return CacheFormat{.mode = format->mode};
  }
  return Refused("caches of ", DataTypeName(key.codes.value->dtype()),
                 tokens ? " with a scale for each row" : " with one scale",
                 " are of no known format");
}

AxisSplits SplitsOf(const AttentionSite& site) {
  std::vector<AtomPtr> quotients;
  const auto is_split = [](const IndexAtom& atom) {
    return atom.kind == Kind::kDiv || atom.kind == Kind::kMod;
  };
  const auto read = [&](const Factors& factors) {
    for (const Element& factor : factors.others) {
      for (const IndexForm& index : factor.at) Collect(index, is_split, quotients);
    }
  };
  read(site.key);
  read(site.value);
  AxisSplits splits;
  for (const AtomPtr& quotient : quotients) {
    for (size_t axis = 0; axis < site.output.at.size(); ++axis) {
      const AtomPtr whole = site.output.at[axis].atom();
      const bool known = std::any_of(splits.begin(), splits.end(), [&](const auto& split) {
        return split.first == static_cast<int>(axis);
      });
      if (!whole || known || quotient->args[0].Key() != whole->key) continue;
      const Dim slow = whole->extent.FloorDiv(quotient->divisor);
      if (ProvablyEqual(slow * quotient->divisor, whole->extent)) {
        splits.emplace_back(static_cast<int>(axis), quotient->divisor);
      }
    }
  }
  return splits;
}

}  // namespace pagefuse
