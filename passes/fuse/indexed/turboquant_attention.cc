// SPDX-License-Identifier: Apache-2.0
// fuse-turboquant-attention: fuses attention over a cache that the graph decodes itself, keys from
// a codebook with their norm, values from codes with a scale and a zero of float16, into
// TurboQuantAttention. Attention is read by element; 4-bit codes and float16 are recognised by what
// they compute.
#include "pagefuse/ops/pagefuse/turboquant/turboquant_attention.h"

#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"
#include "pagefuse/passes/analysis/indexing/byte_rows.h"
#include "pagefuse/passes/analysis/indexing/element_function.h"
#include "pagefuse/passes/analysis/indexing/packed_codes.h"
#include "pagefuse/passes/analysis/indexing/replacement.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/indexed/match_pass.h"
#include "pagefuse/passes/fuse/indexed/paged_attention_ports.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "fuse-turboquant-attention";
constexpr int64_t kHalfBytes = 2;

// False for known numbers of which one is less than the one before it.
bool DoNotFall(const Value& value) {
  const Tensor* tensor = ConstantOf(&value);
  const auto numbers = tensor ? Numbers(*tensor) : std::nullopt;
  return !numbers || std::is_sorted(numbers->begin(), numbers->end());
}

// A slot, read: elements of the cache at its first byte.
struct Slot {
  Element codes;     // a byte of keys
  IndexExpr first;   // the address of its first byte
  IndexSymbolPtr e;  // the keys' elements, before any rotation
  int key_bits = 0, value_bits = 0;
  Element centroids;  // not with 8-bit keys
  bool norm_correction = false;
  std::optional<Element> rotation;  // [i, j]: row i of what the query is multiplied by
  IndexSymbolPtr rotated;           // j
  Element query;
};

class SlotReader {
 public:
  SlotReader(IndexingAnalysis& reader, const OpsetImports& opsets, const AttentionMatch& match)
      : reader_(reader), opsets_(opsets), match_(match) {}

  absl::StatusOr<Slot> Read() {
    slot_.query = match_.query;
    slot_.e = match_.e;
    std::vector<Element> factors = match_.key.others;
    PF_RETURN_IF_ERROR(ReadRotation(factors));
    PF_RETURN_IF_ERROR(ReadKeys(factors));
    PF_RETURN_IF_ERROR(ReadValues());
    return std::move(slot_);
  }

 private:
  // dot (P q, c) or dot (q, P^T c): the rotation stands on either side.
  absl::Status ReadRotation(std::vector<Element>& factors) {
    for (size_t i = 0; i < factors.size(); ++i) {
      const auto product = ProductOf(reader_, factors[i]);
      if (!product) continue;
      const bool left = product->left.Mentions(match_.n);
      slot_.rotation = left ? product->right : product->left;
      slot_.rotated = match_.e;
      slot_.e = product->summed;
      const Factors inner = FactorsOf(reader_, left ? product->left : product->right);
      factors.erase(factors.begin() + static_cast<int64_t>(i));
      factors.insert(factors.end(), inner.others.begin(), inner.others.end());
      return absl::OkStatus();
    }
    const auto product = ProductOf(reader_, match_.query);
    if (!product) return absl::OkStatus();
    const bool right = product->right.Mentions(match_.e) && product->right.at.size() == 2;
    const bool left = product->left.Mentions(match_.e) && product->left.at.size() == 2;
    if (right == left) return absl::OkStatus();
    slot_.rotation = right ? product->right : product->left;
    slot_.rotated = product->summed;
    slot_.query = right ? product->left : product->right;
    return absl::OkStatus();
  }

