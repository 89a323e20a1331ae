// SPDX-License-Identifier: Apache-2.0
// fuse-sparse-mla: attention over listed rows of a latent cache, of which the first elements are
// the values, becomes SparseMlaAttention. The match is read by element.
//
//   rows = cache[max (indices [T, K], 0)]
//   softmax (q . rows^T, indices >= 0) . rows[:, :512]
//     =>  SparseMlaAttention (q, cache, indices, ..)
//
// Rows may also be those of the token's sequence, through a block table (dense_latent.h).
#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"
#include "pagefuse/passes/analysis/attention/attention_match.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/analysis/indexing/replacement.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/indexed/dense_latent.h"
#include "pagefuse/passes/fuse/indexed/latent_rows.h"
#include "pagefuse/passes/fuse/indexed/match_pass.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "fuse-sparse-mla";

using Kind = IndexSymbol::Kind;

// A list of rows: where they lie, and the entry that says which.
struct Listed {
  LatentRows rows;
  IndexSymbolPtr n;
  IndexSymbolPtr entry;  // indices[t, n]
  bool by_sign = false;  // entries that are negative are none
  IndexSymbolPtr count;  // topk_lens[t]: entries behind the first ones are none
};

// indices[t, n], or not less than 0.
absl::StatusOr<IndexSymbolPtr> EntryOf(const LatentRows& rows, const IndexSymbolPtr& n) {
  IndexSymbolPtr symbol = rows.row.symbol();
  if (symbol && symbol->kind == Kind::kMax) {
    const bool first = symbol->args[0].number() == 0;
    const bool second = symbol->args[1].number() == 0;
    if (!first && !second) return absl::NotFoundError("rows are not listed");
    symbol = symbol->args[first ? 1 : 0].symbol();
  }
  const bool listed =
      symbol && symbol->kind == Kind::kLoad &&
      std::ranges::any_of(symbol->args, [&](const IndexExpr& arg) { return arg.Key() == n->key; });
  return listed ? absl::StatusOr<IndexSymbolPtr>(symbol)
                : absl::NotFoundError("rows are not listed");
}

absl::StatusOr<Listed> ListedOf(IndexingAnalysis& reader, const OpsetImports& opsets,
                                const RowList& list) {
  Listed listed;
  listed.n = list.n;
  PF_ASSIGN_OR_RETURN(listed.rows, ReadLatentRows(reader, opsets, list));
  PF_ASSIGN_OR_RETURN(listed.entry, EntryOf(listed.rows, list.n));
  for (const IndexExpr& condition : list.visible) {
    if (condition.Key() == IndexExpr::Of(listed.entry).Key()) {
      listed.by_sign = true;
      continue;
    }
    const IndexSymbolPtr count = (condition + IndexExpr::Of(list.n) + IndexExpr(1)).symbol();
    if (!count || count->kind != Kind::kLoad || listed.count) {
      return MatchFailure("the condition ", condition.Key(), " >= 0 is not that of listed rows");
    }
    listed.count = count;
  }
  if (!listed.by_sign && listed.rows.row.symbol()->kind == Kind::kMax) {
    return MatchFailure("entries that are negative are read as row 0 and not masked");
  }
  if (!listed.by_sign && !listed.count) return absl::NotFoundError("every row is read");
  return listed;
}

absl::StatusOr<std::vector<Listed>> ListsOf(IndexingAnalysis& reader, const OpsetImports& opsets,
                                            const AttentionMatch& match) {
  PF_ASSIGN_OR_RETURN(const std::vector<RowList> lists, RowListsOf(reader, match));
  if (lists.size() > 2) return MatchFailure("rows are of more than two lists");
  std::vector<Listed> all;
  for (const RowList& list : lists) {
    PF_ASSIGN_OR_RETURN(Listed listed, ListedOf(reader, opsets, list));
    if (!all.empty() && all[0].rows.format != listed.rows.format) {
      return MatchFailure("the lists are of caches of two formats");
    }
    all.push_back(std::move(listed));
  }
  return all;
}

// The ports of one list.
struct ListPorts {
  int cache, indices, lens;
};
constexpr ListPorts kFirst = {kSparseMlaIn["kv_cache"], kSparseMlaIn["indices"],
                              kSparseMlaIn["topk_lens"]};
constexpr ListPorts kExtra = {kSparseMlaIn["extra_kv_cache"], kSparseMlaIn["extra_indices"],
                              kSparseMlaIn["extra_topk_lens"]};

// The ports of listed rows.
class ListedPorts {
 public:
  ListedPorts(GraphBuilder& builder, IndexingAnalysis& reader, const AttentionMatch& match,
              const std::vector<Listed>& lists)
      : match_(match),
        lists_(lists),
        query_(NarrowQuery(reader, match)),
        layout_(builder, {match.query.value, lists[0].entry->tensor, lists[0].rows.cache}) {}

