// SPDX-License-Identifier: Apache-2.0
// The prefix tree finds the cache blocks of what an earlier text began with, by its tokens.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"

#include "pagefuse/ops/cache/cache_groups.h"
#include "pagefuse/runtime/page_pool.h"

namespace pagefuse {

// A text as the tree knows it. Tokens that were read, as part of a prompt, have other rows than the
// same tokens when they were written, one at a time, and texts with another salt share nothing.
struct PrefixText {
  std::span<const int64_t> tokens;
  int64_t num_read = 0;  // the first of them
  std::string_view salt = {};
  bool tells_written = true;  // else tokens are the same, however they came
};

// A node stands for `unit` tokens behind those of its parent: it keeps their blocks in the groups
// that keep all rows. Where groups keep last rows only, of windows and of compressors' states, a
// text can go on from a node that is a checkpoint: it keeps also the blocks that are read behind it.
// Tokens are compared, not their hashes. Nodes that no sequence holds can be evicted, from the leaves
// on: of a few leaves at random that with the largest product of age and depth, since the least
// recently used one alone would be lost each time where texts in turn outgrow the pool. Not
// thread-safe.
class PrefixTree {
 public:
  struct Node;
  struct Options {
    uint64_t hash_mask = ~uint64_t{0};  // bits of hashes that count; 0: all are equal, for tests
  };

  // `pool`, of the pages of all groups, must outlive the tree.
  PrefixTree(const std::vector<CacheGroup>& groups, PagePool* pool, const Options& options);
  PrefixTree(const std::vector<CacheGroup>& groups, PagePool* pool);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // Tokens of a node: the least common multiple of what blocks of all groups hold, and of ratios.
  int64_t unit() const { return unit_; }
  // Tokens between checkpoints of a long text, a multiple of the unit.
  int64_t checkpoint_every() const { return checkpoint_every_; }
  static int64_t UnitOf(const std::vector<CacheGroup>& groups);
  static int64_t CheckpointEvery(const std::vector<CacheGroup>& groups);

  struct Hit {
    Node* node = nullptr;  // null: nothing is there
    int64_t length = 0;
    // How far there are nodes, but no checkpoint: `length` or more. Who passes there keeps one.
    int64_t known = 0;
  };
  // The longest beginning that is there and leaves tokens to compute: two that were read or more, or,
  // behind all that were read, one or more (a token that is computed alone is not one of a prompt).
  Hit Find(const PrefixText& text);

  // Blocks of a text of the node's length, in the order of its rows; -1 where a window has left them.
  std::vector<int32_t> Blocks(int group, const Node* node) const;

  // The nodes of the first `length` tokens, a multiple of the unit, behind `node` (null: from the
  // beginning), which the text has. `blocks`: of a sequence that has computed them, by group; where a
  // node is there already its blocks take the place of the sequence's, which hold the same.
  Node* Publish(const PrefixText& text, Node* node, int64_t length,
                std::vector<std::vector<int32_t>>& blocks);
  // Makes the node a checkpoint with blocks of a sequence that has computed it. Nothing where the
  // sequence has given one of them back already.
  void MakeCheckpoint(Node* node, const std::vector<std::vector<int32_t>>& blocks);

  // A sequence whose text has the node, so that it stays. Null: nothing.
  void Hold(Node* node);
  void Release(Node* node);
  // The ancestor, or the node, of at most `length` tokens; null: the beginning.
  Node* Up(Node* node, int64_t length) const;
  int64_t LengthOf(const Node* node) const;

  // Gives back what is needed for a free page, if any is only kept.
  bool Evict();
  // All nodes that nobody holds.
  void Clear();

  int64_t num_nodes() const { return static_cast<int64_t>(nodes_.size()); }
  // Internal unless every node keeps what it should. O(nodes).
  absl::Status CheckAccounts() const;

 private:
  struct KeyView {
    uint64_t parent;
    int64_t num_read;
    std::span<const int64_t> ids;
  };
  struct Hash {
    using is_transparent = void;
    uint64_t mask;
    size_t operator()(const KeyView& key) const;
    size_t operator()(const std::unique_ptr<Node>& node) const;
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const std::unique_ptr<Node>& a, const std::unique_ptr<Node>& b) const;
    bool operator()(const std::unique_ptr<Node>& a, const KeyView& b) const;
    bool operator()(const KeyView& a, const std::unique_ptr<Node>& b) const;
  };

  KeyView KeyOf(const PrefixText& text, int64_t depth, uint64_t parent) const;
  uint64_t RootOf(std::string_view salt, bool make);
  Node* FindChild(const KeyView& key) const;
  Node* AddChild(const KeyView& key, Node* parent);
  void TakeBlocks(Node* node, const std::vector<std::vector<int32_t>>& blocks);
  void UseBlocks(const Node* node, std::vector<std::vector<int32_t>>& blocks);
  bool CanGoOnFrom(const Node* node) const;
  bool EvictLeaf();
  bool DropCheckpoint();
  void ForgetCheckpoint(Node* node);
  void Remove(Node* node);
  static void AddTo(std::vector<Node*>& list, size_t Node::*place, Node* node);
  static void RemoveFrom(std::vector<Node*>& list, size_t Node::*place, Node* node);

  const std::vector<CacheGroup> groups_;
  PagePool* pool_;
  int64_t unit_;
  int64_t checkpoint_every_;
  bool has_windows_;
  absl::flat_hash_set<std::unique_ptr<Node>, Hash, Equal> nodes_;
  std::map<std::string, uint64_t, std::less<>> roots_;  // serial numbers by salt
  std::vector<Node*> leaves_;
  std::vector<Node*> checkpoints_;
  uint64_t next_serial_ = 1;
  uint64_t clock_ = 0;
  std::minstd_rand random_;  // a fixed seed: the same calls evict the same
};

}  // namespace pagefuse
