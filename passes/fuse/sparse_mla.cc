// fuse-sparse-mla: attention over listed rows of a latent cache, of which the first elements are
// the values, becomes SparseMlaAttention. The site is read by element.
//
//   rows = cache[max (indices [T, K], 0)]
//   softmax (q . rows^T, indices >= 0) . rows[:, :512]
//     =>  SparseMlaAttention (q, cache, indices, ..)
#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/site_pass.h"
#include "pagefuse/passes/words/arrange.h"
#include "pagefuse/passes/words/attention_site.h"
#include "pagefuse/passes/words/byte_rows.h"
#include "pagefuse/passes/words/replacement.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "fuse-sparse-mla";

using Kind = IndexAtom::Kind;

absl::Status Refused(std::string_view why) {
  return absl::FailedPreconditionError({why.data(), why.size()});
}

// One slot of fp8_ds_mla, 656 bytes: 512 codes, 4 float32 scales, 64 bfloat16.
constexpr int64_t kSlotBytes = 656, kCodes = 512, kTile = 128, kScalesAt = 512, kTailAt = 528;

// What a latent attention reads.
struct Latent {
  Value* cache = nullptr;
  std::string format;
  int64_t width = 0;  // elements of a stored row
  AtomPtr row;        // its number, as it is gathered
  AtomPtr listed;     // the entry of `indices` behind it
};

class LatentReader {
 public:
  LatentReader(ElementReader& reader, const AttentionSite& site) : reader_(reader), site_(site) {}

  absl::StatusOr<Latent> Read() {
    if (site_.key.others.size() != 1) return absl::NotFoundError("keys have scales of their own");
    const Element& key = site_.key.others[0];
    if (key.From("Concat")) {
      PF_RETURN_IF_ERROR(ReadSlots(key));
    } else {
      PF_RETURN_IF_ERROR(ReadRows(key));
    }
    PF_RETURN_IF_ERROR(FindListed());
    return latent_;
  }

 private:
  // address = width * row + e
  absl::Status ReadRows(const Element& key) {
    const auto address = AddressOf(key);
    if (!address) return absl::NotFoundError("rows of unknown shape");
    PF_RETURN_IF_ERROR(SetRow(*address, site_.e, IndexForm(0)));
    const auto& shape = key.value->shape();
    if (shape->back(0).constant() != latent_.width || site_.e->extent != Dim(latent_.width)) {
      return absl::NotFoundError("keys are parts of rows");
    }
    latent_.cache = key.value;
    latent_.format = "bf16";
    if (site_.value.others.size() != 1) return Refused("values have a factor of their own");
    const Element& value = site_.value.others[0];
    const auto place = value.value == key.value ? AddressOf(value) : std::nullopt;
    const IndexForm expected = *address - IndexForm::Of(site_.e) + IndexForm::Of(site_.d);
    if (!place || place->Key() != expected.Key()) {
      return Refused("values are not the first elements of the rows that are keys");
    }
    return absl::OkStatus();
  }

  absl::Status SetRow(const IndexForm& address, const AtomPtr& along, const IndexForm& offset) {
    const IndexForm rest = address - IndexForm::Of(along) - offset;
    const auto& terms = rest.terms();
    if (terms.size() != 1 || rest.constant().constant() != 0) {
      return absl::NotFoundError("rows are not taken by number");
    }
    latent_.row = terms.begin()->second.first;
    latent_.width = terms.begin()->second.second.constant().value_or(0);
    return absl::OkStatus();
  }

  // The part of a Concat along the keys' elements, with an axis of its own.
  std::optional<std::pair<Element, AtomPtr>> Part(const Element& joined, int index) {
    const Node& concat = *joined.producer();
    Value* part = concat.input(index);
    const int rank = static_cast<int>(joined.at.size());
    const auto axis = static_cast<int>(NormalAxis(IntOr(concat, "axis", 0), rank));
    if (!part || !part->shape() || joined.at[axis].Key() != site_.e->key) return std::nullopt;
    const AtomPtr along = reader_.NewAxis((*part->shape())[axis]);
    Element element{part, joined.at};
    element.at[axis] = IndexForm::Of(along);
    reader_.Visit(concat);
    return std::make_pair(reader_.Source(element), along);
  }

  // Concat (bf16 (codes * scales), tail)
  absl::Status ReadSlots(const Element& key) {
    const auto nope = Part(key, 0);
    const auto tail = Part(key, 1);
    if (!nope || !tail || key.producer()->num_inputs() != 2) {
      return absl::NotFoundError("keys are not joined of two parts");
    }
    if (nope->second->extent != Dim(kCodes)) return Refused("the first part is not 512 codes");
    PF_RETURN_IF_ERROR(ReadRounded(nope->first, nope->second));
    const auto bytes = BytesOf(reader_, tail->first);
    const IndexForm expected = IndexForm::Of(latent_.row).Times(Dim(kSlotBytes)) +
                               IndexForm(kTailAt) + IndexForm::Of(tail->second).Times(Dim(2));
    if (!bytes || bytes->count != 2 || bytes->bytes != latent_.cache ||
        tail->first.value->dtype() != DataType::kBfloat16 || bytes->first.Key() != expected.Key()) {
      return Refused("the second part is not the bfloat16 tail of a slot");
    }
    const AtomPtr row = latent_.row;
    if (site_.value.others.size() != 1 || site_.value.number != 1) {
      return Refused("values have scales of their own");
    }
    PF_RETURN_IF_ERROR(ReadRounded(site_.value.others[0], site_.d));
    if (latent_.row->key != row->key) return Refused("values are of other rows than keys");
    latent_.format = "fp8_ds_mla";
    return absl::OkStatus();
  }

