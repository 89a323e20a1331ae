// SPDX-License-Identifier: Apache-2.0
// plan-cache-pages: cuts cache groups into parts of layers whose blocks fill pages of one size
// (ops/cache/page_plan.h), each with tables of its own:
//
//   block_table.full, slot_mapping.full  =>  block_table.full.0, slot_mapping.full.0,
//                                            block_table.full.1, slot_mapping.full.1
//
// Layers stay together where one node addresses caches of both, or finds rows in one by the other.
// Nodes that make lists of rows out of a table, and serve layers of several parts, are there once for
// each.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cache/page_plan.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/edit/graph_ports.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/paging/paging.h"

namespace pagefuse {
namespace {

constexpr char kName[] = "plan-cache-pages";

// Of a block of the cache, whose first dim counts blocks; nullopt if its sizes are not known.
std::optional<int64_t> BlockBytesOf(const Value& cache) {
  if (!cache.shape() || cache.shape()->rank() < 2) return std::nullopt;
  std::vector<Dim> block(cache.shape()->dims().begin() + 1, cache.shape()->dims().end());
  const auto dims = Shape(std::move(block)).constant();
  if (!dims) return std::nullopt;
  const auto bytes = ByteSize(cache.dtype(), *dims);
  return bytes.ok() ? std::optional(*bytes) : std::nullopt;
}

// One group of a graph: which layers address each other's rows, and the nodes between its tables and
// its caches.
class GroupNodes {
 public:
  // Nullopt if a node reads a cache in another way than by blocks, if one makes floats of a table, or a
  // graph inside another reads one or a table.
  static std::optional<GroupNodes> Read(const Model& model, const CacheGroup& group) {
    GroupNodes nodes(group);
    for (const char* input : {"block_table.", "slot_mapping."}) {
      Value* table = model.graph->FindValue(StrCat(input, group.name));
      if (table == nullptr) continue;
      nodes.tables_.push_back(table);
      nodes.addresses_[table] = {};
    }
    for (size_t i = 0; i < group.caches.size(); ++i) {
      Value* cache = model.graph->FindValue(group.caches[i]);
      const auto bytes = cache ? BlockBytesOf(*cache) : std::nullopt;
      if (!bytes) return std::nullopt;
      nodes.cache_of_[cache] = i;
      nodes.may_shrink_ = nodes.may_shrink_ && cache->shape()->rank() > 2 &&
                          (*cache->shape())[1].constant() == group.block_size;
      nodes.block_bytes_.push_back(*bytes);
    }
    for (const auto& node : model.graph->nodes()) {
      if (!nodes.Add(model, node.get())) return std::nullopt;
    }
    return nodes;
  }

  // The caches of each layer, in order.
  std::vector<std::vector<size_t>> Layers() const {
    std::vector<std::vector<size_t>> layers;
    std::map<size_t, size_t> place;
    for (size_t cache = 0; cache < block_bytes_.size(); ++cache) {
      const auto [it, added] = place.try_emplace(Root(cache), layers.size());
      if (added) layers.emplace_back();
      layers[it->second].push_back(cache);
    }
    return layers;
  }
  int64_t BytesOf(const std::vector<size_t>& layer) const {
    int64_t bytes = 0;
    for (const size_t cache : layer) bytes += block_bytes_[cache];
    return bytes;
  }

  // Whether the dims of all its caches tell how many rows a block has, so that others may be written.
  bool may_shrink() const { return may_shrink_; }
  // Blocks of so many rows.
  void Resize(int64_t rows) {
    for (auto& [value, cache] : cache_of_) {
      if (!value->shape()) continue;
      Shape shape = *value->shape();
      shape.dims()[1] = Dim(rows);
      const_cast<Value*>(value)->set_shape(std::move(shape));
    }
  }

  // Gives the caches of each part tables of their own: those of the group's name, a dot and its number.
  void Cut(Graph& graph, const std::vector<int>& part_of_cache, int num_parts) {
    FindParts(part_of_cache);
    for (Value* table : tables_) {
      for (int part = 0; part < num_parts; ++part) {
        at_[{table, part}] = graph.AddInput(graph.UniqueName(StrCat(table->name(), ".", part)),
                                            table->dtype(), table->shape());
      }
    }
    for (Node* node : between_) {
      const std::set<int> parts = parts_.at(node);
      for (const int part : parts) {
        Node* own = part == *parts.begin() ? node : Copy(graph, node, part);
        for (int i = 0; i < own->num_inputs(); ++i) {
          const auto found = at_.find({node->input(i), part});
          if (found != at_.end()) copied_inputs_.push_back({own, i, found->second});
        }
      }
    }
    for (const auto& [node, input, value] : copied_inputs_) node->SetInput(input, value);
    for (Value* table : tables_) {
      RemoveInput(graph, table);
      graph.EraseValue(table);
    }
  }

