// SPDX-License-Identifier: Apache-2.0
// The passes of the stage recognise, which turn the variants of exporters into the vocabulary of
// ONNX opsets 23 to 25.
#pragma once

#include <memory>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// The option of absorb-mla.
inline PassOption AbsorbMlaOption() {
  return {"absorb_mla", "attention over latent rows themselves, off by default", {"off", "on"}};
}

// Elementwise functions of one tensor, recognised by what they compute (known_functions.h): codes
// of number formats, and what codes stand for.
std::unique_ptr<Pass> RecogniseScalarFunctions();
// Block tables laid out by the sequences that read them.
std::unique_ptr<Pass> TablesBySequence();
std::unique_ptr<Pass> RecogniseTableRows();
std::unique_ptr<Pass> RecogniseRopeByElement();
std::unique_ptr<Pass> RecogniseWindowCompress();
std::unique_ptr<Pass> RecogniseHyperConnections();
std::unique_ptr<Pass> RecogniseLastAxesTranspose();
std::unique_ptr<Pass> RecogniseNormForms();
std::unique_ptr<Pass> RecogniseFilledConcat();
std::unique_ptr<Pass> RecogniseAttentionForms();
std::unique_ptr<Pass> RecogniseAttention();
// Does nothing without the option absorb_mla=on, since paging absorbs the expansion anyway.
std::unique_ptr<Pass> AbsorbMla();
std::unique_ptr<Pass> RecogniseAttentionInputs();
std::unique_ptr<Pass> RecogniseAttentionMask();
std::unique_ptr<Pass> RecogniseGatedHalves();
std::unique_ptr<Pass> RecogniseCopiedRows();
std::unique_ptr<Pass> RecogniseSortedExperts();
std::unique_ptr<Pass> UnsortedRows();

}  // namespace pagefuse