  // centroids[code] (/ its length) * norm
  absl::Status ReadKeys(const std::vector<Element>& factors) {
    std::vector<Element> norm;
    std::optional<Element> entry;
    for (const Element& factor : factors) {
      if (!factor.Mentions(slot_.e)) {
        norm.push_back(factor);
      } else if (!entry) {
        entry = factor;
      } else {
        return absl::NotFoundError("keys have two factors");
      }
    }
    if (!entry) return absl::NotFoundError("keys have no codes");
    if (entry->From("BitCast") && entry->value->dtype() == DataType::kFloat8E4M3FN) {
      if (!norm.empty()) return MatchFailure("keys of 8 bits have a factor");
      return ReadBytes(reader_.Operand(*entry, 0));
    }
    PF_RETURN_IF_ERROR(ReadCentroid(*entry));
    if (norm.empty() || !IsFloat16(reader_, norm, opsets_, norm_)) {
      return MatchFailure("keys have no norm of float16 in the cache");
    }
    return CheckNumber("the norm of keys", norm_, Format().KeyDataBytes());
  }

  absl::Status ReadBytes(const Element& bytes) {
    const auto address = AddressOf(bytes);
    if (!address) return MatchFailure("keys lie in a cache of unknown shape");
    slot_.codes = bytes;
    slot_.first = *address - IndexExpr::Of(slot_.e);
    slot_.key_bits = 8;
    if (!slot_.first.Mentions(slot_.e->key)) return absl::OkStatus();
    return MatchFailure("bytes of keys do not lie one behind the other");
  }

  absl::Status ReadCentroid(const Element& entry) {
    Element centroid = entry;
    if (entry.From("Div")) {
      centroid = reader_.Operand(entry, 0);
      if (!IsLengthOf(reader_.Operand(entry, 1), entry)) {
        return MatchFailure("keys are divided by something else than their length");
      }
      slot_.norm_correction = true;
    }
    if (centroid.at.size() != 1 || centroid.producer() != nullptr) {
      return absl::NotFoundError("keys are no entries of a codebook");
    }
    if (!DoNotFall(*centroid.value)) return MatchFailure("entries of the codebook fall");
    slot_.centroids = centroid;
    PackedCodes codes;
    PF_RETURN_IF_ERROR(ReadCodes(centroid.at[0], slot_.e, codes));
    slot_.codes = codes.byte;
    slot_.first = codes.first;
    slot_.key_bits = codes.bits;
    return absl::OkStatus();
  }

  // sqrt (sum of squares (+ a little)) of what the quotient divides.
  bool IsLengthOf(Element length, const Element& quotient) {
    const Value* divided = quotient.producer()->input(0);
    if (length.From("ReduceL2")) {
      reader_.Visit(*length.producer());
      return length.producer()->input(0) == divided;
    }
    if (!length.From("Sqrt")) return false;
    Element sum = reader_.Operand(length, 0);
    if (sum.From("Add")) {
      const bool first = reader_.Number(reader_.Operand(sum, 0)).has_value();
      const auto little = reader_.Number(reader_.Operand(sum, first ? 0 : 1));
      if (!little || std::abs(*little) > 1e-12) return false;
      sum = reader_.Operand(sum, first ? 1 : 0);
    }
    if (sum.producer()) reader_.Visit(*sum.producer());
    if (sum.From("ReduceSumSquare")) return sum.producer()->input(0) == divided;
    const Value* squares = sum.From("ReduceSum") ? sum.producer()->input(0) : nullptr;
    const Node* square = squares ? squares->producer() : nullptr;
    if (!square || !square->Is("Mul")) return false;
    reader_.Visit(*square);
    return square->input(0) == divided && square->input(1) == divided;
  }

  // Where the codes lie, and of how many bits they are.
  absl::Status ReadCodes(const IndexExpr& code, const IndexSymbolPtr& along, PackedCodes& codes) {
    const auto packed = PackedCodesOf(reader_, code, along);
    if (!packed) return MatchFailure("codes ", code.Key(), " are no 3 or 4 bits of bytes");
    codes = *packed;
    return absl::OkStatus();
  }

  TurboQuantFormat Format() const {
    return {slot_.key_bits, slot_.value_bits, slot_.e->extent.constant().value_or(0)};
  }

