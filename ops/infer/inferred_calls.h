// SPDX-License-Identifier: Apache-2.0
// Remembers what was inferred of calls of functions, so that a body is inferred once for each kind
// of call, however often it is called.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse {

// What is known of an output of a body; its contents are kept here.
struct InferredOutput {
  DataType dtype = DataType::kUndefined;
  std::optional<Shape> shape;
  std::optional<std::vector<Dim>> value;
  std::optional<Tensor> tensor;
};

class InferredCalls {
 public:
  using Known = ShapeContext::Known;

  // The same for two calls if and only if inference sees no difference; nullopt where that cannot
  // be told cheaply: attributes that are graphs.
  static std::optional<std::string> KeyOf(const Function& function, const Node& call,
                                          const std::vector<Known>& inputs);

  // The outputs for another call of that kind, nullopt if there was none. Symbols that the body
  // made up are not those of other calls: `scope`, different for each call, goes into their names.
  std::optional<std::vector<InferredOutput>> Find(const std::string& key,
                                                  const std::vector<Known>& inputs,
                                                  std::string_view scope) const;

  void Add(const std::string& key, std::vector<InferredOutput> outputs) {
    calls_.insert_or_assign(key, std::move(outputs));
  }

 private:
  absl::flat_hash_map<std::string, std::vector<InferredOutput>> calls_;
};

}  // namespace pagefuse
