// SPDX-License-Identifier: Apache-2.0
/* A library of custom ops in plain C, compiled with ONNX Runtime's own header: it knows nothing of pagefuse.
 *
 * third.party.c.Affine: y = a * x + b for floats, `a` an attribute, `b` an optional input of one element.
 * third.party.c.Longest: the longest of any number of inputs, by the number of elements.
 */
#include <stdlib.h>
#include <string.h>

#include "onnxruntime_c_api.h"

static const OrtApi* ort;

typedef struct {
  float a;
} Affine;

static OrtStatus* elements(const OrtValue* value, float** data, size_t* count, int64_t* dims, size_t* rank) {
  OrtTensorTypeAndShapeInfo* info = NULL;
  OrtStatus* status = ort->GetTensorTypeAndShape(value, &info);
  if (status) return status;
  status = ort->GetTensorShapeElementCount(info, count);
  if (!status) status = ort->GetDimensionsCount(info, rank);
  if (!status && *rank > 8) status = ort->CreateStatus(ORT_INVALID_ARGUMENT, "too many dims");
  if (!status) status = ort->GetDimensions(info, dims, *rank);
  ort->ReleaseTensorTypeAndShapeInfo(info);
  if (!status) status = ort->GetTensorMutableData((OrtValue*)value, (void**)data);
  return status;
}

static OrtStatus* output(OrtKernelContext* context, const int64_t* dims, size_t rank, float** data) {
  OrtValue* value = NULL;
  OrtStatus* status = ort->KernelContext_GetOutput(context, 0, dims, rank, &value);
  return status ? status : ort->GetTensorMutableData(value, (void**)data);
}

static OrtStatus* affine_create(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info, void** kernel) {
  (void)op;
  (void)api;
  Affine* made = malloc(sizeof(Affine));
  OrtStatus* status = ort->KernelInfoGetAttribute_float(info, "a", &made->a);
  if (status) {
    free(made);
    return status;
  }
  *kernel = made;
  return NULL;
}

static OrtStatus* affine_compute(void* kernel, OrtKernelContext* context) {
  const OrtValue *x = NULL, *b = NULL;
  float *from = NULL, *add = NULL, *to = NULL, shift = 0;
  size_t count = 0, rank = 0, one = 0;
  int64_t dims[8], ignored[8];
  OrtStatus* status = ort->KernelContext_GetInput(context, 0, &x);
  if (!status) status = elements(x, &from, &count, dims, &rank);
  if (!status) status = output(context, dims, rank, &to);
  if (!status) status = ort->KernelContext_GetInput(context, 1, &b);
  if (!status && b) status = elements(b, &add, &one, ignored, &rank);
  if (status) return status;
  if (b) shift = add[0];
  for (size_t i = 0; i < count; ++i) to[i] = ((Affine*)kernel)->a * from[i] + shift;
  return NULL;
}

static OrtStatus* longest_create(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info, void** kernel) {
  (void)op;
  (void)api;
  (void)info;
  *kernel = malloc(1);
  return NULL;
}

static OrtStatus* longest_compute(void* kernel, OrtKernelContext* context) {
  size_t inputs = 0, most = 0, best_rank = 0;
  float *best = NULL, *to = NULL;
  int64_t best_dims[8] = {0};
  (void)kernel;
  OrtStatus* status = ort->KernelContext_GetInputCount(context, &inputs);
  for (size_t i = 0; !status && i < inputs; ++i) {
    const OrtValue* x = NULL;
    float* from = NULL;
    size_t count = 0, rank = 0;
    int64_t dims[8];
    status = ort->KernelContext_GetInput(context, i, &x);
    if (!status) status = elements(x, &from, &count, dims, &rank);
    if (status || (best && count <= most)) continue;
    most = count;
    best = from;
    best_rank = rank;
    memcpy(best_dims, dims, rank * sizeof(int64_t));
  }
  if (!status) status = output(context, best_dims, best_rank, &to);
  if (!status) memcpy(to, best, most * sizeof(float));
  return status;
}

static const char* affine_name(const OrtCustomOp* op) { return (void)op, "Affine"; }
static const char* longest_name(const OrtCustomOp* op) { return (void)op, "Longest"; }
static const char* provider(const OrtCustomOp* op) { return (void)op, "CPUExecutionProvider"; }
static ONNXTensorElementDataType of_float(const OrtCustomOp* op, size_t i) {
  return (void)op, (void)i, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}
static size_t one_port(const OrtCustomOp* op) { return (void)op, 1; }
static size_t two_ports(const OrtCustomOp* op) { return (void)op, 2; }
static OrtCustomOpInputOutputCharacteristic required(const OrtCustomOp* op, size_t i) {
  return (void)op, (void)i, INPUT_OUTPUT_REQUIRED;
}
static OrtCustomOpInputOutputCharacteristic second_is_optional(const OrtCustomOp* op, size_t i) {
  return (void)op, i == 1 ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
}
static OrtCustomOpInputOutputCharacteristic variadic(const OrtCustomOp* op, size_t i) {
  return (void)op, (void)i, INPUT_OUTPUT_VARIADIC;
}
static OrtMemType default_memory(const OrtCustomOp* op, size_t i) { return (void)op, (void)i, OrtMemTypeDefault; }
static int one(const OrtCustomOp* op) { return (void)op, 1; }
static int last_version(const OrtCustomOp* op) { return (void)op, 0x7fffffff; }

static OrtCustomOp base_op(void) {
  OrtCustomOp op;
  memset(&op, 0, sizeof(op));
  op.version = ORT_API_VERSION;
  op.GetExecutionProviderType = provider;
  op.GetInputType = of_float;
  op.GetInputTypeCount = one_port;
  op.GetOutputType = of_float;
  op.GetOutputTypeCount = one_port;
  op.KernelDestroy = free;
  op.GetInputCharacteristic = required;
  op.GetOutputCharacteristic = required;
  op.GetInputMemoryType = default_memory;
  op.GetVariadicInputMinArity = op.GetVariadicOutputMinArity = one;
  op.GetVariadicInputHomogeneity = op.GetVariadicOutputHomogeneity = one;
  op.GetStartVersion = one;
  op.GetEndVersion = last_version;
  return op;
}

OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* api);

__attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* api) {
  static OrtCustomOp affine, longest;
  static OrtCustomOpDomain* domain;
  ort = api->GetApi(ORT_API_VERSION);
  affine = base_op();
  affine.GetName = affine_name;
  affine.GetInputTypeCount = two_ports;
  affine.GetInputCharacteristic = second_is_optional;
  affine.CreateKernelV2 = affine_create;
  affine.KernelComputeV2 = affine_compute;
  longest = base_op();
  longest.GetName = longest_name;
  longest.GetInputCharacteristic = variadic;
  longest.CreateKernelV2 = longest_create;
  longest.KernelComputeV2 = longest_compute;
  OrtStatus* status = ort->CreateCustomOpDomain("third.party.c", &domain);
  if (!status) status = ort->CustomOpDomain_Add(domain, &affine);
  if (!status) status = ort->CustomOpDomain_Add(domain, &longest);
  return status ? status : ort->AddCustomOpDomain(options, domain);
}
