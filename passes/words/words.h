// The words between exporters' spellings and the fusion rules: idioms, each recognised alone and
// written in one way, in standard ops. Rules join words; a word that no rule takes up runs as it
// stands.
#pragma once

#include <memory>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Elementwise functions of one tensor, recognised by what they compute (known_functions.h): codes
// of number formats, and what codes stand for.
std::unique_ptr<Pass> RecogniseScalarFunctions();
// Block tables laid out by the sequences that read them.
std::unique_ptr<Pass> TablesBySequence();
// Rows written by slot: scatters of whole rows in any spelling become one ScatterND.

}  // namespace pagefuse
