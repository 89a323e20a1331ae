// SPDX-License-Identifier: Apache-2.0
// Cases of GatedLinear and GroupedMatMul with weights that are no plain numbers, for their tables.
#pragma once

namespace pagefuse {

class OpCases;

namespace pagefuse_ops {

void AddGatedBf16Cases(OpCases& cases);
void AddGatedCodesCases(OpCases& cases);
void AddGroupedBf16Cases(OpCases& cases);
void AddGroupedCodesCases(OpCases& cases);

}  // namespace pagefuse_ops
}  // namespace pagefuse
