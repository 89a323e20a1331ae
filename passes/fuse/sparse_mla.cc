// fuse-sparse-mla: attention over listed rows of a latent cache, of which the first elements are
// the values, becomes SparseMlaAttention. The site is read by element.
//
//   rows = cache[max (indices [T, K], 0)]
//   softmax (q . rows^T, indices >= 0) . rows[:, :512]
//     =>  SparseMlaAttention (q, cache, indices, ..)
//
// Rows may also be those of the token's sequence, through a block table (dense_latent.h).
#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"
#include "pagefuse/passes/fuse/dense_latent.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/latent_rows.h"
#include "pagefuse/passes/fuse/site_pass.h"
#include "pagefuse/passes/refused.h"
#include "pagefuse/passes/words/arrange.h"
#include "pagefuse/passes/words/attention_site.h"
#include "pagefuse/passes/words/replacement.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "fuse-sparse-mla";

using Kind = IndexAtom::Kind;

// A list of rows: where they lie, and the entry that says which.
struct Listed {
  LatentRows rows;
  AtomPtr n;
  AtomPtr entry;         // indices[t, n]
  bool by_sign = false;  // entries that are negative are none
  AtomPtr count;         // topk_lens[t]: entries behind the first ones are none
};

// indices[t, n], or not less than 0.
absl::StatusOr<AtomPtr> EntryOf(const LatentRows& rows, const AtomPtr& n) {
  AtomPtr atom = rows.row.atom();
  if (atom && atom->kind == Kind::kMax) {
    const bool first = atom->args[0].number() == 0;
    const bool second = atom->args[1].number() == 0;
    if (!first && !second) return absl::NotFoundError("rows are not listed");
    atom = atom->args[first ? 1 : 0].atom();
  }
  const bool listed = atom && atom->kind == Kind::kLoad &&
                      std::any_of(atom->args.begin(), atom->args.end(),
                                  [&](const IndexForm& arg) { return arg.Key() == n->key; });
  return listed ? absl::StatusOr<AtomPtr>(atom) : absl::NotFoundError("rows are not listed");
}

absl::StatusOr<Listed> ListedOf(ElementReader& reader, const OpsetImports& opsets,
                                const RowList& list) {
  Listed listed;
  listed.n = list.n;
  PF_ASSIGN_OR_RETURN(listed.rows, ReadLatentRows(reader, opsets, list));
  PF_ASSIGN_OR_RETURN(listed.entry, EntryOf(listed.rows, list.n));
  for (const IndexForm& condition : list.visible) {
    if (condition.Key() == IndexForm::Of(listed.entry).Key()) {
      listed.by_sign = true;
      continue;
    }
    const AtomPtr count = (condition + IndexForm::Of(list.n) + IndexForm(1)).atom();
    if (!count || count->kind != Kind::kLoad || listed.count) {
      return Refused("the condition ", condition.Key(), " >= 0 is not that of listed rows");
    }
    listed.count = count;
  }
  if (!listed.by_sign && listed.rows.row.atom()->kind == Kind::kMax) {
    return Refused("entries that are negative are read as row 0 and not masked");
  }
  if (!listed.by_sign && !listed.count) return absl::NotFoundError("every row is read");
  return listed;
}

