// SPDX-License-Identifier: Apache-2.0
// The passes of the stage fuse.
#pragma once

#include <memory>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Runs before FuseRopeQuant, which expects rows as heads.
std::unique_ptr<Pass> RotatedHeads();
std::unique_ptr<Pass> FuseRopeQuant();
std::unique_ptr<Pass> FusePagedAttention();
// Fuses norm and rotation of queries, and rotation and insert of the rows that a window keeps.
std::unique_ptr<Pass> FuseWindowRows();
// Fuses the rotation of an indexer's queries with the factors of its weights.
std::unique_ptr<Pass> FuseIndexQueries();
std::unique_ptr<Pass> FusePagedOutput();
std::unique_ptr<Pass> FuseSparseMla();
std::unique_ptr<Pass> FuseTurboQuantAttention();
std::unique_ptr<Pass> FuseContiguousInsert();
std::unique_ptr<Pass> FuseIndexLogits();
std::unique_ptr<Pass> FuseIndexerTopK();
std::unique_ptr<Pass> FuseTopKSlots();
std::unique_ptr<Pass> FuseSinkAttention();
std::unique_ptr<Pass> FuseEquivalent();
std::unique_ptr<Pass> FuseElementwise();
std::unique_ptr<Pass> FuseRepeatedRows();
std::unique_ptr<Pass> ChannelOrder();
std::unique_ptr<Pass> JoinProductsOfOneInput();

}  // namespace pagefuse
