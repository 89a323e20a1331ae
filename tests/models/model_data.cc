// SPDX-License-Identifier: Apache-2.0
#include "tests/models/model_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "nlohmann/json.hpp"
#include "paths.h"
#include <gtest/gtest.h>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {

std::string ModelDir(const std::string& name) { return SourcePath("models/" + name); }

Model LoadBundled(const std::string& name, const std::string& file) {
  auto model = LoadModel(ModelDir(name) + "/" + file);
  if (!model.ok()) ADD_FAILURE() << model.status();
  return model.ok() ? *std::move(model) : Model();
}

Model PagedBundled(const std::string& name) {
  static auto* paged = new std::map<std::string, Model>;
  const auto [it, inserted] = paged->try_emplace(name);
  if (inserted) {
    it->second = LoadBundled(name);
    const auto report = RunPipeline(it->second, {});
    if (!report.ok()) ADD_FAILURE() << report.status();
  }
  return it->second.Clone();
}

namespace {

std::map<std::string, Tensor> LoadTensors(const std::string& dir, const std::string& prefix) {
  std::map<std::string, Tensor> tensors;
  for (int i = 0;; ++i) {
    const std::string path = dir + "/" + prefix + std::to_string(i) + ".pb";
    if (!std::filesystem::exists(path)) return tensors;
    std::string name;
    auto tensor = LoadTensor(path, &name);
    if (!tensor.ok()) {
      ADD_FAILURE() << path << ": " << tensor.status();
      return tensors;
    }
    tensors[name] = *std::move(tensor);
  }
}

std::string DataSetDir(const std::string& model, int index) {
  return TestDataPath("models/" + model + "/test_data_set_" + std::to_string(index));
}

}  // namespace

DataSet LoadDataSet(const std::string& model, int index) {
  const std::string dir = DataSetDir(model, index);
  return {LoadTensors(dir, "input_"), LoadTensors(dir, "output_")};
}

int CountDataSets(const std::string& model) {
  int count = 0;
  while (std::filesystem::exists(DataSetDir(model, count))) ++count;
  return count;
}

Greedy LoadGreedy(const std::string& model) {
  std::ifstream file(ModelDir(model) + "/greedy.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  return {json["prompt"], json["greedy"], json["top2_gap"]};
}

int64_t CountFused(const Model& model, std::string_view op) {
  const auto& nodes = model.graph->nodes();
  return std::count_if(nodes.begin(), nodes.end(),
                       [op](const auto& node) { return node->Is(op, "pagefuse"); });
}

std::string ReasonOf(Model model) {
  const auto report = RunPipeline(model, {});
  if (!report.ok()) return std::string(report.status().message());
  return report->why_not_paged.empty() ? "it is paged" : report->why_not_paged;
}

double MaxDifference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace pagefuse
