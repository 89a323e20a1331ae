// SPDX-License-Identifier: Apache-2.0
// A library of custom ops for ONNX Runtime as a third party writes one: it knows the C API and
// nothing of pagefuse, neither its headers nor its libraries. In the manner of C: no object of its
// needs a constructor, and nothing is thrown.
//
// The ops are in domain "third.party":
//   Scale      y = x * factor + bias, of float or double, bias optional; shapes by a function
//   Positive   the elements above a threshold: their number is known when they are counted
//   Total      the sum of all inputs, of whatever types, times the product of a list
//   Halves     the first dim cut into as many outputs as the node has
//   Same       the input, of any type
//   Table      an attribute's tensor, and a constant input added to it
//   Old        of the first version of the declaration, with nonsense in all later fields
//   Numbers    what the node's `what` asks of the host, as a float
// and those that a host refuses: Device (another execution provider), Text (strings), Lacking (calls a
// function that is not there), Failing, Silent (makes no output).
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "plugin/ort/ort_abi.h"

namespace {

using namespace pagefuse::ort;  // NOLINT(google-build-using-namespace)

enum Type : ElementType { kAny = 0, kFloat = 1, kInt64 = 7, kString = 8, kDouble = 11 };
constexpr int kMaxPorts = 3;
constexpr int kMaxRank = 8;
constexpr uint32_t kVersion = 17;
constexpr int kNoEnd = 0x7fffffff;

Api* api = nullptr;

// A row with what it says of itself.
struct Op : CustomOp {
  const char* op_name;
  const char* provider;
  ElementType inputs[kMaxPorts];
  Characteristic input_kinds[kMaxPorts];
  size_t num_inputs;
  ElementType outputs[kMaxPorts];
  Characteristic output_kinds[kMaxPorts];
  size_t num_outputs;
  int least, homogeneous;
};

const Op* Self(const CustomOp* op) { return static_cast<const Op*>(op); }

// What a kernel keeps of its node.
struct Kernel {
  const Op* op;
  float factor;
  float threshold;
  int64_t weights[kMaxRank];
  size_t num_weights;
  char what[32];
  Value* table;           // of an attribute
  const Value* constant;  // a constant input
  float numbers;
};

// The first status that is not null; releases the others.
Status* First(Status* a, Status* b) {
  if (a == nullptr) return b;
  if (b != nullptr) kReleaseStatus(api, b);
  return a;
}

void Forget(Status* status) {
  if (status != nullptr) kReleaseStatus(api, status);
}

struct Tensor {
  void* data;
  int64_t dims[kMaxRank];
  size_t rank;
  int64_t size;
  ElementType type;
};

// data stays null for an omitted input.
Status* Read(const Value* value, Tensor* tensor) {
  std::memset(tensor, 0, sizeof(*tensor));
  if (value == nullptr) return nullptr;
  TensorTypeAndShapeInfo* info = nullptr;
  Status* status = kGetTensorTypeAndShape(api, value, &info);
  if (status != nullptr) return status;
  size_t count = 0;
  status = First(status, kGetTensorElementType(api, info, &tensor->type));
  status = First(status, kGetDimensionsCount(api, info, &tensor->rank));
  status = First(status, kGetDimensions(api, info, tensor->dims, tensor->rank));
  status = First(status, kGetTensorShapeElementCount(api, info, &count));
  tensor->size = static_cast<int64_t>(count);
  kReleaseTensorTypeAndShapeInfo(api, info);
  return First(status, kGetTensorMutableData(api, const_cast<Value*>(value), &tensor->data));
}

Status* Input(KernelContext* context, size_t i, Tensor* tensor) {
  const Value* value = nullptr;
  Status* status = kKernelContextGetInput(api, context, i, &value);
  return status != nullptr ? status : Read(value, tensor);
}

// Memory for an output; null where the node does not list it.
Status* Output(KernelContext* context, size_t i, const int64_t* dims, size_t rank, void** data) {
  *data = nullptr;
  Value* value = nullptr;
  Status* status = kKernelContextGetOutput(api, context, i, dims, rank, &value);
  if (status != nullptr || value == nullptr) return status;
  return kGetTensorMutableData(api, value, data);
}

float At(const Tensor& tensor, int64_t i) {
  switch (tensor.type) {
    case kDouble:
      return static_cast<float>(static_cast<double*>(tensor.data)[i]);
    case kInt64:
      return static_cast<float>(static_cast<int64_t*>(tensor.data)[i]);
    default:
      return static_cast<float*>(tensor.data)[i];
  }
}

// --- Scale ---

struct ScaleJob {
  Tensor x, bias;
  void* y;
  float factor;
};

// One element, on a thread of the host's.
void ScaleOne(void* of, size_t i) {
  const auto& job = *static_cast<ScaleJob*>(of);
  const auto at = static_cast<int64_t>(i);
  if (job.x.type == kDouble) {
    const double bias = job.bias.data == nullptr ? 0 : static_cast<double*>(job.bias.data)[0];
    static_cast<double*>(job.y)[at] = static_cast<double*>(job.x.data)[at] * job.factor + bias;
  } else {
    const float bias = job.bias.data == nullptr ? 0 : static_cast<float*>(job.bias.data)[0];
    static_cast<float*>(job.y)[at] = static_cast<float*>(job.x.data)[at] * job.factor + bias;
  }
}

Status* Scale(const Kernel* kernel, KernelContext* context) {
  ScaleJob job;
  job.factor = kernel->factor;
  Status* status = First(Input(context, 0, &job.x), Input(context, 1, &job.bias));
  if (status != nullptr) return status;
  status = Output(context, 0, job.x.dims, job.x.rank, &job.y);
  if (status != nullptr) return status;
  return kKernelContextParallelFor(api, context, ScaleOne, static_cast<size_t>(job.x.size), 0,
                                   &job);
}

// y has the shape of x.
Status* ScaleShapes(const CustomOp* /*op*/, ShapeInferContext* context) {
  TensorTypeAndShapeInfo* x = nullptr;
  Status* status = kShapeInferContextGetInputTypeShape(api, context, 0, &x);
  if (status != nullptr) return status;
  return kShapeInferContextSetOutputTypeShape(api, context, 0, x);
}

// --- the other ops ---

Status* Positive(const Kernel* kernel, KernelContext* context) {
  Tensor x;
  Status* status = Input(context, 0, &x);
  if (status != nullptr) return status;
  int64_t count = 0;
  for (int64_t i = 0; i < x.size; ++i) count += At(x, i) > kernel->threshold ? 1 : 0;
  void* y = nullptr;
  void* places = nullptr;
  status = First(Output(context, 0, &count, 1, &y), Output(context, 1, &count, 1, &places));
  int64_t next = 0;
  for (int64_t i = 0; status == nullptr && i < x.size; ++i) {
    if (!(At(x, i) > kernel->threshold)) continue;
    static_cast<float*>(y)[next] = At(x, i);
    if (places != nullptr) static_cast<int64_t*>(places)[next] = i;
    ++next;
  }
  return status;
}

Status* Total(const Kernel* kernel, KernelContext* context) {
  size_t count = 0;
  Status* status = kKernelContextGetInputCount(api, context, &count);
  double total = 0;
  for (size_t i = 0; status == nullptr && i < count; ++i) {
    Tensor x;
    status = Input(context, i, &x);
    for (int64_t k = 0; status == nullptr && x.data != nullptr && k < x.size; ++k) {
      total += At(x, k);
    }
  }
  for (size_t i = 0; i < kernel->num_weights; ++i) total *= static_cast<double>(kernel->weights[i]);
  void* y = nullptr;
  if (status == nullptr) status = Output(context, 0, nullptr, 0, &y);
  if (status == nullptr) *static_cast<float*>(y) = static_cast<float>(total);
  return status;
}

Status* Halves(const Kernel* /*kernel*/, KernelContext* context) {
  Tensor x;
  size_t count = 0;
  Status* status = First(Input(context, 0, &x), kKernelContextGetOutputCount(api, context, &count));
  if (status != nullptr) return status;
  const int64_t parts = static_cast<int64_t>(count);
  if (x.rank < 1 || x.dims[0] % parts != 0) {
    return kCreateStatus(api, ErrorCode::kInvalidArgument, "the first dim cannot be cut so often");
  }
  x.dims[0] /= parts;
  const int64_t size = x.size / parts;
  for (int64_t part = 0; status == nullptr && part < parts; ++part) {
    void* y = nullptr;
    status = Output(context, static_cast<size_t>(part), x.dims, x.rank, &y);
    if (y == nullptr) continue;
    std::memcpy(y, static_cast<float*>(x.data) + part * size,
                static_cast<size_t>(size) * sizeof(float));
  }
  return status;
}

Status* Same(const Kernel* /*kernel*/, KernelContext* context) {
  Tensor x;
  void* y = nullptr;
  Status* status = Input(context, 0, &x);
  if (status == nullptr) status = Output(context, 0, x.dims, x.rank, &y);
  if (status != nullptr) return status;
  const size_t bytes = x.type == kFloat ? sizeof(float) : sizeof(int64_t);
  if (x.size > 0) std::memcpy(y, x.data, static_cast<size_t>(x.size) * bytes);
  return nullptr;
}

Status* Table(const Kernel* kernel, KernelContext* context) {
  Tensor table, constant;
  Status* status = First(Read(kernel->table, &table), Read(kernel->constant, &constant));
  if (status != nullptr) return status;
  if (constant.data == nullptr) {
    return kCreateStatus(api, ErrorCode::kInvalidArgument, "the input is no constant");
  }
  void* y = nullptr;
  status = Output(context, 0, table.dims, table.rank, &y);
  for (int64_t i = 0; status == nullptr && i < table.size; ++i) {
    static_cast<float*>(y)[i] = At(table, i) + At(constant, 0);
  }
  return status;
}

Status* Numbers(const Kernel* kernel, KernelContext* context) {
  void* y = nullptr;
  void* scratch = nullptr;
  Allocator* allocator = nullptr;
  MemoryInfo* memory = nullptr;
  const Logger* logger = nullptr;
  Status* status = kCreateCpuMemoryInfo(api, 0, 0, &memory);
  if (status != nullptr) return status;
  status = First(status, kKernelContextGetAllocator(api, context, memory, &allocator));
  status = First(status, kKernelContextGetLogger(api, context, &logger));
  constexpr size_t kBytes = 1000;
  if (status == nullptr) scratch = allocator->alloc(allocator, kBytes);
  if (scratch != nullptr) std::memset(scratch, 1, kBytes);
  if (allocator != nullptr) {
    allocator->free(allocator, scratch);
    kReleaseAllocator(api, allocator);
  }
  kReleaseMemoryInfo(api, memory);
  if (status == nullptr) status = Output(context, 0, nullptr, 0, &y);
  if (status == nullptr) *static_cast<float*>(y) = kernel->numbers;
  return status;
}

Status* Lacking(const Kernel* /*kernel*/, KernelContext* /*context*/) {
  constexpr Function<Status*(const Session*, const MemoryInfo*, Allocator**)> create_allocator{131};
  Allocator* allocator = nullptr;
  Forget(create_allocator(api, nullptr, nullptr, &allocator));  // and goes on as if nothing were
  return nullptr;
}

Status* Failing(const Kernel* /*kernel*/, KernelContext* /*context*/) {
  return kCreateStatus(api, ErrorCode::kFail, "this op always fails");
}

Status* Silent(const Kernel* /*kernel*/, KernelContext* /*context*/) { return nullptr; }

// --- kernels ---

// What Numbers is asked for: "inputs", "name" (its length), "dims" (the first), else the rank.
float Count(const Kernel& kernel, const KernelInfo* info) {
  size_t number = 0;
  if (std::strcmp(kernel.what, "inputs") == 0) {
    Forget(kKernelInfoGetInputCount(api, info, &number));
    return static_cast<float>(number);
  }
  if (std::strcmp(kernel.what, "name") == 0) {
    Forget(kKernelInfoGetNodeName(api, info, nullptr, &number));
    return static_cast<float>(number);
  }
  TypeInfo* type = nullptr;
  const TensorTypeAndShapeInfo* tensor = nullptr;
  Status* status = kKernelInfoGetInputTypeInfo(api, info, 0, &type);
  if (status == nullptr) status = kCastTypeInfoToTensorInfo(api, type, &tensor);
  int64_t dims[kMaxRank] = {};
  if (status == nullptr) status = kGetDimensionsCount(api, tensor, &number);
  if (status == nullptr) status = kGetDimensions(api, tensor, dims, number);
  if (type != nullptr) kReleaseTypeInfo(api, type);
  Forget(status);
  return std::strcmp(kernel.what, "dims") == 0 ? static_cast<float>(dims[0])
                                               : static_cast<float>(number);
}

Status* CreateKernel(const CustomOp* op, Api* host, const KernelInfo* info, void** out) {
  (void)host;
  auto* kernel = static_cast<Kernel*>(std::calloc(1, sizeof(Kernel)));
  kernel->op = Self(op);
  kernel->factor = 1;
  kernel->num_weights = kMaxRank;
  size_t size = sizeof(kernel->what);
  // Attributes have defaults where the node has none: an error of the host's says so.
  Forget(kKernelInfoGetAttributeFloat(api, info, "factor", &kernel->factor));
  Forget(kKernelInfoGetAttributeFloat(api, info, "threshold", &kernel->threshold));
  Status* status =
      kKernelInfoGetAttributeInt64s(api, info, "weights", kernel->weights, &kernel->num_weights);
  if (status != nullptr) kernel->num_weights = 0;
  Forget(status);
  Forget(kKernelInfoGetAttributeString(api, info, "what", kernel->what, &size));
  if (std::strcmp(kernel->op->op_name, "Table") == 0) {
    Allocator* allocator = nullptr;
    int is_constant = 0;
    status = kGetAllocatorWithDefaultOptions(api, &allocator);
    status =
        First(status, kKernelInfoGetAttributeTensor(api, info, "table", allocator, &kernel->table));
    status =
        First(status, kKernelInfoGetConstantInput(api, info, 0, &is_constant, &kernel->constant));
    if (status != nullptr) {
      std::free(kernel);
      return status;
    }
  }
  kernel->numbers = Count(*kernel, info);
  *out = kernel;
  return nullptr;
}

void Destroy(void* of) {
  auto* kernel = static_cast<Kernel*>(of);
  if (kernel->table != nullptr) kReleaseValue(api, kernel->table);
  std::free(kernel);
}

struct Body {
  const char* op;
  Status* (*run)(const Kernel*, KernelContext*);
};

constexpr Body kBodies[] = {{"Scale", Scale},     {"Positive", Positive}, {"Total", Total},
                            {"Halves", Halves},   {"Same", Same},         {"Table", Table},
                            {"Numbers", Numbers}, {"Device", Same},       {"Text", Same},
                            {"Lacking", Lacking}, {"Failing", Failing},   {"Silent", Silent},
                            {"Old", Same}};

Status* Compute(void* of, KernelContext* context) {
  const auto* kernel = static_cast<const Kernel*>(of);
  for (const Body& body : kBodies) {
    if (std::strcmp(body.op, kernel->op->op_name) == 0) return body.run(kernel, context);
  }
  return kCreateStatus(api, ErrorCode::kFail, "there is no such op");
}

// --- rows ---

Op MakeOp(const char* name) {
  Op op;
  std::memset(static_cast<void*>(&op), 0, sizeof(op));
  op.version = kVersion;
  op.op_name = name;
  op.num_inputs = op.num_outputs = 1;
  op.inputs[0] = op.outputs[0] = kFloat;
  op.least = op.homogeneous = 1;
  op.name = [](const CustomOp* self) { return Self(self)->op_name; };
  op.execution_provider = [](const CustomOp* self) { return Self(self)->provider; };
  op.input_type = [](const CustomOp* self, size_t i) { return Self(self)->inputs[i]; };
  op.input_count = [](const CustomOp* self) { return Self(self)->num_inputs; };
  op.output_type = [](const CustomOp* self, size_t i) { return Self(self)->outputs[i]; };
  op.output_count = [](const CustomOp* self) { return Self(self)->num_outputs; };
  op.destroy = Destroy;
  op.input_characteristic = [](const CustomOp* self, size_t i) {
    return Self(self)->input_kinds[i];
  };
  op.output_characteristic = [](const CustomOp* self, size_t i) {
    return Self(self)->output_kinds[i];
  };
  op.input_memory_type = [](const CustomOp*, size_t) { return kDefaultMemoryType; };
  op.variadic_input_min_arity =
      op.variadic_output_min_arity = [](const CustomOp* self) { return Self(self)->least; };
  op.variadic_input_homogeneity =
      op.variadic_output_homogeneity = [](const CustomOp* self) { return Self(self)->homogeneous; };
  op.create_kernel_v2 = CreateKernel;
  op.compute_v2 = Compute;
  op.start_version = [](const CustomOp*) { return 1; };
  op.end_version = [](const CustomOp*) { return kNoEnd; };
  return op;
}

void* CreateOld(const CustomOp* op, Api* host, const KernelInfo* info) {
  void* kernel = nullptr;
  Forget(CreateKernel(op, host, info, &kernel));
  return kernel;
}

void ComputeOld(void* kernel, KernelContext* context) { Forget(Compute(kernel, context)); }

Op Scales(ElementType type) {
  Op op = MakeOp("Scale");
  op.num_inputs = 2;
  op.inputs[0] = op.inputs[1] = op.outputs[0] = type;
  op.input_kinds[1] = Characteristic::kOptional;
  op.infer_output_shapes = ScaleShapes;
  return op;
}

Op Positives() {
  Op op = MakeOp("Positive");
  op.num_outputs = 2;
  op.outputs[1] = kInt64;
  op.output_kinds[1] = Characteristic::kOptional;
  return op;
}

Op Totals() {
  Op op = MakeOp("Total");
  op.inputs[0] = kAny;
  op.input_kinds[0] = Characteristic::kVariadic;
  op.homogeneous = 0;
  return op;
}

Op Cuts() {
  Op op = MakeOp("Halves");
  op.output_kinds[0] = Characteristic::kVariadic;
  return op;
}

Op Sames() {
  Op op = MakeOp("Same");
  op.inputs[0] = op.outputs[0] = kAny;
  return op;
}

// All that a host of the first version does not know points to nowhere, but what releases of ONNX
// Runtime ask such an op too: whether its ports are optional, and then take no notice of it.
Op Olds() {
  Op op = MakeOp("Old");
  op.version = 1;
  op.create_kernel = CreateOld;
  op.compute = ComputeOld;
  op.input_kinds[0] = Characteristic::kOptional;
  auto* const first = reinterpret_cast<char*>(&op.input_memory_type);
  auto* const end = reinterpret_cast<char*>(&op.end_version + 1);
  std::memset(first, 0x5a, static_cast<size_t>(end - first));
  return op;
}

Op Devices() {
  Op op = MakeOp("Device");
  op.provider = "CUDAExecutionProvider";
  return op;
}

Op Texts() {
  Op op = MakeOp("Text");
  op.inputs[0] = op.outputs[0] = kString;
  return op;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) Status* RegisterCustomOps(SessionOptions* options,
                                                                            const ApiBase* base) {
  api = base->get_api(kVersion);
  static const Op ops[] = {
      Scales(kFloat),    Scales(kDouble), Positives(),       Totals(),  Cuts(),  Sames(),
      MakeOp("Table"),   Olds(),          MakeOp("Numbers"), Devices(), Texts(), MakeOp("Lacking"),
      MakeOp("Failing"), MakeOp("Silent")};
  static CustomOpDomain* domain = nullptr;  // as long as the host has it
  Status* status = kCreateCustomOpDomain(api, "third.party", &domain);
  if (status != nullptr) return status;
  for (const Op& op : ops) {
    status = kCustomOpDomainAdd(api, domain, &op);
    if (status != nullptr) return status;
  }
  return kAddCustomOpDomain(api, options, domain);
}
