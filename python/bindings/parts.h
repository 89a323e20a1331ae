// SPDX-License-Identifier: Apache-2.0
// The parts of the module.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pybind11/pybind11.h"

#include "pagefuse/passes/rewrite/text/rewrite.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::python {

// Arguments of everything that loads a model, by keyword.
struct LoadArguments {
  std::string weights;                         // as --weights
  int threads;                                 // 0: all
  int64_t max_memory;                          // bytes, 0: what SessionOptions says
  std::map<std::string, std::string> options;  // of passes
};
// What register_rules() was given so far; guarded by the interpreter's lock.
std::vector<RuleFile>& RegisteredRules();
SessionOptions MakeSessionOptions(const LoadArguments& arguments);

void BindOptimize(pybind11::module_& module);
void BindSession(pybind11::module_& module);
void BindEngine(pybind11::module_& module);
void BindTokenizer(pybind11::module_& module);

}  // namespace pagefuse::python
