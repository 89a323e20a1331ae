// Our declarations of ONNX Runtime's C API against its own header. Compiled where
// PAGEFUSE_ORT_INCLUDE_DIR has it; nothing here runs.
#include <cstddef>

#include "onnxruntime_c_api.h"
#include "plugin/ort_abi.h"

namespace pagefuse::ort {

#define PF_PLACE(ours, theirs) \
  static_assert(ours.place * sizeof(void*) == offsetof(OrtApi, theirs), #theirs)
PF_PLACE(kCreateStatus, CreateStatus);
PF_PLACE(kGetErrorMessage, GetErrorMessage);
PF_PLACE(kCreateEnv, CreateEnv);
PF_PLACE(kCreateEnvWithCustomLogger, CreateEnvWithCustomLogger);
PF_PLACE(kCreateSession, CreateSession);
PF_PLACE(kRun, Run);
PF_PLACE(kCreateSessionOptions, CreateSessionOptions);
PF_PLACE(kSetIntraOpNumThreads, SetIntraOpNumThreads);
PF_PLACE(kCreateCustomOpDomain, CreateCustomOpDomain);
PF_PLACE(kCustomOpDomainAdd, CustomOpDomain_Add);
PF_PLACE(kAddCustomOpDomain, AddCustomOpDomain);
PF_PLACE(kRegisterCustomOpsLibrary, RegisterCustomOpsLibrary);
PF_PLACE(kCreateTensorWithDataAsOrtValue, CreateTensorWithDataAsOrtValue);
PF_PLACE(kGetTensorMutableData, GetTensorMutableData);
PF_PLACE(kCastTypeInfoToTensorInfo, CastTypeInfoToTensorInfo);
PF_PLACE(kCreateTensorTypeAndShapeInfo, CreateTensorTypeAndShapeInfo);
PF_PLACE(kSetTensorElementType, SetTensorElementType);
PF_PLACE(kSetDimensions, SetDimensions);
PF_PLACE(kGetTensorElementType, GetTensorElementType);
PF_PLACE(kGetDimensionsCount, GetDimensionsCount);
PF_PLACE(kGetDimensions, GetDimensions);
PF_PLACE(kGetSymbolicDimensions, GetSymbolicDimensions);
PF_PLACE(kGetTensorTypeAndShape, GetTensorTypeAndShape);
PF_PLACE(kCreateCpuMemoryInfo, CreateCpuMemoryInfo);
PF_PLACE(kKernelInfoGetAttributeFloat, KernelInfoGetAttribute_float);
PF_PLACE(kKernelInfoGetAttributeInt64, KernelInfoGetAttribute_int64);
PF_PLACE(kKernelInfoGetAttributeString, KernelInfoGetAttribute_string);
PF_PLACE(kKernelContextGetInput, KernelContext_GetInput);
PF_PLACE(kKernelContextGetOutput, KernelContext_GetOutput);
PF_PLACE(kReleaseEnv, ReleaseEnv);
PF_PLACE(kReleaseStatus, ReleaseStatus);
PF_PLACE(kReleaseMemoryInfo, ReleaseMemoryInfo);
PF_PLACE(kReleaseSession, ReleaseSession);
PF_PLACE(kReleaseValue, ReleaseValue);
PF_PLACE(kReleaseTypeInfo, ReleaseTypeInfo);
PF_PLACE(kReleaseTensorTypeAndShapeInfo, ReleaseTensorTypeAndShapeInfo);
PF_PLACE(kReleaseSessionOptions, ReleaseSessionOptions);
PF_PLACE(kAddSessionConfigEntry, AddSessionConfigEntry);
PF_PLACE(kKernelInfoGetAttributeFloats, KernelInfoGetAttributeArray_float);
PF_PLACE(kKernelInfoGetAttributeInt64s, KernelInfoGetAttributeArray_int64);
PF_PLACE(kKernelInfoGetInputCount, KernelInfo_GetInputCount);
PF_PLACE(kKernelInfoGetOutputCount, KernelInfo_GetOutputCount);
PF_PLACE(kKernelInfoGetInputName, KernelInfo_GetInputName);
PF_PLACE(kKernelInfoGetOutputName, KernelInfo_GetOutputName);
PF_PLACE(kKernelInfoGetInputTypeInfo, KernelInfo_GetInputTypeInfo);
PF_PLACE(kKernelInfoGetOutputTypeInfo, KernelInfo_GetOutputTypeInfo);
PF_PLACE(kHasSessionConfigEntry, HasSessionConfigEntry);
PF_PLACE(kGetSessionConfigEntry, GetSessionConfigEntry);
PF_PLACE(kKernelInfoGetNodeName, KernelInfo_GetNodeName);
PF_PLACE(kKernelContextGetLogger, KernelContext_GetLogger);
PF_PLACE(kLoggerLogMessage, Logger_LogMessage);
PF_PLACE(kKernelInfoGetConstantInput, KernelInfoGetConstantInput_tensor);
PF_PLACE(kShapeInferContextGetInputCount, ShapeInferContext_GetInputCount);
PF_PLACE(kShapeInferContextGetInputTypeShape, ShapeInferContext_GetInputTypeShape);
PF_PLACE(kShapeInferContextGetAttribute, ShapeInferContext_GetAttribute);
PF_PLACE(kShapeInferContextSetOutputTypeShape, ShapeInferContext_SetOutputTypeShape);
PF_PLACE(kSetSymbolicDimensions, SetSymbolicDimensions);
PF_PLACE(kReadOpAttr, ReadOpAttr);
PF_PLACE(kKernelContextParallelFor, KernelContext_ParallelFor);
#undef PF_PLACE

#define PF_MEMBER(ours, theirs) \
  static_assert(offsetof(CustomOp, ours) == offsetof(OrtCustomOp, theirs), #theirs)
PF_MEMBER(version, version);
PF_MEMBER(create_kernel, CreateKernel);
PF_MEMBER(name, GetName);
PF_MEMBER(execution_provider, GetExecutionProviderType);
PF_MEMBER(input_type, GetInputType);
PF_MEMBER(input_count, GetInputTypeCount);
PF_MEMBER(output_type, GetOutputType);
PF_MEMBER(output_count, GetOutputTypeCount);
PF_MEMBER(compute, KernelCompute);
PF_MEMBER(destroy, KernelDestroy);
PF_MEMBER(input_characteristic, GetInputCharacteristic);
PF_MEMBER(output_characteristic, GetOutputCharacteristic);
PF_MEMBER(input_memory_type, GetInputMemoryType);
PF_MEMBER(variadic_input_min_arity, GetVariadicInputMinArity);
PF_MEMBER(variadic_input_homogeneity, GetVariadicInputHomogeneity);
PF_MEMBER(variadic_output_min_arity, GetVariadicOutputMinArity);
PF_MEMBER(variadic_output_homogeneity, GetVariadicOutputHomogeneity);
PF_MEMBER(create_kernel_v2, CreateKernelV2);
PF_MEMBER(compute_v2, KernelComputeV2);
PF_MEMBER(infer_output_shapes, InferOutputShapeFn);
PF_MEMBER(start_version, GetStartVersion);
PF_MEMBER(end_version, GetEndVersion);
#undef PF_MEMBER

static_assert(static_cast<int>(ErrorCode::kFail) == ORT_FAIL);
static_assert(static_cast<int>(ErrorCode::kInvalidArgument) == ORT_INVALID_ARGUMENT);
static_assert(static_cast<int>(ErrorCode::kNotImplemented) == ORT_NOT_IMPLEMENTED);
static_assert(static_cast<int>(Characteristic::kOptional) == INPUT_OUTPUT_OPTIONAL);
static_assert(static_cast<int>(Characteristic::kVariadic) == INPUT_OUTPUT_VARIADIC);
static_assert(static_cast<int>(OpAttrType::kInt) == ORT_OP_ATTR_INT);
static_assert(static_cast<int>(OpAttrType::kInts) == ORT_OP_ATTR_INTS);
static_assert(static_cast<int>(OpAttrType::kFloat) == ORT_OP_ATTR_FLOAT);
static_assert(static_cast<int>(OpAttrType::kFloats) == ORT_OP_ATTR_FLOATS);
static_assert(static_cast<int>(OpAttrType::kString) == ORT_OP_ATTR_STRING);

}  // namespace pagefuse::ort
