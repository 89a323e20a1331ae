// SPDX-License-Identifier: Apache-2.0
// The bundled exports and their reference data, as the end-to-end tests read them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// models/<name> in the source tree.
std::string ModelDir(const std::string& name);
Model LoadBundled(const std::string& name, const std::string& file = "model.onnx");
// The export as passes with their default options leave it, a copy of what was made once: for tests of what runs a graph.
Model PagedBundled(const std::string& name);

// One test_data_set_N folder of models/<name>/test_data.tar.xz: tensors by name.
struct DataSet {
  std::map<std::string, Tensor> inputs;
  std::map<std::string, Tensor> outputs;
};
DataSet LoadDataSet(const std::string& model, int index);
int CountDataSets(const std::string& model);

// greedy.json: a prompt, its greedy continuation, and by how much each token won.
struct Greedy {
  std::vector<int64_t> prompt, tokens;
  std::vector<double> gap;
};
Greedy LoadGreedy(const std::string& model);

// Nodes of that op of the project.
int64_t CountFused(const Model& model, std::string_view op);

// Why paging leaves the graph as it is, or "it is paged".
std::string ReasonOf(Model model);

// The largest absolute difference; infinity if the shapes differ or a value is NaN on one side.
double MaxDifference(std::span<const float> a, std::span<const float> b);

}  // namespace pagefuse
