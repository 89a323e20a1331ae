// SPDX-License-Identifier: Apache-2.0
// Any bytes given as a text of ops end in a Status, or in ops whose declarations hold.
#include <cstddef>
#include <cstdint>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/rewrite/text/op_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const pagefuse::RuleFile file = {"fuzz.txt",
                                   std::string(reinterpret_cast<const char*>(data), size)};
  auto ops = pagefuse::ParseOps(file);
  if (!ops.ok()) return 0;
  for (pagefuse::TextOp& op : *ops) PF_CHECK(op.def.Compile().ok());
  (void)pagefuse::CheckBodies(file);
  return 0;
}
