// Rules of simplify-arithmetic for what exporters write as choices and powers.
#pragma once

#include "pagefuse/passes/canonicalise/peephole.h"

namespace pagefuse {

bool PowToSqrt(Node& node, Peephole& peephole);    // x ^ 0.5, x ^ -0.5, x ^ -1
bool MaxToAbs(Node& node, Peephole& peephole);     // max (x, -x)
bool WhereToMax(Node& node, Peephole& peephole);   // a < b ? b : a, of integers
bool WhereToCast(Node& node, Peephole& peephole);  // c ? 1 : 0

}  // namespace pagefuse
