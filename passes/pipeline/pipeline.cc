// SPDX-License-Identifier: Apache-2.0
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
  // Computes nodes whose inputs are constants.
  passes.Add(ConstantFolding());
  // Removes casts that keep every value.
  passes.Add(SimplifyCasts());
  // Merges and removes views, and reads sizes from graph inputs.
  passes.Add(SimplifyShapes());
  // Brings equal arithmetic to one form.
  passes.Add(SimplifyArithmetic());
  // Recognises products, sums and selections that are computed by other ops.
  passes.Add(SimplifyProducts());
  // Computes equal values once.
  passes.Add(Cse());
  // Erases nodes that nothing reads.
  passes.Add(DeadCode());
}

// Functions, older opsets and ops of other tools become the ops of one opset, in one form.
void Normalise(Passes& passes) {
  // Inlines model-local functions, so that patterns see their nodes.
  passes.Add(InlineFunctions());
  // Expands the elementwise chains of a graph that was fused before into the nodes that patterns
  // match.
  passes.Add(ExpandElementwise());
  // Converts older opsets to the one that the vocabulary of the next stage needs.
  passes.Add(RaiseOpset());
  // Decomposes attention and embedding that ONNX Runtime's tools fused.
  passes.Add(DecomposeMicrosoftOps());
  // Decomposes norms and sums of a residual that were joined before, so that the last norm is found.
  passes.Add(DecomposeAddNorm());
  // Decomposes attention with sinks of a graph that was fused before.
  passes.Add(DecomposeSinkAttention());
  // Gathers rows that are cut out of constant tables, one for each token. This comes before sizes are
  // read from inputs: until then the number of such rows, and of what is computed from them, is
  // unknown.
  passes.Add(ConstantFolding());
  passes.Add(GatherCutRows());
  Tidy(passes);
  // Replaces contiguous parts of constants by constants on the same memory.
  passes.Add(ConstantViews());
  // Gathers rows that are cut out of tables which were only now folded to constants.
  passes.Add(GatherCutRows());
  // Names sizes alike that are equal in every run, such as those of pasts.
  passes.Add(JoinSizes());
  Tidy(passes);
}

// Exporters' forms become the standard vocabulary.
void Recognise(Passes& passes) {
  // Gives block tables one row for each sequence.
  passes.Add(TablesBySequence());
  // Recognises number formats by what a subgraph computes.
  passes.Add(RecogniseScalarFunctions());
  // Writes rows by slot with ScatterND.
  passes.Add(EmbeddedRulePass("row-writes"));
  // Recognises written-out RMSNorm.
  passes.Add(EmbeddedRulePass("rms-norm"));
  // Brings RMSNorm to the form that fusions match.
  passes.Add(RecogniseNormForms());
  // Recognises x * sigmoid(x).
  passes.Add(EmbeddedRulePass("swish"));
  // Recognises written-out GELU.
  passes.Add(EmbeddedRulePass("activation"));
  // Merges the products of rows that were sorted by expert.
  passes.Add(RecogniseSortedExperts());
  // Removes the sorting of rows by expert and its inverse.
  passes.Add(UnsortedRows());
  // Recognises rows that were copied once for each of their experts.
  passes.Add(RecogniseCopiedRows());
  // Fuses products with matrices that were gathered, one for each row.
  passes.Add(EmbeddedRulePass("grouped-matmul"));
  // Recognises tensors that are filled by slice assignments, such as the halves of rotations.
  passes.Add(RecogniseFilledConcat());
  // Recognises written-out rotary embedding by its nodes.
  passes.Add(EmbeddedRulePass("rope"));
  // Gathers rows of cut, repeated and computed tables from the tables themselves.
  passes.Add(RecogniseTableRows());
  // Recognises the other variants of rotary embedding: interleaved channels, heads behind tokens,
  // scaled tables.
  passes.Add(RecogniseRopeByElement());
  // Recognises windows of rows that are each summed into one row.
  passes.Add(RecogniseWindowCompress());
  // Recognises the mixing of residual streams in hyper-connections.
  passes.Add(RecogniseHyperConnections());
  // Recognises the transposition of keys through three axes.
  passes.Add(RecogniseLastAxesTranspose());
  // Recognises keys that two scatters fill, as DeepSeek exports have them.
  passes.Add(RecogniseFilledConcat());
  // Brings variants of masks and heads to the form that the next pass matches.
  passes.Add(RecogniseAttentionForms());
  // Recognises written-out scaled dot-product attention with any mask.
  passes.Add(RecogniseAttention());
  // Lets attention run over latent rows. It is off unless an option asks for it, since paging does
  // the same.
  passes.Add(AbsorbMla());
  // Moves the repetition of heads and the Concat with caches into Attention.
  passes.Add(RecogniseAttentionInputs());
  // Replaces masks that are understood by attributes of Attention.
  passes.Add(RecogniseAttentionMask());
  Tidy(passes);
  // Fuses transposes of constant matrices into their products.
  passes.Add(EmbeddedRulePass("fuse-transposed-weights"));
  // Splits a product that computes both gate and up.
  passes.Add(RecogniseGatedHalves());
  // Fuses both products of a gated MLP.
  passes.Add(EmbeddedRulePass("gated-mlp"));
}

