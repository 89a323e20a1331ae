// The passes of stage fuse.
#pragma once

#include <memory>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Before FuseRopeQuant.
std::unique_ptr<Pass> SeeRotatedHeads();
std::unique_ptr<Pass> FuseRopeQuant();
std::unique_ptr<Pass> FuseCacheInsert();
std::unique_ptr<Pass> FusePagedAttention();
std::unique_ptr<Pass> FusePagedOutput();
std::unique_ptr<Pass> FuseSparseMla();
std::unique_ptr<Pass> FuseTurboQuantAttention();
std::unique_ptr<Pass> FuseContiguousInsert();
std::unique_ptr<Pass> FuseIndexLogits();
std::unique_ptr<Pass> FuseIndexerTopK();
std::unique_ptr<Pass> FuseTopKSlots();
std::unique_ptr<Pass> FuseDequantAttention();
std::unique_ptr<Pass> FuseSinkAttention();
std::unique_ptr<Pass> FuseByResults();
std::unique_ptr<Pass> FuseElementwise();
std::unique_ptr<Pass> FuseRepeatedRows();

}  // namespace pagefuse