 private:
  explicit GroupNodes(const CacheGroup& group) : parent_(group.caches.size()) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }

  size_t Root(size_t cache) const {
    while (parent_[cache] != cache) cache = parent_[cache];
    return cache;
  }
  void Unite(size_t a, size_t b) {
    parent_[std::max(Root(a), Root(b))] = std::min(Root(a), Root(b));
  }

  bool Add(const Model& model, Node* node) {
    const auto is_ours = [&](Value* v) { return addresses_.contains(v) || cache_of_.contains(v); };
    if (!node->Subgraphs().empty() && std::ranges::any_of(ValuesRead(*node), is_ours)) return false;
    const OpDef* op = OpRegistry::Global().Find(node->domain(), node->op_type(),
                                                model.OpsetVersion(node->domain()));
    bool reads_table = false;
    std::set<size_t> caches, addressed;
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (const auto it = cache_of_.find(node->input(i)); it != cache_of_.end()) {
        const bool in_blocks =
            op != nullptr && i < static_cast<int>(op->inputs().size()) && op->inputs()[i].in_blocks;
        if (!in_blocks) return false;
        caches.insert(it->second);
      }
      if (const auto it = addresses_.find(node->input(i)); it != addresses_.end()) {
        reads_table = true;
        addressed.insert(it->second.begin(), it->second.end());
      }
    }
    addressed.insert(caches.begin(), caches.end());
    for (const size_t cache : addressed) {
      if (!caches.empty()) Unite(*caches.begin(), cache);
    }
    if (op != nullptr && !caches.empty()) {
      for (const auto& [out, in] : op->aliases()) {
        const auto it = cache_of_.find(node->input(in));
        if (it != cache_of_.end() && node->output(out)) cache_of_[node->output(out)] = it->second;
      }
    }
    if (!reads_table) return true;
    between_.push_back(node);
    if (!caches.empty()) reader_of_[node] = *caches.begin();
    if (node->Is("Shape") || node->Is("Size")) return true;  // the same in all parts
    for (Value* output : node->outputs()) {
      if (output == nullptr || cache_of_.contains(output)) continue;
      // Numbers that a node reads in a cache are no places in it; others may come to be some again.
      if (!IsFloatingPoint(output->dtype())) {
        addresses_[output] = addressed;
      } else if (caches.empty()) {
        return false;
      }
    }
    return true;
  }

  // Which parts each node serves: that of the caches it reads, or of those who read its results.
  void FindParts(const std::vector<int>& part_of_cache) {
    for (auto it = between_.rbegin(); it != between_.rend(); ++it) {
      std::set<int>& parts = parts_[*it];
      if (const auto cache = reader_of_.find(*it); cache != reader_of_.end()) {
        parts = {part_of_cache[cache->second]};
        continue;
      }
      for (const Value* output : (*it)->outputs()) {
        if (!output || !addresses_.contains(output)) continue;
        for (const Use& use : output->uses()) {
          const auto reader = parts_.find(use.node);
          if (reader != parts_.end()) parts.insert(reader->second.begin(), reader->second.end());
        }
      }
      if (parts.empty()) parts = {0};  // sizes are the same in all parts
    }
  }

  Node* Copy(Graph& graph, const Node* node, int part) {
    std::vector<Value*> outputs;
    for (const Value* output : node->outputs()) {
      outputs.push_back(output ? graph.AddValue(graph.UniqueName(StrCat(output->name(), ".", part)),
                                                output->dtype(), output->shape())
                               : nullptr);
      if (output) at_[{output, part}] = outputs.back();
    }
    Node* copy = graph.AddNode(node->domain(), node->op_type(), node->inputs(), outputs,
                               const_cast<Node*>(node));
    for (const auto& [name, attribute] : node->attributes()) copy->SetAttribute(name, attribute);
    if (!node->name.empty()) copy->name = StrCat(node->name, ".", part);
    copy->overload = node->overload;
    copy->metadata = node->metadata;
    return copy;
  }

