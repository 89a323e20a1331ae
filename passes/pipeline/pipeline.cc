// All passes, in order.
#include "pagefuse/passes/pipeline/pipeline.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/similar_names.h"
#include "pagefuse/passes/explain/explain.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/lower/lower.h"
#include "pagefuse/passes/normalise/normalise.h"
#include "pagefuse/passes/paging/paging.h"
#include "pagefuse/passes/quantise/quantise.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/rewrite/text/embedded_rules.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

// A list that passes are added to.
class Passes {
 public:
  void Add(std::unique_ptr<Pass> pass) { list_.push_back(std::move(pass)); }
  std::vector<std::unique_ptr<Pass>> Take() { return std::move(list_); }

 private:
  std::vector<std::unique_ptr<Pass>> list_;
};

// ---- Stages, which both pipelines share ----

// Between stages: what was rewritten leaves views, sizes and casts behind.
void Tidy(Passes& passes) {
  // Computes what is constant, Constant nodes included.
  passes.Add(ConstantFolding());
  // Removes casts that change nothing or lose nothing.
  passes.Add(SimplifyCasts());
  // Joins and removes views; reads sizes from graph inputs.
  passes.Add(SimplifyShapes());
  // One form for equal sums.
  passes.Add(SimplifyArithmetic());
  // Sums and choices by other ops.
  passes.Add(SimplifyProducts());
  // One value for what is computed twice.
  passes.Add(Cse());
  // Erases what nothing reads.
  passes.Add(DeadCode());
}

// Functions, older opsets and ops of other tools become the ops of one opset, in one form.
void Normalise(Passes& passes) {
  // Bodies for calls, so that patterns see them.
  passes.Add(InlineFunctions());
  // Chains of elementwise ops, in a graph that was fused before, as the nodes that patterns know.
  passes.Add(ExpandElementwise());
  // The opset that the vocabulary of the next stage needs.
  passes.Add(RaiseOpset());
  // Attention and embedding that ONNX Runtime's tools fused, in standard ops again.
  passes.Add(DecomposeMicrosoftOps());
  // Attention with sinks of a graph that was fused before.
  passes.Add(DecomposeSinkAttention());
  // Rows cut out of constant tables, one for each token, are gathered by place: before sizes are
  // read from inputs, since until then nothing is known of the length of what they meet.
  passes.Add(ConstantFolding());
  passes.Add(GatherCutRows());
  Tidy(passes);
  // Parts of constants are constants, without copies.
  passes.Add(ConstantViews());
  // The same of tables that are computed from constants.
  passes.Add(GatherCutRows());
  Tidy(passes);
}

// Exporters' forms become the standard vocabulary.
void Recognise(Passes& passes) {
  // A row of a block table for every sequence.
  passes.Add(TablesBySequence());
  // Codes of number formats, by what is computed.
  passes.Add(RecogniseScalarFunctions());
  // Rows written by slot.
  passes.Add(EmbeddedRulePass("row-writes"));
  // RMSNorm written out.
  passes.Add(EmbeddedRulePass("rms-norm"));
  passes.Add(RecogniseNormForms());
  // x * sigmoid(x).
  passes.Add(EmbeddedRulePass("swish"));
  // GELU written out.
  passes.Add(EmbeddedRulePass("activation"));
  // Products of rows that were sorted by their experts.
  passes.Add(RecogniseSortedExperts());
  passes.Add(UnsortedRows());
  // Rows gathered once for each of their experts.
  passes.Add(RecogniseCopiedRows());
  // Products with matrices that were gathered, one for each row.
  passes.Add(EmbeddedRulePass("grouped-matmul"));
  // Tensors filled by slice assignments, halves of rotations among them.
  passes.Add(RecogniseFilledConcat());
  // Rotary embedding written out.
  passes.Add(EmbeddedRulePass("rope"));
  // The same by element: neighbouring channels, heads behind tokens, scaled tables.
  passes.Add(RecogniseRopeByElement());
  // Windows of rows, each summed into one row.
  passes.Add(RecogniseWindowCompress());
  // Streams of a residual, read, written and mixed.
  passes.Add(RecogniseHyperConnections());
  // Keys that an exporter transposes by way of three axes.
  passes.Add(RecogniseLastAxesTranspose());
  // Keys filled in by two scatters, as DeepSeek exports have them.
  passes.Add(RecogniseFilledConcat());
  // Masks added one by one, and heads beside each other in rows.
  passes.Add(RecogniseAttentionForms());
  // Scaled dot-product attention written out, under any mask.
  passes.Add(RecogniseAttention());
  // Attention over latent rows themselves; off unless asked for, paging does it anyway.
  passes.Add(AbsorbMla());
  // Repeated heads and joined caches become inputs of Attention.
  passes.Add(RecogniseAttentionInputs());
  // Understood masks become attributes of Attention.
  passes.Add(RecogniseAttentionMask());
  Tidy(passes);
  // Products with a transposed constant read it as it lies.
  passes.Add(EmbeddedRulePass("fuse-transposed-weights"));
  // Gate and up in one product.
  passes.Add(RecogniseGatedHalves());
  // Both products of a gated MLP in one op.
  passes.Add(EmbeddedRulePass("gated-mlp"));
}