  absl::StatusOr<LatentCall> Call() {
    SortAxes();
    call_.format = lists_[0].rows.format;
    call_.block_size = lists_[0].rows.block_size;
    if (lists_.size() > 1) call_.extra_block_size = lists_[1].rows.block_size;
    call_.inputs.resize(kSparseMlaIn.size(), nullptr);
    PF_ASSIGN_OR_RETURN(call_.inputs[kSparseMlaIn["q"]],
                        layout_.Gathered(query_, {call_.tokens, call_.heads, {match_.e}}));
    PF_RETURN_IF_ERROR(AddList(lists_[0], kFirst));
    if (lists_.size() > 1) PF_RETURN_IF_ERROR(AddList(lists_[1], kExtra));
    return call_;
  }

  Layout& layout() { return layout_; }

 private:
  void SortAxes() {
    for (const IndexExpr& index : match_.output.at) {
      for (const auto& [key, term] : index.terms()) {
        if (key == match_.d->key) continue;
        const std::vector<IndexExpr>& entry = lists_[0].entry->args;
        const bool token = std::ranges::any_of(
            entry, [&key = key](const IndexExpr& arg) { return arg.Mentions(key); });
        (token ? call_.tokens : call_.heads).push_back(term.first);
      }
    }
  }

  absl::Status AddList(const Listed& list, const ListPorts& ports) {
    call_.inputs[ports.cache] = list.rows.cache;
    const Element entry{list.entry->tensor, list.entry->args};
    PF_ASSIGN_OR_RETURN(Value * indices, layout_.Gathered(entry, {call_.tokens, {list.n}}));
    call_.inputs[ports.indices] = layout_.AsInt32(indices);
    if (!list.count) return absl::OkStatus();
    const Element count{list.count->tensor, list.count->args};
    PF_ASSIGN_OR_RETURN(Value * lens, layout_.Gathered(count, {call_.tokens}));
    call_.inputs[ports.lens] = layout_.AsInt32(lens);
    return absl::OkStatus();
  }

  const AttentionMatch& match_;
  const std::vector<Listed>& lists_;
  const Element query_;
  LatentCall call_;
  Layout layout_;
};

// The op's sums leave the sink out, and are +inf in rows that see no key.
absl::Status CheckSums(const AttentionMatch& match, const std::optional<LogSums>& sums) {
  if (!sums) return absl::OkStatus();
  if (match.softmax->sink())
    return MatchFailure("log-sum-exps that hold a sink are none of the op's");
  if (!sums->empty || (std::isinf(*sums->empty) && *sums->empty > 0)) return absl::OkStatus();
  return MatchFailure("log-sum-exps are ", *sums->empty, " in rows that see no key, expected inf");
}

absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) {
  Value* output = node.output(0);
  IndexingAnalysis whole(context.contents);
  PF_ASSIGN_OR_RETURN(const AttentionMatch first,
                      ReadAnyAttention(whole, output, /*biased=*/false));
  // What guards entries that are not visible says nothing of those that are.
  IndexingAnalysis reader(context.contents);
  reader.Assume(first.visible);
  PF_ASSIGN_OR_RETURN(const AttentionMatch match, ReadAttention(reader, output));
  const auto lists = ListsOf(reader, *scope.opsets, match);
  std::optional<DenseLatentRows> dense;
  if (absl::IsNotFound(lists.status())) {
    PF_ASSIGN_OR_RETURN(dense, ReadDenseLatentRows(reader, *scope.opsets, match));
  } else {
    PF_RETURN_IF_ERROR(lists.status());
  }
  const std::optional<LogSums> sums = LogSumsOfKeys(reader, *scope.graph, match);
  PF_RETURN_IF_ERROR(CheckSums(match, sums));
  using Results = absl::StatusOr<std::vector<Value*>>;
  return ReplaceMatch({reader, match, sums}, {kName, scope, context},
                      [&](Replacement& replacement) -> Results {
                        GraphBuilder& builder = replacement.builder();
                        if (dense) return BuildDenseLatent(builder, reader, match, *dense, sums);
                        ListedPorts ports(builder, reader, match, *lists);
                        PF_ASSIGN_OR_RETURN(const LatentCall call, ports.Call());
                        return BuildLatentCall(builder, ports.layout(), match, call, sums);
                      });
}

}  // namespace

std::unique_ptr<Pass> FuseSparseMla() {
  return MakeMatchPass(
      kName,
      "Fuses attention over selected rows of a latent cache into SparseMlaAttention, however it "
      "is computed.",
      AttentionNodes, Fuse);
}

}  // namespace pagefuse
