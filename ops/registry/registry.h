// SPDX-License-Identifier: Apache-2.0
// All ops that are known: the built-in list (ops.inc) and those that plug-ins add.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

// Not thread-safe while ops are added; reading is. A copy shares the definitions.
class OpRegistry {
 public:
  // The ops of the process as they are now: the built-in ones and those of plug-ins. What it refers
  // to never changes and is never freed: whoever holds an op or a kernel of it may keep it.
  static const OpRegistry& Global();
  // From now on Global() is `next`. For who loads plug-ins, one at a time.
  static void Publish(OpRegistry next);

  // InvalidArgument if an op of that domain, name and version is there.
  absl::Status Add(OpDef op);
  // A further kernel of an op, in all its versions. InvalidArgument if there is no such op, or it has
  // a kernel of that name.
  absl::Status AddKernel(std::string_view domain, std::string_view name, const Kernel& kernel);
  // What was loaded besides the built-in ops, for errors: "acme 0.1 (libacme.so)".
  void AddSource(std::string source) { sources_.push_back(std::move(source)); }
  const std::vector<std::string>& sources() const { return sources_; }
  // The definition with the highest `since` not above `opset`; null if none. "ai.onnx" is "".
  const OpDef* Find(std::string_view domain, std::string_view name, int64_t opset) const;
  // Every definition, sorted by domain, name, version.
  std::vector<const OpDef*> ops() const;

 private:
  void Index(const OpDef* op);

  std::vector<std::shared_ptr<const OpDef>> ops_;  // sorted as ops() tells
  // By domain and name, views of the definitions' own: oldest first. Every pass and every inference
  // asks for each node.
  absl::flat_hash_map<std::pair<std::string_view, std::string_view>, std::vector<const OpDef*>>
      versions_;
  std::vector<std::string> sources_;
};

// While one lives, Global() is `registry` for the thread that made it: what a plug-in would add is
// tried before anybody else sees it.
class ScopedOpRegistry {
 public:
  explicit ScopedOpRegistry(const OpRegistry& registry);
  ~ScopedOpRegistry();
  ScopedOpRegistry(const ScopedOpRegistry&) = delete;
  ScopedOpRegistry& operator=(const ScopedOpRegistry&) = delete;

 private:
  const OpRegistry* const before_;
};

// Unimplemented, naming the first node whose op, version or type no definition covers and no
// model-local function defines (subgraphs and functions too); ResourceExhausted as CheckExpansion.
// The check that `pagefuse check` makes before it runs anything.
absl::Status VerifyOps(const Model& model, const OpRegistry& registry = OpRegistry::Global());

// The kernel for a node on a device, with the reasons why better ones were refused. Null kernel: run the
// decomposition (or Unimplemented if there is none).
struct KernelChoice {
  const OpDef* op = nullptr;
  const Kernel* kernel = nullptr;
  std::vector<std::string> refusals;  // "hwy: head_dim 72 is not a multiple of 16"
};
// `force`: the name of a kernel to prefer where the op has it ("reference"), empty for the best.
absl::StatusOr<KernelChoice> ChooseKernel(const KernelQuery& query, std::string_view force = "",
                                          const OpRegistry& registry = OpRegistry::Global());

}  // namespace pagefuse
