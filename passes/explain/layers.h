// SPDX-License-Identifier: Apache-2.0
// Tells what fused in each layer of a decoder, and what one layer lacks that others have.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/pass.h"

namespace pagefuse {

// A place that no fused op took up.
struct Leftover {
  int layer = -1;     // none: -1
  std::string value;  // that its node computes
  std::string op;     // of the node
  UnfusedPlace place;
};

struct LayerReport {
  std::map<int, std::map<std::string, int>> ops;  // fused ops by layer
  absl::flat_hash_map<const Node*, int> nodes;    // the layer of each node; -1 where none is told
  std::vector<Leftover> leftovers;                // in the order of the graph
  // Ops that more than half of the layers have and that a layer with leftovers lacks: how many were
  // to be expected, and how many there are.
  struct Missing {
    std::string op;
    int expected = 0, found = 0;
  };
  std::vector<Missing> missing;
};

// Layers are told by the caches that their ops have, by names such as layers.3.mlp, else by the
// attention op before or behind a node. `unfused` is what the pass unfused-places told of the model.
LayerReport ReportLayers(const Model& model, const std::vector<UnfusedPlace>& unfused);

// `layers 0-2, 4-25  RopeCacheInsert, PagedAttention, GatedLinear`, a line for each kind of layer.
std::vector<std::string> LayerLines(const LayerReport& report);

// Of the misses of passes that read a place by what it computes, the nearest of each place that is
// still there and that no op took up since; nearest first.
std::vector<MissedMatch> NearPlaces(const Model& model, const std::vector<MissedMatch>& misses);

// The number in `layers.3.mlp`, `kv_cache.3.key`, `model/layers_3/x`; -1 if there is none.
int LayerNumber(const std::string& name);

}  // namespace pagefuse