  // The format is read as bfloat16.
  absl::Status ReadRounded(const Element& rounded, const AtomPtr& along) {
    if (!rounded.From("Cast") || rounded.value->dtype() != DataType::kBfloat16) {
      return Refused("codes times scales are not rounded to bfloat16");
    }
    return ReadCodes(FactorsOf(reader_, reader_.Operand(rounded, 0)), along);
  }

  // codes[row, along] * scales[row, along / 128]
  absl::Status ReadCodes(const Factors& factors, const AtomPtr& along) {
    if (factors.others.size() != 2 || factors.number != 1) {
      return Refused("codes have not one scale");
    }
    for (const bool swapped : {false, true}) {
      const Element& codes = factors.others[swapped ? 1 : 0];
      const Element& scale = factors.others[swapped ? 0 : 1];
      if (!codes.From("BitCast") || codes.value->dtype() != DataType::kFloat8E4M3FN) continue;
      const Element bytes = reader_.Operand(codes, 0);
      const auto address = AddressOf(bytes);
      const auto number = BytesOf(reader_, scale);
      if (!address || !number || number->count != 4 || number->bytes != bytes.value) continue;
      PF_RETURN_IF_ERROR(SetRow(*address, along, IndexForm(0)));
      latent_.cache = bytes.value;
      const IndexForm tile = DivMod(IndexForm::Of(along), Dim(kTile)).first;
      const IndexForm expected = IndexForm::Of(latent_.row).Times(Dim(kSlotBytes)) +
                                 IndexForm(kScalesAt) + tile.Times(Dim(4));
      if (latent_.width != kSlotBytes || number->first.Key() != expected.Key()) {
        return Refused(
            StrCat("scales lie at ", number->first.Key(), ", expected ", expected.Key()));
      }
      return absl::OkStatus();
    }
    return Refused("no codes with a scale of four bytes");
  }

  // indices[t, n], or not less than 0.
  absl::Status FindListed() {
    AtomPtr atom = latent_.row;
    if (atom->kind == Kind::kMax) {
      const bool first = atom->args[0].number() == 0;
      const bool second = atom->args[1].number() == 0;
      if (!first && !second) return absl::NotFoundError("rows are not listed");
      atom = atom->args[first ? 1 : 0].atom();
    }
    const bool listed = atom && atom->kind == Kind::kLoad &&
                        std::any_of(atom->args.begin(), atom->args.end(),
                                    [&](const auto& arg) { return arg.Key() == site_.n->key; });
    if (!listed) return absl::NotFoundError("rows are not listed");
    latent_.listed = atom;
    return absl::OkStatus();
  }

  ElementReader& reader_;
  const AttentionSite& site_;
  Latent latent_;
};

// Listed rows count where the entry is not negative, and among the first ones of a token.
struct Listing {
  bool by_sign = false;
  AtomPtr count;  // topk_lens[t]
};
absl::StatusOr<Listing> ListingOf(const AttentionSite& site, const Latent& latent) {
  Listing listing;
  const IndexForm n = IndexForm::Of(site.n);
  for (const IndexForm& condition : site.visible) {
    if (condition.Key() == IndexForm::Of(latent.listed).Key()) {
      listing.by_sign = true;
      continue;
    }
    const AtomPtr count = (condition + n + IndexForm(1)).atom();
    if (!count || count->kind != Kind::kLoad || listing.count) {
      return Refused(StrCat("the condition ", condition.Key(), " >= 0 is not that of listed rows"));
    }
    listing.count = count;
  }
  if (!listing.by_sign && latent.row->kind == Kind::kMax) {
    return Refused("entries that are negative are read as row 0 and not masked");
  }
  if (!listing.by_sign && !listing.count) return absl::NotFoundError("every row is read");
  return listing;
}

class SparsePorts {
 public:
  SparsePorts(GraphBuilder& builder, ElementReader& reader, const AttentionSite& site,
              const Latent& latent, const Listing& listing)
      : builder_(builder),
        reader_(reader),
        site_(site),
        latent_(latent),
        listing_(listing),
        arranger_(builder, {site.query.value, latent.listed->tensor, latent.cache}) {}

