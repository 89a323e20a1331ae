// The passes of stage fuse.
#pragma once

#include <memory>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Before FuseRopeQuant.
std::unique_ptr<Pass> RotatedHeads();
std::unique_ptr<Pass> FuseRopeQuant();
std::unique_ptr<Pass> FusePagedAttention();
// Query, rotation and insert of rows that a window keeps, in one op.
std::unique_ptr<Pass> FuseWindowRows();
// Rotation of an indexer's queries and the factors of its weights, in one op.
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

}  // namespace pagefuse