  // `first` is the address of what lies `offset` bytes behind the slot's first byte.
  absl::Status CheckAddress(std::string_view what, const Value* cache, const IndexExpr& first,
                            int64_t offset) const {
    if (cache != slot_.codes.value) return MatchFailure(what, ": lies in another cache");
    const IndexExpr distance = first - slot_.first;
    if (distance.number() == offset) return absl::OkStatus();
    return MatchFailure(what, ": lies at ", distance.Key(), " of a slot, expected ", offset);
  }
  absl::Status CheckNumber(std::string_view what, const Element& element, int64_t offset) const {
    const auto here = AddressOf(element);
    if (!here) return MatchFailure(what, ": lies in a cache of unknown shape");
    return CheckAddress(what, element.value, *here, offset);
  }

  // code * scale + zero
  absl::Status ReadValues() {
    if (match_.value.others.size() != 1 || !match_.value.others[0].From("Add")) {
      return MatchFailure("values are no steps with a zero");
    }
    const Element& sum = match_.value.others[0];
    for (int side : {0, 1}) {
      const Element product = reader_.Operand(sum, side);
      const Element zero = reader_.Operand(sum, 1 - side);
      if (!product.Mentions(match_.d) || zero.Mentions(match_.d)) continue;
      return ReadSteps(product, zero);
    }
    return MatchFailure("values are no steps with one zero a row");
  }

  absl::Status ReadSteps(const Element& product, const Element& zero) {
    std::vector<Element> scale;
    std::optional<Element> steps;
    for (const Element& factor : FactorsOf(reader_, product).others) {
      if (factor.Mentions(match_.d)) {
        steps = factor;
      } else {
        scale.push_back(factor);
      }
    }
    if (!steps) return MatchFailure("values have no codes");
    PackedCodes codes;
    PF_RETURN_IF_ERROR(ReadCodes(reader_.ReadIndex(*steps), match_.d, codes));
    slot_.value_bits = codes.bits;
    const TurboQuantFormat format = Format();
    const int64_t behind_codes = format.KeyBytes() + format.ValueDataBytes();
    PF_RETURN_IF_ERROR(
        CheckAddress("codes of values", codes.byte.value, codes.first, format.KeyBytes()));
    Element first;
    if (scale.empty() || !IsFloat16(reader_, scale, opsets_, first)) {
      return MatchFailure("values have no scale of float16 in the cache");
    }
    PF_RETURN_IF_ERROR(CheckNumber("the scale of values", first, behind_codes));
    if (!IsFloat16(reader_, FactorsOf(reader_, zero).others, opsets_, first)) {
      return MatchFailure("values have no zero of float16 in the cache");
    }
    return CheckNumber("the zero of values", first, behind_codes + kHalfBytes);
  }

  IndexingAnalysis& reader_;
  const OpsetImports& opsets_;
  const AttentionMatch& match_;
  Slot slot_;
  Element norm_;
};

absl::Status CheckRules(const AttentionMatch& match, const AttentionMaskPorts& visible) {
  PF_RETURN_IF_ERROR(CheckNoBias(match));
  if (visible.chunk != 0 || visible.causal_flags) {
    return MatchFailure("rows see chunks of keys, or are causal in some sequences alone");
  }
  return visible.causal ? absl::OkStatus() : MatchFailure("rows see keys behind their own");
}

// [NB, BS, Hk, S]: the code's element with its place in the slot left out.
absl::StatusOr<Value*> CacheOf(Layout& layout, const PagedAxes& axes, const Slot& slot) {
  const Shape& shape = *slot.codes.value->shape();
  const int last = shape.rank() - 1;
  const IndexSymbolPtr place = MakeAxis("place", shape[last]);
  Element whole = slot.codes;
  whole.at[last] = IndexExpr::Of(place);
  return layout.Gathered(whole, {{axes.block}, axes.row, axes.heads, {place}});
}

class SlotFuser {
 public:
  explicit SlotFuser(const AttentionMatch& match) : match_(match) {}

