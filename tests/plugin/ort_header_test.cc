// SPDX-License-Identifier: Apache-2.0
// Our declarations of ONNX Runtime's C API against its own header. Compiled where
// PAGEFUSE_ORT_INCLUDE_DIR has it; nothing here runs.
#include <cstddef>
#include <type_traits>

#include "onnxruntime_c_api.h"
#include "plugin/ort/ort_abi.h"

namespace pagefuse::ort {
namespace {

// --- types ---

// Whether a type of ours is one of theirs: the same, an enum or a number of its size, an address of
// such a type, or a function of such types.
template <typename Ours, typename Theirs>
struct Agree : std::bool_constant<std::is_same_v<Ours, Theirs>> {};

template <typename Ours, typename Theirs>
constexpr bool IsNumberFor() {
  if constexpr (std::is_enum_v<Theirs> && (std::is_enum_v<Ours> || std::is_same_v<Ours, int>)) {
    return sizeof(Ours) == sizeof(Theirs);
  }
  return false;
}
template <typename Ours, typename Theirs>
requires std::is_enum_v<Theirs>
struct Agree<Ours, Theirs> : std::bool_constant<IsNumberFor<Ours, Theirs>()> {
};

template <typename Ours, typename Theirs>
struct Agree<const Ours, const Theirs> : Agree<Ours, Theirs> {};
template <typename Ours, typename Theirs>
struct Agree<Ours*, Theirs*> : Agree<Ours, Theirs> {};
// The table is an array of addresses to us.
template <>
struct Agree<Api*, const OrtApi*> : std::true_type {};

template <typename Result, typename... Args, typename TheirResult, typename... TheirArgs>
struct Agree<Result(Args...), TheirResult(TheirArgs...)> {
  static constexpr bool Value() {
    if constexpr (sizeof...(Args) != sizeof...(TheirArgs)) {
      return false;
    } else {
      return Agree<Result, TheirResult>::value && (Agree<Args, TheirArgs>::value && ...);
    }
  }
  static constexpr bool value = Value();
};
template <typename Ours, typename TheirResult, typename... TheirArgs>
struct Agree<Ours, TheirResult(TheirArgs...) noexcept> : Agree<Ours, TheirResult(TheirArgs...)> {};

// Objects that are known by address.
#define PF_OBJECT(name) \
  template <>           \
  struct Agree<name, Ort##name> : std::true_type {}
PF_OBJECT(Allocator);
PF_OBJECT(ApiBase);
PF_OBJECT(CustomOp);
PF_OBJECT(CustomOpDomain);
PF_OBJECT(Env);
PF_OBJECT(KernelContext);
PF_OBJECT(KernelInfo);
PF_OBJECT(Logger);
PF_OBJECT(MemoryInfo);
PF_OBJECT(OpAttr);
PF_OBJECT(RunOptions);
PF_OBJECT(Session);
PF_OBJECT(SessionOptions);
PF_OBJECT(ShapeInferContext);
PF_OBJECT(Status);
PF_OBJECT(TensorTypeAndShapeInfo);
PF_OBJECT(TypeInfo);
PF_OBJECT(Value);
#undef PF_OBJECT

static_assert(Agree<Status*(const Value*, size_t), OrtStatus*(const OrtValue*, size_t)>::value);
static_assert(!Agree<Status*(const Value*), OrtStatus*(OrtValue*)>::value);
static_assert(!Agree<Status*(const Value*), OrtStatus*(const OrtEnv*)>::value);
static_assert(!Agree<Status*(size_t), OrtStatus*(int)>::value);
static_assert(!Agree<Status*(const Value*), OrtStatus*(const OrtValue*, size_t)>::value);
static_assert(Agree<Status*(ElementType), OrtStatus*(ONNXTensorElementDataType)>::value);

// --- the functions that we call or fill in ---

template <typename Signature>
constexpr Signature* SignatureOf(const Function<Signature>& /*function*/) {
  return nullptr;
}
template <typename Ours, typename Theirs>
constexpr bool SameFunction() {
  return Agree<std::remove_pointer_t<Ours>, std::remove_pointer_t<Theirs>>::value;
}

#define PF_FUNCTION(ours, theirs)                                                      \
  static_assert(ours.place * sizeof(void*) == offsetof(OrtApi, theirs), #theirs);      \
  static_assert(SameFunction<decltype(SignatureOf(ours)), decltype(OrtApi::theirs)>(), \
                "signature of " #theirs)
PF_FUNCTION(kCreateStatus, CreateStatus);
PF_FUNCTION(kGetErrorCode, GetErrorCode);
PF_FUNCTION(kGetErrorMessage, GetErrorMessage);
PF_FUNCTION(kCreateEnv, CreateEnv);
PF_FUNCTION(kCreateEnvWithCustomLogger, CreateEnvWithCustomLogger);
PF_FUNCTION(kCreateSession, CreateSession);
PF_FUNCTION(kRun, Run);
PF_FUNCTION(kCreateSessionOptions, CreateSessionOptions);
PF_FUNCTION(kSetIntraOpNumThreads, SetIntraOpNumThreads);
PF_FUNCTION(kCreateCustomOpDomain, CreateCustomOpDomain);
PF_FUNCTION(kCustomOpDomainAdd, CustomOpDomain_Add);
PF_FUNCTION(kAddCustomOpDomain, AddCustomOpDomain);
PF_FUNCTION(kRegisterCustomOpsLibrary, RegisterCustomOpsLibrary);
PF_FUNCTION(kCreateTensorAsOrtValue, CreateTensorAsOrtValue);
PF_FUNCTION(kCreateTensorWithDataAsOrtValue, CreateTensorWithDataAsOrtValue);
PF_FUNCTION(kIsTensor, IsTensor);
PF_FUNCTION(kGetTensorMutableData, GetTensorMutableData);
PF_FUNCTION(kFillStringTensor, FillStringTensor);
PF_FUNCTION(kGetStringTensorDataLength, GetStringTensorDataLength);
PF_FUNCTION(kGetStringTensorContent, GetStringTensorContent);
PF_FUNCTION(kCastTypeInfoToTensorInfo, CastTypeInfoToTensorInfo);
PF_FUNCTION(kGetOnnxTypeFromTypeInfo, GetOnnxTypeFromTypeInfo);
PF_FUNCTION(kCreateTensorTypeAndShapeInfo, CreateTensorTypeAndShapeInfo);
PF_FUNCTION(kSetTensorElementType, SetTensorElementType);
PF_FUNCTION(kSetDimensions, SetDimensions);
PF_FUNCTION(kGetTensorElementType, GetTensorElementType);
PF_FUNCTION(kGetDimensionsCount, GetDimensionsCount);
PF_FUNCTION(kGetDimensions, GetDimensions);
PF_FUNCTION(kGetSymbolicDimensions, GetSymbolicDimensions);
PF_FUNCTION(kGetTensorShapeElementCount, GetTensorShapeElementCount);
PF_FUNCTION(kGetTensorTypeAndShape, GetTensorTypeAndShape);
PF_FUNCTION(kGetTypeInfo, GetTypeInfo);
PF_FUNCTION(kGetValueType, GetValueType);
PF_FUNCTION(kCreateMemoryInfo, CreateMemoryInfo);
PF_FUNCTION(kCreateCpuMemoryInfo, CreateCpuMemoryInfo);
PF_FUNCTION(kCompareMemoryInfo, CompareMemoryInfo);
PF_FUNCTION(kMemoryInfoGetName, MemoryInfoGetName);
PF_FUNCTION(kMemoryInfoGetId, MemoryInfoGetId);
PF_FUNCTION(kMemoryInfoGetMemType, MemoryInfoGetMemType);
PF_FUNCTION(kMemoryInfoGetType, MemoryInfoGetType);
PF_FUNCTION(kAllocatorAlloc, AllocatorAlloc);
PF_FUNCTION(kAllocatorFree, AllocatorFree);
PF_FUNCTION(kAllocatorGetInfo, AllocatorGetInfo);
PF_FUNCTION(kGetAllocatorWithDefaultOptions, GetAllocatorWithDefaultOptions);
PF_FUNCTION(kKernelInfoGetAttributeFloat, KernelInfoGetAttribute_float);
PF_FUNCTION(kKernelInfoGetAttributeInt64, KernelInfoGetAttribute_int64);
PF_FUNCTION(kKernelInfoGetAttributeString, KernelInfoGetAttribute_string);
PF_FUNCTION(kKernelContextGetInputCount, KernelContext_GetInputCount);
PF_FUNCTION(kKernelContextGetOutputCount, KernelContext_GetOutputCount);
PF_FUNCTION(kKernelContextGetInput, KernelContext_GetInput);
PF_FUNCTION(kKernelContextGetOutput, KernelContext_GetOutput);
PF_FUNCTION(kReleaseEnv, ReleaseEnv);
PF_FUNCTION(kReleaseStatus, ReleaseStatus);
PF_FUNCTION(kReleaseMemoryInfo, ReleaseMemoryInfo);
PF_FUNCTION(kReleaseSession, ReleaseSession);
PF_FUNCTION(kReleaseValue, ReleaseValue);
PF_FUNCTION(kReleaseTypeInfo, ReleaseTypeInfo);
PF_FUNCTION(kReleaseTensorTypeAndShapeInfo, ReleaseTensorTypeAndShapeInfo);
PF_FUNCTION(kReleaseSessionOptions, ReleaseSessionOptions);
PF_FUNCTION(kReleaseCustomOpDomain, ReleaseCustomOpDomain);
PF_FUNCTION(kAddSessionConfigEntry, AddSessionConfigEntry);
PF_FUNCTION(kReleaseAllocator, ReleaseAllocator);
PF_FUNCTION(kKernelInfoGetAttributeFloats, KernelInfoGetAttributeArray_float);
PF_FUNCTION(kKernelInfoGetAttributeInt64s, KernelInfoGetAttributeArray_int64);
PF_FUNCTION(kHasValue, HasValue);
PF_FUNCTION(kKernelContextGetGpuComputeStream, KernelContext_GetGPUComputeStream);
PF_FUNCTION(kGetTensorMemoryInfo, GetTensorMemoryInfo);
PF_FUNCTION(kMemoryInfoGetDeviceType, MemoryInfoGetDeviceType);
PF_FUNCTION(kKernelInfoGetInputCount, KernelInfo_GetInputCount);
PF_FUNCTION(kKernelInfoGetOutputCount, KernelInfo_GetOutputCount);
PF_FUNCTION(kKernelInfoGetInputName, KernelInfo_GetInputName);
PF_FUNCTION(kKernelInfoGetOutputName, KernelInfo_GetOutputName);
PF_FUNCTION(kKernelInfoGetInputTypeInfo, KernelInfo_GetInputTypeInfo);
PF_FUNCTION(kKernelInfoGetOutputTypeInfo, KernelInfo_GetOutputTypeInfo);
PF_FUNCTION(kKernelInfoGetAttributeTensor, KernelInfoGetAttribute_tensor);
PF_FUNCTION(kHasSessionConfigEntry, HasSessionConfigEntry);
PF_FUNCTION(kGetSessionConfigEntry, GetSessionConfigEntry);
PF_FUNCTION(kKernelInfoGetNodeName, KernelInfo_GetNodeName);
PF_FUNCTION(kKernelInfoGetLogger, KernelInfo_GetLogger);
PF_FUNCTION(kKernelContextGetLogger, KernelContext_GetLogger);
PF_FUNCTION(kLoggerLogMessage, Logger_LogMessage);
PF_FUNCTION(kLoggerGetLoggingSeverityLevel, Logger_GetLoggingSeverityLevel);
PF_FUNCTION(kKernelInfoGetConstantInput, KernelInfoGetConstantInput_tensor);
PF_FUNCTION(kKernelContextGetAllocator, KernelContext_GetAllocator);
PF_FUNCTION(kGetBuildInfoString, GetBuildInfoString);
PF_FUNCTION(kKernelContextGetResource, KernelContext_GetResource);
PF_FUNCTION(kShapeInferContextGetInputCount, ShapeInferContext_GetInputCount);
PF_FUNCTION(kShapeInferContextGetInputTypeShape, ShapeInferContext_GetInputTypeShape);
PF_FUNCTION(kShapeInferContextGetAttribute, ShapeInferContext_GetAttribute);
PF_FUNCTION(kShapeInferContextSetOutputTypeShape, ShapeInferContext_SetOutputTypeShape);
PF_FUNCTION(kSetSymbolicDimensions, SetSymbolicDimensions);
PF_FUNCTION(kReadOpAttr, ReadOpAttr);
PF_FUNCTION(kKernelContextParallelFor, KernelContext_ParallelFor);
PF_FUNCTION(kKernelContextGetScratchBuffer, KernelContext_GetScratchBuffer);
PF_FUNCTION(kKernelInfoGetAllocator, KernelInfoGetAllocator);
#if ORT_API_VERSION >= 22
PF_FUNCTION(kGetTensorSizeInBytes, GetTensorSizeInBytes);
#endif
#if ORT_API_VERSION >= 23
PF_FUNCTION(kGetTensorData, GetTensorData);
#endif
#undef PF_FUNCTION

// --- the names of all functions ---

enum class Place {
#define PF_STATUS(name) name,
#define PF_OTHER(name) name,
#include "plugin/custom_ops/slots.inc"
#undef PF_STATUS
#undef PF_OTHER
};

template <typename Function>
struct AnswersStatus : std::false_type {};
template <typename... Args>
struct AnswersStatus<OrtStatus* (*)(Args...)> : std::true_type {};
template <typename... Args>
struct AnswersStatus<OrtStatus* (*)(Args...) noexcept> : std::true_type {};

// Functions that are newer than the header are not looked at.
#define PF_NAME(name, answers_status)                                                     \
  template <typename Table>                                                               \
  constexpr bool IsRight##name() {                                                        \
    if constexpr (requires(Table table) { table.name; }) {                                \
      return offsetof(Table, name) == static_cast<size_t>(Place::name) * sizeof(void*) && \
             AnswersStatus<decltype(Table::name)>::value == (answers_status);             \
    }                                                                                     \
    return true;                                                                          \
  }                                                                                       \
  static_assert(IsRight##name<OrtApi>(), #name);
#define PF_STATUS(name) PF_NAME(name, true)
#define PF_OTHER(name) PF_NAME(name, false)
#include "plugin/custom_ops/slots.inc"
#undef PF_STATUS
#undef PF_OTHER
#undef PF_NAME

// --- members and numbers ---

#define PF_MEMBER(type, ours, theirs)                                              \
  static_assert(offsetof(type, ours) == offsetof(Ort##type, theirs), #theirs);     \
  static_assert(SameFunction<decltype(type::ours), decltype(Ort##type::theirs)>(), \
                "type of " #theirs)
PF_MEMBER(CustomOp, version, version);
PF_MEMBER(CustomOp, create_kernel, CreateKernel);
PF_MEMBER(CustomOp, name, GetName);
PF_MEMBER(CustomOp, execution_provider, GetExecutionProviderType);
PF_MEMBER(CustomOp, input_type, GetInputType);
PF_MEMBER(CustomOp, input_count, GetInputTypeCount);
PF_MEMBER(CustomOp, output_type, GetOutputType);
PF_MEMBER(CustomOp, output_count, GetOutputTypeCount);
PF_MEMBER(CustomOp, compute, KernelCompute);
PF_MEMBER(CustomOp, destroy, KernelDestroy);
PF_MEMBER(CustomOp, input_characteristic, GetInputCharacteristic);
PF_MEMBER(CustomOp, output_characteristic, GetOutputCharacteristic);
PF_MEMBER(CustomOp, input_memory_type, GetInputMemoryType);
PF_MEMBER(CustomOp, variadic_input_min_arity, GetVariadicInputMinArity);
PF_MEMBER(CustomOp, variadic_input_homogeneity, GetVariadicInputHomogeneity);
PF_MEMBER(CustomOp, variadic_output_min_arity, GetVariadicOutputMinArity);
PF_MEMBER(CustomOp, variadic_output_homogeneity, GetVariadicOutputHomogeneity);
PF_MEMBER(CustomOp, create_kernel_v2, CreateKernelV2);
PF_MEMBER(CustomOp, compute_v2, KernelComputeV2);
PF_MEMBER(CustomOp, infer_output_shapes, InferOutputShapeFn);
PF_MEMBER(CustomOp, start_version, GetStartVersion);
PF_MEMBER(CustomOp, end_version, GetEndVersion);
PF_MEMBER(Allocator, version, version);
PF_MEMBER(Allocator, alloc, Alloc);
PF_MEMBER(Allocator, free, Free);
PF_MEMBER(Allocator, info, Info);
PF_MEMBER(Allocator, reserve, Reserve);
PF_MEMBER(ApiBase, get_api, GetApi);
PF_MEMBER(ApiBase, version, GetVersionString);
#undef PF_MEMBER

static_assert(static_cast<int>(ErrorCode::kOk) == ORT_OK);
static_assert(static_cast<int>(ErrorCode::kFail) == ORT_FAIL);
static_assert(static_cast<int>(ErrorCode::kInvalidArgument) == ORT_INVALID_ARGUMENT);
static_assert(static_cast<int>(ErrorCode::kNotImplemented) == ORT_NOT_IMPLEMENTED);
static_assert(static_cast<int>(LoggingLevel::kVerbose) == ORT_LOGGING_LEVEL_VERBOSE);
static_assert(static_cast<int>(LoggingLevel::kFatal) == ORT_LOGGING_LEVEL_FATAL);
static_assert(static_cast<int>(ValueType::kTensor) == ONNX_TYPE_TENSOR);
static_assert(static_cast<int>(Characteristic::kOptional) == INPUT_OUTPUT_OPTIONAL);
static_assert(static_cast<int>(Characteristic::kVariadic) == INPUT_OUTPUT_VARIADIC);
static_assert(kDefaultMemoryType == OrtMemTypeDefault);
static_assert(static_cast<int>(OpAttrType::kInt) == ORT_OP_ATTR_INT);
static_assert(static_cast<int>(OpAttrType::kInts) == ORT_OP_ATTR_INTS);
static_assert(static_cast<int>(OpAttrType::kFloat) == ORT_OP_ATTR_FLOAT);
static_assert(static_cast<int>(OpAttrType::kFloats) == ORT_OP_ATTR_FLOATS);
static_assert(static_cast<int>(OpAttrType::kString) == ORT_OP_ATTR_STRING);
static_assert(static_cast<int>(OpAttrType::kStrings) == ORT_OP_ATTR_STRINGS);

}  // namespace
}  // namespace pagefuse::ort
