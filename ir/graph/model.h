// SPDX-License-Identifier: Apache-2.0
// A model: the main graph, opset imports, model-local functions and what the file says of itself.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// A function: a body whose graph inputs and outputs are the formal ones (untyped), and its
// attributes.
struct Function {
  Function();
  Function(const Function&);
  Function(Function&&) noexcept;
  Function& operator=(const Function&);
  Function& operator=(Function&&) noexcept;
  ~Function();

  std::string domain;
  std::string name;
  std::string overload;
  std::vector<std::string> attributes;                      // without default
  std::vector<std::pair<std::string, Attribute>> defaults;  // with default
  std::map<std::string, int64_t> opset_imports;
  std::shared_ptr<Graph> body;
  std::string doc_string;
  Metadata metadata;
  std::string unknown_fields;
};

struct Model {
  Model();
  Model(const Model&);
  Model(Model&&) noexcept;
  Model& operator=(const Model&);
  Model& operator=(Model&&) noexcept;
  ~Model();

  int64_t ir_version = 10;
  std::map<std::string, int64_t> opset_imports;  // domain ("" for ai.onnx) -> version
  std::shared_ptr<Graph> graph;                  // never null after import or parse
  std::vector<Function> functions;
  std::string producer_name;
  std::string producer_version;
  std::string domain;
  int64_t model_version = 0;
  std::string doc_string;
  Metadata metadata;
  std::string unknown_fields;

  // Version of a domain; 0 if it is not imported. "ai.onnx" and "" are the same domain.
  int64_t OpsetVersion(std::string_view domain) const;
  const Function* FindFunction(std::string_view domain, std::string_view name,
                               std::string_view overload = "") const;
  // A deep copy that shares tensor buffers.
  Model Clone() const;
};

// The functions of a model by name, for many look-ups. Valid while the list does not change.
class FunctionIndex {
 public:
  explicit FunctionIndex(const std::vector<Function>& functions);
  // The function that the node calls, null if there is none.
  const Function* Find(const Node& node) const;

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // domain, name, overload
  absl::flat_hash_map<Key, const Function*> functions_;
};

}  // namespace pagefuse
