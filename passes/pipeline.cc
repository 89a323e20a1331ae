// All passes, in order.
#include "pagefuse/passes/pipeline.h"

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/authoring/embedded_rules.h"
#include "pagefuse/passes/canonicalise/canonicalise.h"
#include "pagefuse/passes/explain/explain.h"
#include "pagefuse/passes/export/export.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/page/page.h"
#include "pagefuse/passes/quantise/quantise.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/similar_names.h"
#include "pagefuse/passes/words/words.h"

namespace pagefuse {
namespace {

enum class Stages { kAll, kFusion };

// The pipeline. `kFusion` leaves out what changes inputs and outputs.
// NOLINTNEXTLINE(readability-function-size): one list, so that the order can be read.
std::vector<std::unique_ptr<Pass>> PassesOf(Stages stages) {
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
    // Sums and choices by other ops.
    add(SimplifyProducts());
    // One value for what is computed twice.
    add(Cse());
    // Erases what nothing reads.
    add(DeadCode());
  };

  // ---- canonicalise ----
  // Bodies for calls, so that patterns see them.
  add(InlineFunctions());
  // Chains of elementwise ops, in a graph that was fused before, as the nodes that patterns know.
  add(ExpandElementwise());
  // The opset that the vocabulary of the next stage needs.
  add(RaiseOpset());
  // Attention and embedding that ONNX Runtime's tools fused, in standard ops again.
  add(WriteOutMicrosoftOps());
  // Attention with sinks of a graph that was fused before.
  add(WriteOutSinkAttention());
  // Rows cut out of constant tables, one for each token, are gathered by place: before sizes are
  // read from inputs, since until then nothing is known of the length of what they meet.
  add(ConstantFolding());
  add(GatherCutRows());
  tidy();
  // Parts of constants are constants, without copies.
  add(ConstantViews());
  // The same of tables that are computed from constants.
  add(GatherCutRows());
  tidy();

  // ---- recognise ----
  // A row of a block table for every sequence.
  add(TablesBySequence());
  // Codes of number formats, by what is computed.
  add(RecogniseScalarFunctions());
  // Rows written by slot.
  add(EmbeddedRulePass("row-writes"));
  // RMSNorm written out.
  add(EmbeddedRulePass("rms-norm"));
  add(RecogniseNormForms());
  // x * sigmoid(x).
  add(EmbeddedRulePass("swish"));
  // GELU written out.
  add(EmbeddedRulePass("activation"));
  // Products of rows that were sorted by their experts.
  add(RecogniseSortedExperts());
  add(UnsortRows());
  // Rows gathered once for each of their experts.
  add(RecogniseCopiedRows());
  // Products with matrices that were gathered, one for each row.
  add(EmbeddedRulePass("grouped-matmul"));
  // Tensors filled by slice assignments, halves of rotations among them.
  add(RecogniseFilledConcat());
  // Rotary embedding written out.
  add(EmbeddedRulePass("rope"));
  // The same by element: neighbouring channels, heads behind tokens, scaled tables.
  add(RecogniseRopeByElement());
  // Windows of rows, each summed into one row.
  add(RecogniseWindowCompress());
  // Streams of a residual, read, written and mixed.
  add(RecogniseHyperConnections());
  // Keys that an exporter transposes by way of three axes.
  add(RecogniseLastAxesTranspose());
  // Keys filled in by two scatters, as DeepSeek exports have them.
  add(RecogniseFilledConcat());
  // Masks added one by one, and heads beside each other in rows.
  add(RecogniseAttentionSpellings());
  // Scaled dot-product attention written out, under any mask.
  add(RecogniseAttention());
  // Attention over latent rows themselves; off unless asked for, paging does it anyway.
  add(AbsorbMla());
  // Repeated heads and joined caches become inputs of Attention.
  add(RecogniseAttentionInputs());
  // Understood masks become attributes of Attention.
  add(RecogniseAttentionMask());
  tidy();
  // Products with a transposed constant read it as it lies.
  add(EmbeddedRulePass("fuse-transposed-weights"));
  // Gate and up in one product.
  add(RecogniseGatedHalves());
  // Both products of a gated MLP in one op.
  add(EmbeddedRulePass("gated-mlp"));

  // ---- page ----
  if (stages == Stages::kAll) {
    // Packed tokens, and a paged cache under every Attention.
    add(InsertPagedCache());
    tidy();
    // Queries and rows of sliding windows as they are stored.
    add(FuseWindowRows());
    // Queries that choose among rows.
    add(FuseIndexQueries());
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
  // Scores and choice over a paged cache in one op.
  add(EmbeddedRulePass("fuse-paged-topk"));
  // Quantisation and the write into a paged cache, written out.
  add(FuseCacheInsert());
  // The same ops in any other spelling, by what is computed.
  add(FuseByResults());
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
  // Attention with a sink that has no paged cache.
  add(FuseSinkAttention());
  // Rows that are rotated as they leave their projection, as heads.
  add(SeeRotatedHeads());
  // Norm, rotation, quantisation and insert in one op.
  add(FuseRopeQuant());
  // What no fused op took up, and why; before products look otherwise than rules know them.
  add(DeadCode());
  add(UnfusedSites(/*pages=*/stages == Stages::kAll));
  // Rows of several experts, where they are.
  add(FuseRepeatedRows());
  // Products with any other transposed right side read it as it lies.
  add(EmbeddedRulePass("fuse-transposed-factors"));

  // ---- weights ----
  // Codes in place of float matrices, where all other rules have seen those.
  add(QuantiseWeights());

  // ---- tidy ----
  tidy();
  // What a paged attention's result becomes at once.
  add(FusePagedOutput());
  // What is left of elementwise ops, in chains.
  add(FuseElementwise());
  return passes;
}

}  // namespace

std::vector<std::unique_ptr<Pass>> DefaultPipeline() { return PassesOf(Stages::kAll); }

std::vector<std::unique_ptr<Pass>> FusionPipeline() { return PassesOf(Stages::kFusion); }

std::vector<std::unique_ptr<Pass>> AllPasses() {
  std::vector<std::unique_ptr<Pass>> passes = DefaultPipeline();
  for (std::unique_ptr<Pass>& pass : ExportPasses()) passes.push_back(std::move(pass));
  return passes;
}

std::vector<std::string> ExportStage() {
  std::vector<std::string> names;
  for (const std::unique_ptr<Pass>& pass : ExportPasses()) names.emplace_back(pass->name());
  return names;
}

std::vector<std::string> LoadPasses() {
  return {"constant-views", "grouped-matmul", "fuse-transposed-factors", "fuse-elementwise"};
}

absl::StatusOr<std::unique_ptr<Pass>> FindPass(std::string_view name) {
  std::vector<std::string> others;
  for (std::unique_ptr<Pass>& pass : AllPasses()) {
    if (pass->name() == name) return std::move(pass);
    others.emplace_back(pass->name());
  }
  return absl::NotFoundError(StrCat("there is no pass \"", name, "\"", SimilarNames(name, others)));
}

}  // namespace pagefuse
