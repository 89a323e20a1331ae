// SPDX-License-Identifier: Apache-2.0
// What a file of a plug-in says, before it is checked against what there is. A reader for each kind of
// file makes it (text_plugin.h, native_plugin.h); LoadPlugin commits it.
#pragma once

#include <string>
#include <vector>

#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/passes/rewrite/condition_value.h"
#include "pagefuse/passes/rewrite/text/rewrite.h"

namespace pagefuse {

struct AddedKernel {
  std::string op;  // with its domain
  Kernel kernel;
};

struct PluginContents {
  std::string name, version, kind;  // as in Plugin
  std::vector<RuleFile> texts;      // of ops and rules
  std::vector<OpDef> ops;           // that no text declares, whole with their kernels
  std::vector<AddedKernel> kernels;
  ConditionFunctions conditions;
};

}  // namespace pagefuse