// Packed tokens over a paged cache.
void Page(Passes& passes) {
  // Packed tokens, and a paged cache under every Attention.
  passes.Add(InsertPagedCache());
  Tidy(passes);
  // Queries and rows of sliding windows as they are stored.
  passes.Add(FuseWindowRows());
  // Queries that choose among rows.
  passes.Add(FuseIndexQueries());
  // Logits of last tokens only.
  passes.Add(SelectLogits());
  Tidy(passes);
}

// Fused ops over caches.
void Fuse(Passes& passes) {
  // An indexer's scores, however they are written.
  passes.Add(FuseIndexLogits());
  // The best of them.
  passes.Add(FuseIndexerTopK());
  // Their slots in a paged cache.
  passes.Add(FuseTopKSlots());
  // Scores and choice over a paged cache in one op.
  passes.Add(EmbeddedRulePass("fuse-paged-topk"));
  // Inserts into caches, gathers out of them and what goes with them, by what is computed.
  passes.Add(FuseEquivalent());
  // Attention over listed latent rows, however it is written.
  passes.Add(FuseSparseMla());
  // Attention over codebook keys and stepped values, unpacked in the graph.
  passes.Add(FuseTurboQuantAttention());
  // Attention over a paged or quantised cache, however it is written.
  passes.Add(FusePagedAttention());
  // New rows of its contiguous caches.
  passes.Add(FuseContiguousInsert());
  // Attention with a sink that has no paged cache.
  passes.Add(FuseSinkAttention());
  // Rows that are rotated as they leave their projection, as heads.
  passes.Add(RotatedHeads());
  // Norm, rotation, quantisation and insert in one op.
  passes.Add(FuseRopeQuant());
}

// What fusions leave: reasons, products as they lie, weights, chains.
void Finish(bool pages, Passes& passes) {
  // What no fused op took up, and why; before products look otherwise than rules know them.
  passes.Add(DeadCode());
  passes.Add(UnfusedPlaces(pages));
  // Rows of several experts, where they are.
  passes.Add(FuseRepeatedRows());
  // Products with any other transposed right side read it as it lies.
  passes.Add(EmbeddedRulePass("fuse-transposed-factors"));
  // Codes in place of float matrices, where all other rules have seen those.
  passes.Add(QuantiseWeights());
  Tidy(passes);
  // What a paged attention's result becomes at once.
  passes.Add(FusePagedOutput());
  // What is left of elementwise ops, in chains.
  passes.Add(FuseElementwise());
}

}  // namespace

std::vector<std::unique_ptr<Pass>> DecoderPipeline() {
  Passes passes;
  Normalise(passes);
  Recognise(passes);
  Page(passes);
  // 8-bit caches with their scales.
  passes.Add(QuantiseKvCache());
  Fuse(passes);
  Finish(/*pages=*/true, passes);
  return passes.Take();
}

std::vector<std::unique_ptr<Pass>> FragmentPipeline() {
  Passes passes;
  Normalise(passes);
  Recognise(passes);
  Fuse(passes);
  Finish(/*pages=*/false, passes);
  return passes.Take();
}

std::vector<std::unique_ptr<Pass>> AllPasses() {
  std::vector<std::unique_ptr<Pass>> passes = DecoderPipeline();
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
