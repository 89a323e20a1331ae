// SPDX-License-Identifier: Apache-2.0
// Declares the rules of simplify-products, by the file that defines them.
#pragma once

#include "pagefuse/passes/simplify/peephole.h"

namespace pagefuse {

// --- einsum_rules.cc ---
bool EinsumToProduct(Node& node, Peephole& peephole);  // as MatMul, Mul, ReduceSum and Transpose

// --- reduction_rules.cc ---
bool TopOneToMax(Node& node, Peephole& peephole);           // TopK of one, its place not read
bool ReductionOfSquares(Node& node, Peephole& peephole);    // ReduceSumSquare, ReduceL2, ReduceL1
bool ProductWithOnesToSum(Node& node, Peephole& peephole);  // rows times a column of one number
bool ProductThatPicks(Node& node, Peephole& peephole);      // rows times columns of one 1 each
bool ReductionOfTranspose(Node& node, Peephole& peephole);  // along what was the last axis
bool SoftmaxLessMost(Node& node, Peephole& peephole);       // of scores less the most of each row
bool SoftmaxOfTranspose(Node& node, Peephole& peephole);
bool TransposedProduct(Node& node, Peephole& peephole);  // of operands that are transposed too

// --- contraction_rules.cc ---
bool SumOfOuterProducts(Node& node, Peephole& peephole);  // as Einsum
bool FactorOutOfProduct(Node& node, Peephole& peephole);  // numbers that operands are scaled by
bool PowersToSoftmax(Node& node, Peephole& peephole);
bool PowersOfLogSoftmax(Node& node, Peephole& peephole);

// --- transpose_rules.cc ---
bool ElementwiseBetweenTransposes(Node& node, Peephole& peephole);  // all transposed alike
bool TransposeIntoElementwise(Node& node, Peephole& peephole);      // where that leaves fewer
bool TransposeOfElementwise(Node& node, Peephole& peephole);  // of operands that are transposed

// --- flat_batches.cc: views [B, H, ..] -> [B * H, ..] ---
bool ProductOfFlatBatches(Node& node, Peephole& peephole);
bool ElementwiseOfFlatBatches(Node& node, Peephole& peephole);

// --- sink_rules.cc ---
bool GateToSink(Node& node,
                Peephole& peephole);  // sums by a softmax, times sigmoid (log sum - sink)

// --- choice_rules.cc ---
bool ChoiceToMax(Node& node, Peephole& peephole);  // a < b ? b : a, of floats that are numbers
// One value, or constants of one and the same number.
bool AreTheSame(const Value* a, const Value* b);

// --- mask_rules.cc ---
bool ProductWithBoolToWhere(Node& node, Peephole& peephole);  // x * c is c ? x : 0
bool SumOfChoices(Node& node, Peephole& peephole);            // (c ? x : 0) + (c ? 0 : y)
bool OneLessBoolToNot(Node& node, Peephole& peephole);        // 1 - c
bool CountOfBools(Node& node, Peephole& peephole);            // in floats
bool WhereOfWhere(Node& node, Peephole& peephole);            // c ? (d ? x : y) : y
bool ProductWithOnesToExpand(Node& node, Peephole& peephole);
bool RepeatToExpand(Node& node, Peephole& peephole);       // Tile or Gather along axes of length 1
bool NegationToNeg(Node& node, Peephole& peephole);        // -1 * x, 0 - x
bool WhereOfNots(Node& node, Peephole& peephole);          // !a | !b ? x : y is a & b ? y : x
bool BitsToRemainder(Node& node, Peephole& peephole);      // x & 15 is x mod 16
bool NotOfNots(Node& node, Peephole& peephole);            // !(!a | !b) is a & b
bool ProductOfBoolsToAnd(Node& node, Peephole& peephole);  // as numbers, and a bool again
bool CountToRange(Node& node, Peephole& peephole);         // cumulative sums of ones, less one
bool SumOfPadsToConcat(Node& node, Peephole& peephole);    // each 0 where the other is not
bool SigmoidToTanh(Node& node, Peephole& peephole);        // 2 * sigmoid (2 x) - 1

// --- unrolled_heads.cc ---
bool JoinHeads(Node& node, Peephole& peephole);    // the same of each part, joined again
bool JoinConcats(Node& node, Peephole& peephole);  // of Concats along the same axis
bool JoinWrites(Node& node, Peephole& peephole);   // rows that are written part by part

// The only axis of a reduction, counted from the front; -1 if there are more or it is not known.
int64_t OnlyAxis(const Node& reduction, const SymbolicContents& contents);
// Each element of the result is computed from those at its place.
bool IsElementwiseOp(const Node& node);
// True where a value is read once, by the node that is looked at.
inline bool IsReadOnce(const Value* value) {
  return value->uses().size() == 1 && !value->is_output();
}

}  // namespace pagefuse
