// SPDX-License-Identifier: Apache-2.0
#include "device_case.h"

#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "computed_inputs.h"
#include "device_op.h"
#include "must.h"
#include "settings.h"
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

std::string NameOf(const OpCases& table) {
  return StrCat(table.domain().empty() ? "ai.onnx" : table.domain(), ".", table.op());
}

// What a kernel is instantiated by, as far as a case shows it.
std::string FormOf(const OpCases& table, const NodePlace& place, const OpCase& op_case) {
  std::string form = StrCat(NameOf(table), " ", place.kernel);
  for (const Tensor& input : op_case.inputs) StrAppend(&form, " ", DataTypeName(input.dtype()));
  for (const auto& [name, value] : op_case.attributes) {
    if (const auto* text = std::get_if<std::string>(&value)) StrAppend(&form, " ", *text);
    if (const auto* number = std::get_if<int64_t>(&value); number && name.ends_with("_bits")) {
      StrAppend(&form, " ", *number);
    }
  }
  return form;
}

bool IsFirstOfItsForm(std::string form) {
  static auto* seen = new std::set<std::string>;
  return seen->insert(std::move(form)).second;
}

}  // namespace

bool CheckOnDevice(const OpDef& op, const OpCases& table, const OpCase& op_case, CaseKind kind,
                   InputsFrom inputs) {
  SCOPED_TRACE(op_case.name);
  const int failures = FailuresSoFar();
  CaseNode call(op, table, op_case);
  Must(InferOutputs(op, call));
  const std::shared_ptr<DeviceContext> device = TestSettings().op_device();
  if (inputs == InputsFrom::kBoth && !HasIndices(op, call)) return false;
  const bool computed = inputs != InputsFrom::kHost;
  const auto which = inputs == InputsFrom::kBoth ? Computed::kData : Computed::kAll;
  Model model = computed ? WithComputedInputs(op, call, which) : ModelOf(call);
  const NodePlace place = Must(PlacesOf(model.Clone(), device)).back();
  if (!place.on_device) {
    if (kind == CaseKind::kTable) Report::Get().AddHostStep(NameOf(table), place.reason);
    return false;
  }
  const bool sanitize = TestSettings().sanitize;
  if (sanitize && !IsFirstOfItsForm(FormOf(table, place, op_case))) return true;
  SCOPED_TRACE(place.kernel);
  const std::vector<Tensor> want = Must(RunReference(op, call));
  const auto runner = Must(DeviceModel::Make(std::move(model), device));
  for (int run = 0; run < (sanitize ? 1 : 2); ++run) {
    SCOPED_TRACE(StrCat("run ", run));
    const GuardedRun guarded;
    const auto got = runner->Run(computed ? FeedsOfComputed(op, call, which) : FeedsOf(call));
    EXPECT_TRUE(got.ok()) << got.status();
    if (got.ok()) ExpectClose(*got, want, table, op_case);
  }
  Report::Get().Add(NameOf(table), kind, FailuresSoFar() == failures);
  return true;
}

}  // namespace pagefuse