  struct Input {
    Node* node;
    int input;
    Value* value;
  };
  bool may_shrink_ = true;
  std::vector<size_t> parent_;  // of caches: a forest whose trees are layers
  std::vector<int64_t> block_bytes_;
  std::vector<Value*> tables_;
  absl::flat_hash_map<const Value*, size_t> cache_of_;  // caches, and what is in their memory
  // Tables and integers that follow from them, with the caches in which rows were found for them.
  absl::flat_hash_map<const Value*, std::set<size_t>> addresses_;
  std::vector<Node*> between_;  // those that read addresses, in order
  absl::flat_hash_map<const Node*, size_t> reader_of_;
  absl::flat_hash_map<const Node*, std::set<int>> parts_;
  std::map<std::pair<const Value*, int>, Value*> at_;  // what a part reads in place of a value
  std::vector<Input> copied_inputs_;
};

// The part of each layer's caches, and the group of each part.
std::vector<CacheGroup> CutGroup(Graph& graph, const CacheGroup& group, GroupNodes& nodes,
                                 const std::vector<int64_t>& parts) {
  if (parts.size() < 2) return {group};
  const std::vector<std::vector<size_t>> layers = nodes.Layers();
  std::vector<int> part_of_cache(group.caches.size());
  std::vector<CacheGroup> cut;
  size_t layer = 0;
  for (size_t part = 0; part < parts.size(); ++part) {
    CacheGroup& of_part = cut.emplace_back(group);
    of_part.name = StrCat(group.name, ".", part);
    of_part.caches.clear();
    for (int64_t i = 0; i < parts[part]; ++i, ++layer) {
      for (const size_t cache : layers[layer]) {
        part_of_cache[cache] = static_cast<int>(part);
        of_part.caches.push_back(group.caches[cache]);
      }
    }
  }
  nodes.Cut(graph, part_of_cache, static_cast<int>(parts.size()));
  return cut;
}

// Parts of one group are alike but for their layers.
bool AreCut(const std::vector<CacheGroup>& groups) {
  std::set<CacheGroupKey> keys;
  return !std::ranges::all_of(groups,
                              [&](const CacheGroup& g) { return keys.insert(g.key()).second; });
}

absl::StatusOr<bool> PlanPagesOf(Model& model, PassContext& context) {
  if (context.Option("cache_pages", "off") == "off") return false;
  const auto groups = ReadCacheGroups(model);
  if (absl::IsNotFound(groups.status())) return false;
  PF_RETURN_IF_ERROR(groups.status());
  if (AreCut(*groups)) return false;
  std::vector<GroupNodes> nodes;
  std::vector<PageGroup> sizes;
  for (const CacheGroup& group : *groups) {
    auto read = GroupNodes::Read(model, group);
    if (!read) {
      context.AddMissedMatch(kName, group.name,
                             "its caches or tables are read in another way than by blocks");
      return false;
    }
    // Of a state the ops read its blocks off its dims alone.
    const bool may_shrink = group.kind == CacheKind::kState && read->may_shrink();
    PageGroup& size = sizes.emplace_back(PageGroup{group, {}, may_shrink});
    for (const auto& layer : read->Layers()) size.layer_bytes.push_back(read->BytesOf(layer));
    nodes.push_back(*std::move(read));
  }
  const PagePlan plan = PlanPages(sizes);
  const bool as_before = std::ranges::equal(
      plan.groups, *groups, [](const PageGroup& a, const CacheGroup& b) { return a.group == b; });
  if (as_before && plan.num_parts() == static_cast<int64_t>(groups->size())) return false;
  std::vector<CacheGroup> cut;
  for (size_t g = 0; g < groups->size(); ++g) {
    const CacheGroup& group = plan.groups[g].group;
    if (group.block_size != (*groups)[g].block_size) nodes[g].Resize(group.block_size);
    for (CacheGroup& part : CutGroup(*model.graph, group, nodes[g], plan.parts[g])) {
      cut.push_back(std::move(part));
    }
  }
  WriteCacheGroups(model, cut);
  ++context.counts[kName];
  return true;
}

}  // namespace

std::unique_ptr<Pass> PlanCachePages() {
  return MakePass(
      kName, "Cuts cache groups into parts whose blocks fill pages of one size.", PlanPagesOf,
      {{"cache_pages",
        "whether groups are cut into parts so that they share pages of one size, off by default",
        {"off", "on"}}});
}

}  // namespace pagefuse