  // The result, and the log-sum-exps if the graph has them.
  absl::StatusOr<std::vector<Value*>> Build(const std::optional<LogSums>& sums) {
    if (site_.softcap != 0) return Refused("the op has no soft cap");
    SortAxes();
    std::vector<Value*> inputs(5, nullptr);
    const Element query = NarrowQuery(reader_, site_);
    PF_ASSIGN_OR_RETURN(inputs[0], arranger_.Gathered(query, {tokens_, heads_, {site_.e}}));
    inputs[1] = latent_.cache;
    const Element listed{latent_.listed->tensor, latent_.listed->args};
    PF_ASSIGN_OR_RETURN(inputs[2], arranger_.Gathered(listed, {tokens_, {site_.n}}));
    inputs[2] = arranger_.AsInt32(inputs[2]);
    if (listing_.count) {
      const Element count{listing_.count->tensor, listing_.count->args};
      PF_ASSIGN_OR_RETURN(inputs[3], arranger_.Gathered(count, {tokens_}));
      inputs[3] = arranger_.AsInt32(inputs[3]);
    }
    if (site_.sink) {
      PF_ASSIGN_OR_RETURN(inputs[4], arranger_.Gathered(*site_.sink, {heads_}));
    }
    while (!inputs.back()) inputs.pop_back();
    Node* node = builder_.AddNode("pagefuse", "SparseMlaAttention", inputs, sums ? 2 : 1);
    PF_RETURN_IF_ERROR(SetAttributes(*node));
    PF_ASSIGN_OR_RETURN(
        Value * result,
        arranger_.Spread(node->output(0), {tokens_, heads_, {site_.d}}, site_.output));
    const DataType wanted = site_.output.value->dtype();
    if (query.value->dtype() != wanted) {
      result = builder_.Add("Cast", {result}, "to", static_cast<int64_t>(wanted));
    }
    if (!sums) return std::vector<Value*>{result};
    PF_ASSIGN_OR_RETURN(Value * spread,
                        arranger_.Spread(node->output(1), {tokens_, heads_}, sums->element));
    return std::vector<Value*>{result, spread};
  }

 private:
  void SortAxes() {
    for (const IndexForm& index : site_.output.at) {
      for (const auto& [key, term] : index.terms()) {
        if (key == site_.d->key) continue;
        const bool token =
            std::any_of(latent_.listed->args.begin(), latent_.listed->args.end(),
                        [&key = key](const IndexForm& arg) { return arg.Mentions(key); });
        (token ? tokens_ : heads_).push_back(term.first);
      }
    }
  }

  absl::Status SetAttributes(Node& node) const {
    const auto size = site_.d->extent.constant();
    if (!size) return Refused("the size of values is not known");
    node.SetAttribute("format", MakeAttribute(latent_.format));
    node.SetAttribute("scale", MakeAttribute(static_cast<float>(site_.scale)));
    node.SetAttribute("head_dim_v", MakeAttribute(*size));
    return absl::OkStatus();
  }

  GraphBuilder& builder_;
  ElementReader& reader_;
  const AttentionSite& site_;
  const Latent& latent_;
  const Listing& listing_;
  Arranger arranger_;
  AxisAtoms tokens_, heads_;
};

class FuseSparseMlaPass : public SitePass {
 public:
  std::string_view name() const override { return kName; }
  std::string_view description() const override {
    return "Fuses attention over listed rows of a latent cache, read by element.";
  }

 private:
  std::vector<Node*> Places(const Graph& graph) const override { return AttentionNodes(graph); }

  absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) const override {
    Value* output = node.output(0);
    ElementReader reader(context.contents);
    PF_ASSIGN_OR_RETURN(const AttentionSite site, ReadAttention(reader, output));
    PF_RETURN_IF_ERROR(CheckNoBias(site));
    PF_ASSIGN_OR_RETURN(const Latent latent, LatentReader(reader, site).Read());
    PF_ASSIGN_OR_RETURN(const Listing listing, ListingOf(site, latent));
    const std::optional<LogSums> sums = LogSumsOf(reader, *scope.graph, site);
    PF_RETURN_IF_ERROR(CheckSums(site, sums));
    std::vector<Value*> results = {output};
    if (sums) results.push_back(sums->element.value);
    PF_RETURN_IF_ERROR(ServesOnly(reader, results));
    Replacement replacement(*scope.graph, *output, kName);
    SparsePorts ports(replacement.builder(), reader, site, latent, listing);
    return replacement.Finish(ports.Build(sums), results, *scope.opsets, context.contents);
  }

  // The op's sums leave the sink out, and are +inf in rows that see no key.
  static absl::Status CheckSums(const AttentionSite& site, const std::optional<LogSums>& sums) {
    if (!sums) return absl::OkStatus();
    if (site.sink) return Refused("log-sum-exps that hold a sink are none of the op's");
    if (!sums->empty || (std::isinf(*sums->empty) && *sums->empty > 0)) return absl::OkStatus();
    return Refused(
        StrCat("log-sum-exps are ", *sums->empty, " in rows that see no key, expected inf"));
  }
};

}  // namespace

std::unique_ptr<Pass> FuseSparseMla() { return std::make_unique<FuseSparseMlaPass>(); }

}  // namespace pagefuse