  // The result, and the log-sum-exps if the graph has them.
  absl::StatusOr<std::vector<Value*>> Build(Replacement& replacement, const Slot& slot,
                                            const std::optional<LogSums>& sums) {
    ReadRows rows;
    rows.codes = slot.codes;
    PF_ASSIGN_OR_RETURN(const PagedAxes axes, PagedAxesOf(match_, rows));
    if (!axes.block) return MatchFailure("the cache has no block table");
    PF_ASSIGN_OR_RETURN(const AttentionMaskPorts visible, AttentionMaskPortsOf(match_, axes));
    PF_RETURN_IF_ERROR(CheckRules(match_, visible));
    GraphBuilder& builder = replacement.builder();
    PagedAttentionPorts ports(builder, match_, axes, visible);
    Layout& layout = ports.layout();
    const IndexSymbolPtr along = slot.rotated ? slot.rotated : slot.e;
    std::vector<Value*> inputs(kTurboQuantAttentionIn.size(), nullptr);
    PF_ASSIGN_OR_RETURN(inputs[0],
                        layout.Gathered(slot.query, {ports.Tokens(), ports.Heads(), {along}}));
    PF_ASSIGN_OR_RETURN(inputs[1], CacheOf(layout, axes, slot));
    PF_ASSIGN_OR_RETURN(inputs[2], ports.BlockTable());
    PF_ASSIGN_OR_RETURN(inputs[3], ports.Lengths());
    if (axes.query || axes.ragged) {
      PF_ASSIGN_OR_RETURN(inputs[4], ports.FirstTokens());
    }
    if (slot.key_bits != 8) {
      if (!slot.rotation) return MatchFailure("neither queries nor keys are rotated");
      PF_ASSIGN_OR_RETURN(inputs[5], layout.Gathered(*slot.rotation, {{slot.e}, {along}}));
      inputs[6] = slot.centroids.value;
    } else if (slot.rotation) {
      return MatchFailure("keys of 8 bits are rotated");
    }
    if (match_.sink) {
      PF_ASSIGN_OR_RETURN(inputs[kTurboQuantAttentionIn["head_sink"]],
                          layout.Gathered(*match_.sink, {ports.Heads()}));
    }
    while (!inputs.back()) inputs.pop_back();
    Node* node = builder.AddNode("pagefuse", "TurboQuantAttention", inputs, sums ? 2 : 1);
    node->SetAttribute("key_bits", MakeAttribute(int64_t{slot.key_bits}));
    node->SetAttribute("value_bits", MakeAttribute(int64_t{slot.value_bits}));
    node->SetAttribute("norm_correction", MakeAttribute(int64_t{slot.norm_correction ? 1 : 0}));
    node->SetAttribute("scale", MakeAttribute(static_cast<float>(match_.scale)));
    node->SetAttribute("sliding_window", MakeAttribute(visible.window));
    node->SetAttribute("softcap", MakeAttribute(static_cast<float>(match_.softcap)));
    PF_ASSIGN_OR_RETURN(
        Value * result,
        layout.Spread(node->output(0), {ports.Tokens(), ports.Heads(), {match_.d}}, match_.output));
    if (!sums) return std::vector<Value*>{result};
    PF_ASSIGN_OR_RETURN(Value * spread, ports.Sums(node->output(1), *sums));
    return std::vector<Value*>{result, spread};
  }

 private:
  const AttentionMatch& match_;
};

absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) {
  Value* output = node.output(0);
  IndexingAnalysis whole(context.contents);
  PF_ASSIGN_OR_RETURN(const AttentionMatch first, ReadAnyAttention(whole, output));
  IndexingAnalysis reader(context.contents);
  PF_ASSIGN_OR_RETURN(const AttentionMatch match, ReadAttention(reader, output, SplitsOf(first)));
  PF_ASSIGN_OR_RETURN(const Slot slot, SlotReader(reader, *scope.opsets, match).Read());
  const std::optional<LogSums> sums = LogSumsOf(reader, *scope.graph, match);
  PF_RETURN_IF_ERROR(CheckLowSums(sums));
  return ReplaceMatch(
      {reader, match, sums}, {kName, scope, context},
      [&](Replacement& replacement) { return SlotFuser(match).Build(replacement, slot, sums); });
}

}  // namespace

std::unique_ptr<Pass> FuseTurboQuantAttention() {
  return MakeMatchPass(kName,
                       "Fuses attention over TurboQuant slots that the graph decodes itself into "
                       "TurboQuantAttention.",
                       AttentionNodes, Fuse);
}

}  // namespace pagefuse
