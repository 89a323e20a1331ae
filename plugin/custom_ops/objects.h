// SPDX-License-Identifier: Apache-2.0
// The objects that a library of custom ops knows by address only, as this host makes them.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugin/ort/ort_abi.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/placing_kernel.h"

namespace pagefuse::ort {

struct Status {
  ErrorCode code;
  std::string message;
};

// Element type and shape. A dim that is no number is -1, and may have a name.
struct TensorTypeAndShapeInfo {
  ElementType type = 0;
  std::vector<int64_t> dims = {};
  std::vector<std::string> symbols = {};  // by dim, empty where it has no name
};

struct TypeInfo {
  TensorTypeAndShapeInfo tensor;
};

struct MemoryInfo {
  std::string name;
  int allocator = 0;
  int id = 0;
  int memory = 0;
};

// Memory of the processor, which is all that there is.
const MemoryInfo& CpuMemory();
// Its allocator; the library does not own it.
Allocator& CpuAllocator();

// A tensor: one of a call, or one that the library made.
struct Value {
  TensorArg arg;
  Tensor owner = {};  // undefined where the memory is somebody else's
  const MemoryInfo* memory = &CpuMemory();

  static Value Of(const Tensor& tensor);
};

// Where the messages of a library go.
struct Logger {
  std::string library;
};

struct OpAttr {
  const Attribute& attribute;
};

// The rows of a domain, in the order in which the library added them.
struct DomainRows {
  std::string name;
  std::vector<const CustomOp*> rows;
};

// The library may release it once it is added, or add rows to it until it has registered all.
struct CustomOpDomain {
  std::shared_ptr<DomainRows> rows;
};

// What a library reads while it registers, and what that leaves.
struct SessionOptions {
  std::map<std::string, std::string> config = {};
  std::vector<std::shared_ptr<const DomainRows>> domains = {};
};

// A node, while its kernel is made and as long as that lives.
struct KernelInfo {
  const Node& node;
  Logger logger;
  std::vector<std::optional<Value>> constants;  // by input
};

// One call of a kernel.
struct KernelContext {
  KernelArgs& args;
  OutputPlacer& placer;
  const Logger& logger;
  std::vector<Value> inputs;                         // absent where omitted
  std::vector<std::optional<Value>> outputs;         // once there is memory for them
  std::deque<std::shared_ptr<Buffer>> scratch = {};  // memory that lasts as long as the call
  absl::Status failed = absl::OkStatus();            // what went wrong in a function of ours
};

// What a function for shapes is told of a node, and what it says.
struct ShapeInferContext {
  const Node& node;
  std::vector<TensorTypeAndShapeInfo> inputs;
  std::vector<std::optional<TensorTypeAndShapeInfo>> outputs;
  std::deque<OpAttr> attributes = {};  // those it asked for
};

}  // namespace pagefuse::ort
