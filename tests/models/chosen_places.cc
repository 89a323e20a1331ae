// SPDX-License-Identifier: Apache-2.0
#include "tests/models/chosen_places.h"

#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/runtime/paged_model.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

// Makes the places that each layer chooses an output: output `port` of the nodes for which `chooses`.
template <typename Chooses>
std::vector<std::string> ShowPlaces(Model& model, int port, const Chooses& chooses) {
  std::vector<std::string> names;
  for (const auto& node : model.graph->nodes()) {
    if (!chooses(*node)) continue;
    model.graph->AddOutput(node->output(port));
    names.push_back(node->output(port)->name());
  }
  return names;
}

// TopK along the keys, whose number is a symbol; experts are counted.
bool ChoosesKeys(const Node& node) {
  const auto& shape = node.Is("TopK") ? node.input(0)->shape() : std::nullopt;
  return shape && !shape->back(0).is_constant();
}

template <typename T>
void AddPlaces(const Tensor& tensor, int64_t ratio, Places& places) {
  const int64_t count = tensor.dims().back(), tokens = tensor.size() / count;
  auto& layer = places.emplace_back(tokens);
  for (int64_t t = 0; t < tokens; ++t) {
    for (const T place : tensor.values<T>().subspan(t * count, count)) {
      if (place >= 0 && place < (t + 1) / ratio) layer[t].insert(place);
    }
  }
}

}  // namespace

Places PlacesOfTheExport(Model model, const DataSet& data, int64_t ratio) {
  EXPECT_TRUE(InferShapes(model).ok());
  const std::vector<std::string> names = ShowPlaces(model, 1, ChoosesKeys);
  SessionOptions options;
  options.optimise = false;
  const auto session = Session::Create(std::move(model), options);
  EXPECT_TRUE(session.ok()) << session.status();
  const auto outputs = (*session)->Run(data.inputs, names);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  Places places;
  for (const Tensor& output : *outputs) AddPlaces<int64_t>(output, ratio, places);
  return places;
}

Places PlacesOfThePagedGraph(Model model, const std::vector<int64_t>& tokens, int64_t ratio,
                             const std::map<std::string, std::string>& options) {
  EXPECT_TRUE(RunPipeline(model, {.options = options}).ok());
  const std::vector<std::string> names = ShowPlaces(
      model, 0, [](const Node& node) { return node.Is("PagedIndexerTopK", "pagefuse"); });
  const auto paged = PagedModel::Create(std::move(model), {});
  EXPECT_TRUE(paged.ok()) << paged.status();
  const auto length = static_cast<int64_t>(tokens.size());
  EXPECT_TRUE((*paged)->Reserve({length}, length).ok());
  PagedCache& cache = (*paged)->cache();
  const auto step = cache.Append({{cache.AddSequence(), length}});
  EXPECT_TRUE(step.ok()) << step.status();
  std::map<std::string, Tensor> feeds = (*paged)->cache_tensors();
  StepRecord record;
  EXPECT_TRUE((*paged)->layout().WriteRecord(tokens, *step, record).ok());
  EXPECT_TRUE(record.AddFeeds(feeds).ok());
  const auto outputs = (*paged)->session().Run(feeds, names);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  Places places;
  for (const Tensor& output : *outputs) AddPlaces<int32_t>(output, ratio, places);
  return places;
}

}  // namespace pagefuse