absl::StatusOr<std::vector<Listed>> ListsOf(ElementReader& reader, const OpsetImports& opsets,
                                            const AttentionSite& site) {
  PF_ASSIGN_OR_RETURN(const std::vector<RowList> lists, RowListsOf(reader, site));
  if (lists.size() > 2) return Refused("rows are of more than two lists");
  std::vector<Listed> all;
  for (const RowList& list : lists) {
    PF_ASSIGN_OR_RETURN(Listed listed, ListedOf(reader, opsets, list));
    if (!all.empty() && all[0].rows.format != listed.rows.format) {
      return Refused("the lists are of caches of two formats");
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
  ListedPorts(GraphBuilder& builder, ElementReader& reader, const AttentionSite& site,
              const std::vector<Listed>& lists)
      : site_(site),
        lists_(lists),
        query_(NarrowQuery(reader, site)),
        arranger_(builder, {site.query.value, lists[0].entry->tensor, lists[0].rows.cache}) {}

  absl::StatusOr<LatentCall> Call() {
    SortAxes();
    call_.format = lists_[0].rows.format;
    call_.block_size = lists_[0].rows.block_size;
    if (lists_.size() > 1) call_.extra_block_size = lists_[1].rows.block_size;
    call_.inputs.resize(kSparseMlaIn.size(), nullptr);
    PF_ASSIGN_OR_RETURN(call_.inputs[kSparseMlaIn["q"]],
                        arranger_.Gathered(query_, {call_.tokens, call_.heads, {site_.e}}));
    PF_RETURN_IF_ERROR(AddList(lists_[0], kFirst));
    if (lists_.size() > 1) PF_RETURN_IF_ERROR(AddList(lists_[1], kExtra));
    return call_;
  }

  Arranger& arranger() { return arranger_; }

 private:
  void SortAxes() {
    for (const IndexForm& index : site_.output.at) {
      for (const auto& [key, term] : index.terms()) {
        if (key == site_.d->key) continue;
        const std::vector<IndexForm>& entry = lists_[0].entry->args;
        const bool token =
            std::any_of(entry.begin(), entry.end(),
                        [&key = key](const IndexForm& arg) { return arg.Mentions(key); });
        (token ? call_.tokens : call_.heads).push_back(term.first);
      }
    }
  }

  absl::Status AddList(const Listed& list, const ListPorts& ports) {
    call_.inputs[ports.cache] = list.rows.cache;
    const Element entry{list.entry->tensor, list.entry->args};
    PF_ASSIGN_OR_RETURN(Value * indices, arranger_.Gathered(entry, {call_.tokens, {list.n}}));
    call_.inputs[ports.indices] = arranger_.AsInt32(indices);
    if (!list.count) return absl::OkStatus();
    const Element count{list.count->tensor, list.count->args};
    PF_ASSIGN_OR_RETURN(Value * lens, arranger_.Gathered(count, {call_.tokens}));
    call_.inputs[ports.lens] = arranger_.AsInt32(lens);
    return absl::OkStatus();
  }

  const AttentionSite& site_;
  const std::vector<Listed>& lists_;
  const Element query_;
  LatentCall call_;
  Arranger arranger_;
};

// The op's sums leave the sink out, and are +inf in rows that see no key.
absl::Status CheckSums(const AttentionSite& site, const std::optional<LogSums>& sums) {
  if (!sums) return absl::OkStatus();
  if (site.softmax->sink()) return Refused("log-sum-exps that hold a sink are none of the op's");
  if (!sums->empty || (std::isinf(*sums->empty) && *sums->empty > 0)) return absl::OkStatus();
  return Refused("log-sum-exps are ", *sums->empty, " in rows that see no key, expected inf");
}

absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) {
  Value* output = node.output(0);
  ElementReader whole(context.contents);
  PF_ASSIGN_OR_RETURN(const AttentionSite first, ReadAttention(whole, output));
  PF_RETURN_IF_ERROR(CheckNoBias(first));
  // What guards entries that are not visible says nothing of those that are.
  ElementReader reader(context.contents);
  reader.Assume(first.visible);
  PF_ASSIGN_OR_RETURN(const AttentionSite site, ReadAttention(reader, output));
  const auto lists = ListsOf(reader, *scope.opsets, site);
  std::optional<DenseLatentRows> dense;
  if (absl::IsNotFound(lists.status())) {
    PF_ASSIGN_OR_RETURN(dense, ReadDenseLatentRows(reader, *scope.opsets, site));
  } else {
    PF_RETURN_IF_ERROR(lists.status());
  }
  const std::optional<LogSums> sums = LogSumsOfKeys(reader, *scope.graph, site);
  PF_RETURN_IF_ERROR(CheckSums(site, sums));
  using Results = absl::StatusOr<std::vector<Value*>>;
  return ReplaceSite({reader, site, sums}, {kName, scope, context},
                     [&](Replacement& replacement) -> Results {
                       GraphBuilder& builder = replacement.builder();
                       if (dense) return BuildDenseLatent(builder, reader, site, *dense, sums);
                       ListedPorts ports(builder, reader, site, *lists);
                       PF_ASSIGN_OR_RETURN(const LatentCall call, ports.Call());
                       return BuildLatentCall(builder, ports.arranger(), site, call, sums);
                     });
}

}  // namespace

std::unique_ptr<Pass> FuseSparseMla() {
  return MakeSitePass(kName, "Fuses attention over listed rows of a latent cache, read by element.",
                      AttentionNodes, Fuse);
}

}  // namespace pagefuse
