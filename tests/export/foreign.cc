// SPDX-License-Identifier: Apache-2.0
#include "foreign.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_replace.h"
#include "paths.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/explain/near_misses.h"

namespace pagefuse {
namespace {

absl::StatusOr<Tensor> Retyped(const Tensor& tensor, DataType type) {
  return Tensor::View(type, tensor.dims(), tensor.buffer(), tensor.buffer_offset());
}

}  // namespace

absl::StatusOr<Model> Written(const Model& model, int64_t target_opset, bool keep_float8) {
  Model written = model.Clone();
  PipelineOptions options = {.passes = ExportStage(),
                             .options = {{"target_opset", StrCat(target_opset)}},
                             .explain = {"write-bodies", "lower-opset"}};
  if (keep_float8) options.disabled = {"byte-caches"};
  PF_ASSIGN_OR_RETURN(const PipelineReport report, RunPipeline(written, options));
  if (report.misses.empty()) return written;
  return absl::FailedPreconditionError(MissText(report.misses[0]));
}

absl::StatusOr<Model> WithForeignNames(const Model& written) {
  return ParseModel(absl::StrReplaceAll(PrintModel(written), {{"pagefuse", "foreign"}}));
}

absl::StatusOr<std::map<std::string, Tensor>> AsBytes(const std::map<std::string, Tensor>& feeds) {
  std::map<std::string, Tensor> bytes = feeds;
  for (auto& [name, tensor] : bytes) {
    if (tensor.dtype() != DataType::kFloat8E4M3FN) continue;
    PF_ASSIGN_OR_RETURN(tensor, Retyped(tensor, DataType::kUint8));
  }
  return bytes;
}

absl::StatusOr<std::vector<Tensor>> FromBytes(std::vector<Tensor> outputs, const Model& model) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const DataType type = model.graph->outputs()[i]->dtype();
    if (type != DataType::kFloat8E4M3FN || outputs[i].dtype() != DataType::kUint8) continue;
    PF_ASSIGN_OR_RETURN(outputs[i], Retyped(outputs[i], type));
  }
  return outputs;
}

std::vector<std::string> GoldenFoldersWithAnswers() {
  std::vector<std::string> folders = FindTestCases(TestDataPath("golden"));
  std::erase_if(folders,
                [](const std::string& path) { return path.find("/err_") != std::string::npos; });
  return folders;
}

std::string GoldenName(const std::string& folder) {
  std::string name = folder.substr(folder.rfind('/', folder.rfind('/') - 1) + 1);
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

void LetNansDiffer(TestCase& test_case) {
  for (const Value* output : test_case.model.graph->outputs()) {
    const bool is_half =
        output->dtype() == DataType::kFloat16 || output->dtype() == DataType::kBfloat16;
    const auto rule = test_case.rules.find(output->name());
    if (!is_half || rule == test_case.rules.end()) continue;
    if (rule->second.kind != CompareRule::Kind::kBytes) continue;
    rule->second = {.kind = CompareRule::Kind::kUlp, .nan_is_equal = true};
  }
}

}  // namespace pagefuse
