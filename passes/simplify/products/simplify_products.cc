// SPDX-License-Identifier: Apache-2.0
// simplify-products: recognises products, sums and selections that are computed by other ops. The
// numbers are the same but for the order of sums and the sign of a zero.
#include "pagefuse/passes/simplify/products/product_rules.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {

std::unique_ptr<Pass> SimplifyProducts() {
  return MakePeepholePass(
      "simplify-products",
      "Brings products, sums, softmaxes and selections that are computed by other ops to one "
      "form, with the same numbers up to the order of sums: Einsum becomes products and sums, "
      "products with ones become sums, products with masks of 1 and 0 become Where, written-out "
      "softmaxes become Softmax, products that are transposed, flattened or computed head by "
      "head become one product, and Transposes around elementwise ops become fewer.",
      {{"einsum-to-product", "Einsum", EinsumToProduct},
       {"top-one-to-max", "TopK", TopOneToMax},
       {"reduction-of-squares", "ReduceSumSquare ReduceL2 ReduceL1", ReductionOfSquares},
       {"product-with-ones-to-sum", "MatMul", ProductWithOnesToSum},
       {"product-that-picks", "MatMul", ProductThatPicks},
       {"reduction-of-transpose", "ReduceSum ReduceMax ReduceMin ReduceMean", ReductionOfTranspose},
       {"softmax-less-most", "Softmax LogSoftmax", SoftmaxLessMost},
       {"softmax-of-transpose", "Softmax LogSoftmax", SoftmaxOfTranspose},
       {"sum-of-outer-products", "ReduceSum", SumOfOuterProducts},
       {"factor-out-of-product", "MatMul", FactorOutOfProduct},
       {"product-of-flat-batches", "MatMul", ProductOfFlatBatches},
       {"elementwise-of-flat-batches", "Reshape", ElementwiseOfFlatBatches},
       {"powers-to-softmax", "Div Mul", PowersToSoftmax},
       {"powers-of-log-softmax", "Exp", PowersOfLogSoftmax},
       {"gate-to-sink", "Mul", GateToSink},
       {"elementwise-between-transposes", "Transpose", ElementwiseBetweenTransposes},
       {"transpose-into-elementwise", "Transpose", TransposeIntoElementwise},
       {"transposed-product", "Transpose", TransposedProduct},
       {"transpose-of-elementwise", "Add Sub Mul Div Max Min Where Pow", TransposeOfElementwise},
       {"product-with-bool-to-where", "Mul", ProductWithBoolToWhere},
       {"sum-of-choices", "Add", SumOfChoices},
       {"one-less-bool-to-not", "Sub", OneLessBoolToNot},
       {"choice-to-max", "Where", ChoiceToMax},
       {"count-of-bools", "Cast", CountOfBools},
       {"where-of-where", "Where", WhereOfWhere},
       {"product-with-ones-to-expand", "Mul Add", ProductWithOnesToExpand},
       {"repeat-to-expand", "Tile Gather", RepeatToExpand},
       {"negation-to-neg", "Mul Sub", NegationToNeg},
       {"where-of-nots", "Where", WhereOfNots},
       {"bits-to-remainder", "BitwiseAnd", BitsToRemainder},
       {"not-of-nots", "Not", NotOfNots},
       {"product-of-bools-to-and", "Cast", ProductOfBoolsToAnd},
       {"count-to-range", "Sub CumSum", CountToRange},
       {"sum-of-pads-to-concat", "Add", SumOfPadsToConcat},
       {"sigmoid-to-tanh", "Sub", SigmoidToTanh},
       {"join-concats", "Concat", JoinConcats},
       {"join-writes", "Concat", JoinWrites},
       {"join-heads", "Concat", JoinHeads}});
}

}  // namespace pagefuse
