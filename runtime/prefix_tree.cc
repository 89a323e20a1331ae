// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/prefix_tree.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse {
namespace {

constexpr int64_t kCheckpointTokens = 2048;
constexpr size_t kSampledLeaves = 8;

int64_t LargestWindow(const std::vector<CacheGroup>& groups) {
  int64_t window = 0;
  for (const CacheGroup& group : groups) window = std::max(window, group.sliding_window);
  return window;
}

}  // namespace

struct PrefixTree::Node {
  Node* parent = nullptr;
  uint64_t parent_serial = 0;
  uint64_t serial = 0;
  int64_t depth = 0;  // nodes from the beginning to here, this one included
  int64_t num_read = 0;
  std::vector<int64_t> ids;
  int64_t children = 0;
  int64_t holders = 0;                       // sequences whose text is published up to here
  uint64_t used = 0;                         // the clock
  size_t leaf = kNone, checkpoint = kNone;   // places in the lists
  std::vector<std::vector<int32_t>> blocks;  // by group; none in those that keep last rows
  std::vector<std::vector<int32_t>> last;    // of a checkpoint, by group; none in the others

  static constexpr size_t kNone = ~size_t{0};
};

size_t PrefixTree::Hash::operator()(const KeyView& key) const {
  return absl::HashOf(key.parent, key.num_read,
                      absl::MakeConstSpan(key.ids.data(), key.ids.size())) &
         mask;
}
size_t PrefixTree::Hash::operator()(const std::unique_ptr<Node>& node) const {
  return (*this)(KeyView{node->parent_serial, node->num_read, node->ids});
}
bool PrefixTree::Equal::operator()(const KeyView& a, const std::unique_ptr<Node>& b) const {
  return a.parent == b->parent_serial && a.num_read == b->num_read &&
         std::ranges::equal(a.ids, b->ids);
}
bool PrefixTree::Equal::operator()(const std::unique_ptr<Node>& a, const KeyView& b) const {
  return (*this)(b, a);
}
bool PrefixTree::Equal::operator()(const std::unique_ptr<Node>& a,
                                   const std::unique_ptr<Node>& b) const {
  return (*this)(KeyView{a->parent_serial, a->num_read, a->ids}, b);
}

int64_t PrefixTree::UnitOf(const std::vector<CacheGroup>& groups) {
  int64_t unit = 1;
  for (const CacheGroup& group : groups) {
    unit = std::lcm(unit, group.block_size * group.tokens_per_row());
    unit = std::lcm(unit, group.ratio);
  }
  return unit;
}

int64_t PrefixTree::CheckpointEvery(const std::vector<CacheGroup>& groups) {
  const int64_t every = std::max(kCheckpointTokens, 2 * LargestWindow(groups));
  const int64_t unit = UnitOf(groups);
  return (every + unit - 1) / unit * unit;
}

PrefixTree::PrefixTree(const std::vector<CacheGroup>& groups, PagePool* pool)
    : PrefixTree(groups, pool, Options()) {}

PrefixTree::PrefixTree(const std::vector<CacheGroup>& groups, PagePool* pool,
                       const Options& options)
    : groups_(groups),
      pool_(pool),
      unit_(UnitOf(groups)),
      checkpoint_every_(CheckpointEvery(groups)),
      has_windows_(LargestWindow(groups) > 0),
      nodes_(0, Hash{options.hash_mask}) {}

PrefixTree::~PrefixTree() = default;

int64_t PrefixTree::LengthOf(const Node* node) const { return node ? node->depth * unit_ : 0; }

PrefixTree::Node* PrefixTree::Up(Node* node, int64_t length) const {
  while (LengthOf(node) > length) node = node->parent;
  return node;
}

PrefixTree::KeyView PrefixTree::KeyOf(const PrefixText& text, int64_t depth,
                                      uint64_t parent) const {
  const int64_t first = depth * unit_;
  const int64_t read = text.tells_written ? text.num_read - first : unit_;
  return {parent, std::clamp<int64_t>(read, 0, unit_), text.tokens.subspan(first, unit_)};
}

// Serial numbers of the beginnings: 0 where nothing with the salt is there.
uint64_t PrefixTree::RootOf(std::string_view salt, bool make) {
  const auto it = roots_.find(salt);
  if (it != roots_.end()) return it->second;
  return make ? roots_[std::string(salt)] = next_serial_++ : 0;
}

PrefixTree::Node* PrefixTree::FindChild(const KeyView& key) const {
  const auto it = nodes_.find(key);
  return it == nodes_.end() ? nullptr : it->get();
}

