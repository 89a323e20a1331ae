// All passes, in order.
#include "pagefuse/passes/pipeline.h"

#include <algorithm>

#include "absl/strings/str_join.h"

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/canonicalise/canonicalise.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/page/page.h"
#include "pagefuse/passes/quantise/quantise.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/words/words.h"

namespace pagefuse {
namespace {

enum class Stages { kAll, kFusion };

// The pipeline. `kFusion` leaves out what changes inputs and outputs.
// NOLINTNEXTLINE(readability-function-size): one list, so that the order can be read.
std::vector<std::unique_ptr<Pass>> AllPasses(Stages stages) {
  std::vector<std::unique_ptr<Pass>> passes;
  const auto add = [&passes](std::unique_ptr<Pass> pass) { passes.push_back(std::move(pass)); };
  // Twice: what is recognised leaves views and sizes behind.
  const auto tidy = [&add] {
    // Computes what is constant, Constant nodes included.
    add(ConstantFolding());
    // Removes casts that change nothing or lose nothing.
    add(SimplifyCasts());
    // Joins and removes views; reads sizes from graph inputs.
    add(SimplifyShapes());
    // One spelling for equal sums.
    add(SimplifyArithmetic());
    // One value for what is computed twice.
    add(Cse());
    // Erases what nothing reads.
    add(DeadCode());
  };

  // ---- canonicalise ----
  // Bodies for calls, so that patterns see them.
  add(InlineFunctions());
  // The opset that the vocabulary of the next stage needs.
  add(RaiseOpset());
  tidy();
  // Parts of constants are constants, without copies.
  add(ConstantViews());
  tidy();

  // ---- recognise ----
  // As many rows of a block table as sequences.
  add(DeclareEqualBatches());
  // Codes of number formats, by what is computed.
  add(RecogniseScalarFunctions());
  // Rows written by slot.
  add(RecogniseRowWrites());
  // RMSNorm written out.
  add(RecogniseRmsNorm());
  // x * sigmoid(x).
  add(RecogniseSwish());
  // GELU written out.
  add(RecogniseActivation());
  // Products with matrices that were gathered, one for each row.
  add(RecogniseGroupedMatMul());
  // Rotary embedding written out.
  add(RecogniseRope());
  // Keys that an exporter transposes by way of three axes.
  add(RecogniseLastAxesTranspose());
  // Keys filled in by two scatters, as DeepSeek exports have them; off unless asked for.
  add(RecogniseFilledConcat());
  // Scaled dot-product attention written out, under any mask.
  add(RecogniseAttention());
  // Attention over latent rows themselves; off unless asked for.
  add(AbsorbMla());
  // Repeated heads and joined caches become inputs of Attention.
  add(RecogniseAttentionInputs());
  // Understood masks become attributes of Attention.
  add(RecogniseAttentionMask());
  tidy();
  // Products with a transposed constant read it as it lies.
  add(FuseTransposedWeights());
  // Both products of a gated MLP in one op.
  add(RecogniseGatedMlp());

  // ---- page ----
  if (stages == Stages::kAll) {
    // Packed tokens, and a paged cache under every Attention.
    add(InsertPagedCache());
    tidy();
    // Logits of last tokens only.
    add(SelectLogits());
    tidy();
  }

  // ---- quantise ----
  if (stages == Stages::kAll) {
    // 8-bit caches with their scales.
    add(QuantiseKvCache());
  }

  // ---- fuse ----
  // An indexer's scores, however they are written.
  add(FuseIndexLogits());
  // The best of them.
  add(FuseIndexerTopK());
  // Their slots in a paged cache.
  add(FuseTopKSlots());
  // Ops of sparse attention and compressed caches, written out.
  add(FuseDecompositions());
  // Quantisation and the write into a paged cache, written out.
  add(FuseCacheInsert());
  // Attention over listed latent rows, however it is written.
  add(FuseSparseMla());
  // Attention over codebook keys and stepped values, unpacked in the graph.
  add(FuseTurboQuantAttention());
  // Attention over a paged or quantised cache, however it is written.
  add(FusePagedAttention());
  // New rows of its contiguous caches.
  add(FuseContiguousInsert());
  // Attention over a paged cache, as the op's decomposition has it.
  add(FuseDequantAttention());
  // Norm, rotation, quantisation and insert in one op.
  add(FuseRopeQuant());
  // Products with any other transposed right side read it as it lies.
  add(FuseTransposedFactors());

  // ---- tidy ----
  tidy();
  // What is left of elementwise ops, in chains.
  add(FuseElementwise());
  return passes;
}

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<std::unique_ptr<Pass>> DefaultPipeline() { return AllPasses(Stages::kAll); }

std::vector<std::unique_ptr<Pass>> FusionPipeline() { return AllPasses(Stages::kFusion); }

std::vector<std::string> LoadPasses() {
  return {"constant-views", "grouped-matmul", "fuse-transposed-factors", "fuse-elementwise"};
}

absl::StatusOr<std::unique_ptr<Pass>> FindPass(std::string_view name) {
  std::vector<std::pair<int, std::string>> others;
  for (std::unique_ptr<Pass>& pass : DefaultPipeline()) {
    if (pass->name() == name) return std::move(pass);
    others.emplace_back(EditDistance(name, pass->name()), pass->name());
  }
  std::sort(others.begin(), others.end());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  // As near as the nearest, give or take a letter or two.
  constexpr size_t kMaxNames = 3;
  constexpr int kSlack = 2;
  std::vector<std::string> similar;
  for (size_t i = 0; i < std::min(kMaxNames, others.size()); ++i) {
    if (others[i].first > others[0].first + kSlack) break;
    similar.push_back(StrCat("\"", others[i].second, "\""));
  }
  return absl::NotFoundError(
      StrCat("there is no pass \"", name, "\"; similar names: ", absl::StrJoin(similar, ", ")));
}

}  // namespace pagefuse
