// SPDX-License-Identifier: Apache-2.0
#include "tools/check/case_outputs.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "pagefuse/ops/evaluate/padding.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

// Codes of quantised caches, and how many of them are not the expected ones.
struct CodeCount {
  int64_t codes = 0;
  int64_t moved = 0;
  // Under one in a hundred: sums in another order reach the neighbouring code where a number lies
  // between two. More are an error of their own, and forgive none.
  bool few() const { return moved > 0 && moved * 100 < codes; }
};

CodeCount CountCodes(const TestCase& test_case, const std::vector<Tensor>& wanted,
                     const std::vector<Tensor>& outputs) {
  CodeCount count;
  for (size_t i = 0; test_case.whole_model && i < wanted.size(); ++i) {
    const Tensor& want = wanted[i];
    if (!want.defined() || want.dtype() != DataType::kInt8) continue;
    if (outputs[i].dtype() != want.dtype() || outputs[i].dims() != want.dims()) continue;
    const auto a = outputs[i].values<int8_t>(), b = want.values<int8_t>();
    count.codes += want.size();
    for (int64_t k = 0; k < want.size(); ++k) count.moved += a[k] != b[k] ? 1 : 0;
  }
  return count;
}

// A code that moved by one moves what is computed from it by up to one part in 127.
double QuantumOf(const Tensor& want) {
  std::vector<double> values(static_cast<size_t>(want.size()));
  if (!DecodeToDouble(want.dtype(), want.data(), want.size(), values.data()).ok()) return 0;
  double largest = 0;
  for (double value : values)
    largest = std::max(largest, std::isfinite(value) ? std::fabs(value) : 0);
  return largest / 127;
}

// Tensors with zeros where both sides have padding.
std::vector<Tensor> WithoutPadding(const TestCase& test_case, const Padding& padding,
                                   const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  const std::vector<Value*>& ports = test_case.model.graph->outputs();
  for (size_t i = 0; i < tensors.size(); ++i) {
    result.push_back(i < ports.size() ? padding.Blank(*ports[i], tensors[i]) : tensors[i]);
  }
  return result;
}

void Note(const TestDataSet& data_set, const Padding& padding, const CodeCount& codes,
          std::vector<std::string>& notes) {
  const auto with_data = std::count_if(data_set.outputs.begin(), data_set.outputs.end(),
                                       [](const Tensor& tensor) { return tensor.defined(); });
  if (with_data == 0) {
    notes.push_back(absl::StrCat(data_set.name, ": no output files, nothing was compared"));
  } else if (padding.count() > 0) {
    notes.push_back(absl::StrCat(data_set.name, ": ", padding.count(),
                                 " tokens are padding, their rows were not compared"));
  }
  if (!codes.few()) return;
  notes.push_back(absl::StrCat(data_set.name, ": ", codes.moved, " of ", codes.codes,
                               " codes of the cache are not the expected ones; floats are "
                               "compared within a 127th of their largest"));
}

}  // namespace

CompareRule RuleFor(const TestCase& test_case, const std::string& output, const Tensor& want) {
  const auto named = test_case.rules.find(output);
  if (named != test_case.rules.end()) return named->second;
  const bool single = test_case.single_op && !test_case.whole_model;
  CompareRule rule =
      single ? DefaultRule(want.dtype()) : GraphRule(want.dtype(), test_case.computed);
  if (!test_case.whole_model) return rule;
  if (IsFloatingPoint(want.dtype())) rule.atol = std::max(rule.atol, 1e-4);
  if (want.dtype() == DataType::kInt8) {
    rule.kind = CompareRule::Kind::kAllclose;
    rule.atol = 2;
  }
  return rule;
}

absl::Status CompareOutputs(const TestCase& test_case, const TestDataSet& data_set,
                            const std::vector<Tensor>& outputs, std::vector<std::string>* notes) {
  if (outputs.size() < data_set.outputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", data_set.outputs.size(), " outputs, got ", outputs.size()));
  }
  const Padding padding(data_set.feeds);
  const std::vector<Tensor> wanted = WithoutPadding(test_case, padding, data_set.outputs);
  const std::vector<Tensor> got = WithoutPadding(test_case, padding, outputs);
  const CodeCount codes = CountCodes(test_case, wanted, got);
  if (notes != nullptr) Note(data_set, padding, codes, *notes);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i].defined()) continue;
    const std::string& name = test_case.model.graph->outputs()[i]->name();
    CompareRule rule = RuleFor(test_case, name, wanted[i]);
    if (codes.few() && !test_case.rules.contains(name) && IsFloatingPoint(wanted[i].dtype())) {
      rule.atol = std::max(rule.atol, QuantumOf(wanted[i]));
    }
    const absl::Status status = CompareTensors(rule, got[i], wanted[i]);
    if (status.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat(test_case.name, "/", data_set.name,
                                                   ": output \"", name, "\": ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