// Packed tokens over a paged cache.
void Page(Passes& passes) {
  // Packs tokens and gives every Attention a paged cache.
  passes.Add(InsertPagedCache());
  Tidy(passes);
  // Fuses the norm, rotation and insert of rows that a sliding window keeps.
  passes.Add(FuseWindowRows());
  // Fuses the rotation of index queries with the factors of their weights.
  passes.Add(FuseIndexQueries());
  // Computes logits for the tokens of logit_rows only.
  passes.Add(SelectLogits());
  Tidy(passes);
}

// Fused ops over caches.
void Fuse(Passes& passes) {
  // Fuses an indexer's scores.
  passes.Add(FuseIndexLogits());
  // Selects the top-k rows for each query by the indexer's scores.
  passes.Add(FuseIndexerTopK());
  // Looks up the slots of the selected rows in the block table.
  passes.Add(FuseTopKSlots());
  // Fuses scores over a paged cache with the top-k selection.
  passes.Add(EmbeddedRulePass("fuse-paged-topk"));
  // Fuses the remaining inserts, gathers and merges, by equivalence on test vectors.
  passes.Add(FuseEquivalent());
  // Fuses attention over selected latent rows.
  passes.Add(FuseSparseMla());
  // Fuses attention over TurboQuant slots that the graph decodes itself.
  passes.Add(FuseTurboQuantAttention());
  // Fuses attention over a paged or quantised cache.
  passes.Add(FusePagedAttention());
  // Fuses the writes of new rows into contiguous caches.
  passes.Add(FuseContiguousInsert());
  // Fuses attention with a sink that has no paged cache.
  passes.Add(FuseSinkAttention());
  // Splits rows into heads before their rotation, as the next pass expects.
  passes.Add(RotatedHeads());
  // Fuses norm, rotation, quantisation and cache insert.
  passes.Add(FuseRopeQuant());
}

// What fusions leave: reasons, products as they lie, weights, chains.
void Finish(bool pages, Passes& passes) {
  // Reports what did not fuse, and why. This comes before the next passes bring products to forms
  // that rules do not match.
  passes.Add(DeadCode());
  passes.Add(UnfusedPlaces(pages));
  // Lets grouped products read rows that were copied for several experts.
  passes.Add(FuseRepeatedRows());
  // Lets what is left move less, as the angles of rotary embedding. All other rules have matched it.
  passes.Add(CheaperForms());
  // Fuses the remaining transposes of right-hand matrices into their products.
  passes.Add(EmbeddedRulePass("fuse-transposed-factors"));
  // Computes once what only moves the numbers of a constant. All other rules have matched the float
  // matrices by now.
  passes.Add(FoldWeights());
  // Stores weights as bfloat16 or codes, those that were moved too.
  passes.Add(QuantiseWeights());
  Tidy(passes);
  // Of a constant that was read twice, and is stored for one of its readers now, the other's; which is
  // stored too.
  passes.Add(FoldWeights());
  passes.Add(QuantiseWeights());
  // Fuses the guard, scaling, cast or quantisation of the result of paged attention.
  passes.Add(FusePagedOutput());
  // Joins the norms on both sides of an addition to the residual.
  passes.Add(EmbeddedRulePass("join-norms"));
  // Lets products give channels in the order in which they are read. Weights have their format now.
  passes.Add(ChannelOrder());
  // Joins products of one input, as those of query, key and value are, and lets them split.
  passes.Add(JoinProductsOfOneInput());
  // Fuses the elementwise ops that remain into chains.
  passes.Add(FuseElementwise());
  // Cuts cache groups into parts that share pages of one size, where an option asks for it.
  if (pages) passes.Add(PlanCachePages());
}

}  // namespace

std::vector<std::unique_ptr<Pass>> DecoderPipeline() {
  Passes passes;
  Normalise(passes);
  Recognise(passes);
  Page(passes);
  // Stores keys and values in the format that the options ask for.
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