void PrefixTree::AddTo(std::vector<Node*>& list, size_t Node::*place, Node* node) {
  node->*place = list.size();
  list.push_back(node);
}

void PrefixTree::RemoveFrom(std::vector<Node*>& list, size_t Node::*place, Node* node) {
  list[node->*place] = list.back();
  list.back()->*place = node->*place;
  list.pop_back();
  node->*place = Node::kNone;
}

bool PrefixTree::CanGoOnFrom(const Node* node) const {
  return !has_windows_ || node->checkpoint != Node::kNone;
}

PrefixTree::Hit PrefixTree::Find(const PrefixText& text) {
  const auto known = static_cast<int64_t>(text.tokens.size());
  const auto leaves_enough = [&](int64_t length) {
    return length <= text.num_read - 2 || (length >= text.num_read && length < known);
  };
  ++clock_;
  Hit hit;
  Node* node = nullptr;
  uint64_t serial = RootOf(text.salt, /*make=*/false);
  for (int64_t depth = 0; serial != 0 && (depth + 1) * unit_ < known; ++depth) {
    node = FindChild(KeyOf(text, depth, serial));
    if (node == nullptr) break;
    node->used = clock_;
    serial = node->serial;
    if (!leaves_enough(LengthOf(node))) continue;
    hit.known = LengthOf(node);
    if (CanGoOnFrom(node)) hit = {node, hit.known, hit.known};
  }
  return hit;
}

std::vector<int32_t> PrefixTree::Blocks(int group, const Node* node) const {
  const CacheGroup& layers = groups_[group];
  const int64_t rows = layers.RowsOf(LengthOf(node));
  std::vector<int32_t> blocks(rows / layers.block_size, -1);
  if (node == nullptr) return blocks;
  auto end = blocks.end();
  const auto put = [&](const std::vector<int32_t>& part) {
    end -= static_cast<std::ptrdiff_t>(part.size());
    std::ranges::copy(part, end);
  };
  if (layers.sliding_window > 0) {
    put(node->last[group]);
    return blocks;
  }
  for (; node != nullptr; node = node->parent) put(node->blocks[group]);
  return blocks;
}

PrefixTree::Node* PrefixTree::AddChild(const KeyView& key, Node* parent) {
  auto node = std::make_unique<Node>();
  node->parent = parent;
  node->parent_serial = key.parent;
  node->serial = next_serial_++;
  node->depth = parent ? parent->depth + 1 : 1;
  node->num_read = key.num_read;
  node->ids.assign(key.ids.begin(), key.ids.end());
  if (parent && parent->children++ == 0) RemoveFrom(leaves_, &Node::leaf, parent);
  Node* added = nodes_.insert(std::move(node)).first->get();
  AddTo(leaves_, &Node::leaf, added);
  return added;
}

// Of the sequence, those of the node's tokens.
void PrefixTree::TakeBlocks(Node* node, const std::vector<std::vector<int32_t>>& blocks) {
  node->blocks.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].sliding_window > 0) continue;
    const int64_t count = groups_[g].RowsOf(unit_) / groups_[g].block_size;
    const auto first = blocks[g].begin() + (node->depth - 1) * count;
    node->blocks[g].assign(first, first + count);
    for (const int32_t block : node->blocks[g]) pool_->Keep(block);
  }
}

void PrefixTree::UseBlocks(const Node* node, std::vector<std::vector<int32_t>>& blocks) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto count = static_cast<int64_t>(node->blocks[g].size());
    for (int64_t i = 0; i < count; ++i) {
      int32_t& mine = blocks[g][(node->depth - 1) * count + i];
      if (mine == node->blocks[g][i]) continue;
      pool_->AddReference(node->blocks[g][i]);
      pool_->Release(mine);
      mine = node->blocks[g][i];
    }
  }
}

PrefixTree::Node* PrefixTree::Publish(const PrefixText& text, Node* node, int64_t length,
                                      std::vector<std::vector<int32_t>>& blocks) {
  ++clock_;
  while (LengthOf(node) < length) {
    const uint64_t serial = node ? node->serial : RootOf(text.salt, /*make=*/true);
    const KeyView key = KeyOf(text, node ? node->depth : 0, serial);
    Node* child = FindChild(key);
    if (child != nullptr) {
      UseBlocks(child, blocks);
    } else {
      child = AddChild(key, node);
      TakeBlocks(child, blocks);
    }
    child->used = clock_;
    node = child;
  }
  return node;
}

void PrefixTree::MakeCheckpoint(Node* node, const std::vector<std::vector<int32_t>>& blocks) {
  if (node == nullptr || CanGoOnFrom(node)) return;
  std::vector<std::vector<int32_t>> last(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].sliding_window == 0) continue;
    const int64_t first = groups_[g].FirstNeeded(LengthOf(node)) / groups_[g].block_size;
    const int64_t end = LengthOf(node) / groups_[g].block_size;
    for (int64_t i = first; i < end; ++i) {
      if (blocks[g][i] < 0) return;
      last[g].push_back(blocks[g][i]);
    }
  }
  node->last = std::move(last);
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const int32_t block : node->last[g]) pool_->Keep(block);
  }
  AddTo(checkpoints_, &Node::checkpoint, node);
}

void PrefixTree::Hold(Node* node) {
  if (node != nullptr) ++node->holders;
}

void PrefixTree::Release(Node* node) {
  if (node != nullptr) --node->holders;
}

void PrefixTree::ForgetCheckpoint(Node* node) {
  if (node->checkpoint == Node::kNone) return;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const int32_t block : node->last[g]) pool_->Drop(block);
  }
  node->last.clear();
  RemoveFrom(checkpoints_, &Node::checkpoint, node);
}

void PrefixTree::Remove(Node* node) {
  ForgetCheckpoint(node);
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const int32_t block : node->blocks[g]) pool_->Drop(block);
  }
  RemoveFrom(leaves_, &Node::leaf, node);
  if (Node* parent = node->parent; parent != nullptr && --parent->children == 0) {
    AddTo(leaves_, &Node::leaf, parent);
  }
  nodes_.erase(nodes_.find(KeyView{node->parent_serial, node->num_read, node->ids}));
}

bool PrefixTree::EvictLeaf() {
  Node* best = nullptr;
  const auto worth = [&](const Node* node) {
    return static_cast<double>(clock_ + 1 - node->used) * static_cast<double>(node->depth);
  };
  const auto look_at = [&](Node* node) {
    if (node->holders == 0 && (best == nullptr || worth(node) > worth(best))) best = node;
  };
  for (size_t i = 0; i < kSampledLeaves && !leaves_.empty(); ++i) {
    look_at(leaves_[random_() % leaves_.size()]);
  }
  // Few are held: one a sequence that runs.
  for (size_t i = 0; i < leaves_.size() && best == nullptr; ++i) look_at(leaves_[i]);
  if (best == nullptr) return false;
  Remove(best);
  return true;
}

// Of a text that is held: it goes on without.
bool PrefixTree::DropCheckpoint() {
  Node* oldest = nullptr;
  for (Node* node : checkpoints_) {
    const bool gives = std::ranges::any_of(node->last, [&](const std::vector<int32_t>& blocks) {
      return std::ranges::any_of(blocks,
                                 [&](int32_t block) { return pool_->references(block) == 0; });
    });
    if (gives && (oldest == nullptr || node->used < oldest->used)) oldest = node;
  }
  if (oldest == nullptr) return false;
  ForgetCheckpoint(oldest);
  return true;
}

bool PrefixTree::Evict() {
  while (pool_->num_free() == 0) {
    if (!EvictLeaf() && !DropCheckpoint()) return false;
  }
  return true;
}

void PrefixTree::Clear() {
  while (EvictLeaf()) {
  }
}

absl::Status PrefixTree::CheckAccounts() const {
  std::vector<int32_t> kept;
  int64_t leaves = 0, checkpoints = 0;
  for (const auto& node : nodes_) {
    leaves += node->children == 0 ? 1 : 0;
    checkpoints += node->checkpoint != Node::kNone ? 1 : 0;
    for (const auto* lists : {&node->blocks, &node->last}) {
      for (const std::vector<int32_t>& blocks : *lists) {
        kept.insert(kept.end(), blocks.begin(), blocks.end());
      }
    }
  }
  if (leaves != static_cast<int64_t>(leaves_.size()) ||
      checkpoints != static_cast<int64_t>(checkpoints_.size())) {
    return absl::InternalError(absl::StrCat(leaves, " leaves and ", checkpoints, " checkpoints, ",
                                            leaves_.size(), " and ", checkpoints_.size(),
                                            " in the lists"));
  }
  std::ranges::sort(kept);
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  const auto lost = std::ranges::find_if(kept, [&](int32_t page) { return !pool_->kept(page); });
  if (lost != kept.end()) {
    return absl::InternalError(absl::StrCat("page ", *lost, " of a node is not kept"));
  }
  const auto only_kept =
      std::ranges::count_if(kept, [&](int32_t page) { return pool_->references(page) == 0; });
  if (only_kept == pool_->num_kept()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "nodes have ", only_kept, " pages that nobody holds, the pool ", pool_->num_kept()));
}

}  // namespace pagefuse
