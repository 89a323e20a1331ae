// SPDX-License-Identifier: Apache-2.0
// The part of ONNX Runtime's C API that the project uses, by the places of its functions in the
// table that every release since 1.17 gives out: the table only grows at its end, so a function
// keeps its place. What calls the table is written for version 17 of the API, so that releases from
// 1.17 on serve; custom_ops/ is a table of our own, for libraries of others.
//
// Source: onnxruntime_c_api.h of ONNX Runtime (MIT licence); names are the API's, without "Ort".
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagefuse::ort {

inline constexpr uint32_t kApiVersion = 17;

// Objects of ONNX Runtime, known by address only.
struct Env;
struct Status;
struct Value;
struct Session;
struct SessionOptions;
struct RunOptions;
struct MemoryInfo;
struct TensorTypeAndShapeInfo;
struct TypeInfo;
struct CustomOpDomain;
struct KernelInfo;
struct KernelContext;
struct Logger;
struct OpAttr;
struct ShapeInferContext;

enum class ErrorCode : int { kOk = 0, kFail = 1, kInvalidArgument = 2, kNotImplemented = 9 };
enum class LoggingLevel : int { kVerbose = 0, kInfo = 1, kWarning = 2, kError = 3, kFatal = 4 };
// Element types have the numbers of ONNX's TensorProto.DataType.
using ElementType = int;

// Kinds of values, by the numbers of ONNXType.
enum class ValueType : int { kUnknown = 0, kTensor = 1 };

// Gives memory. The first release that knows `reserve` is 1.18, as `version` 18.
struct Allocator {
  uint32_t version;
  void* (*alloc)(Allocator*, size_t);
  void (*free)(Allocator*, void*);
  const MemoryInfo* (*info)(const Allocator*);
  void* (*reserve)(Allocator*, size_t);
};

// The table of functions.
using Api = const void* const;

struct ApiBase {
  Api* (*get_api)(uint32_t version);  // null where the release does not have that version
  const char* (*version)();
};
// The one function that a library of ONNX Runtime exports for all of this.
inline constexpr char kGetApiBase[] = "OrtGetApiBase";
using GetApiBase = const ApiBase*();

// How a port of a custom op may be used.
enum class Characteristic : int { kRequired = 0, kOptional = 1, kVariadic = 2 };
// What the host asks of memory: as it is by default.
inline constexpr int kDefaultMemoryType = 0;
// Kinds of attributes, by the numbers of OrtOpAttrType.
enum class OpAttrType : int {
  kInt = 1,
  kInts = 2,
  kFloat = 3,
  kFloats = 4,
  kString = 5,
  kStrings = 6
};

// A custom op, as the host sees it. Whoever implements one puts its own after it.
struct CustomOp {
  uint32_t version;
  void* (*create_kernel)(const CustomOp*, Api*, const KernelInfo*);
  const char* (*name)(const CustomOp*);
  const char* (*execution_provider)(const CustomOp*);
  ElementType (*input_type)(const CustomOp*, size_t);
  size_t (*input_count)(const CustomOp*);
  ElementType (*output_type)(const CustomOp*, size_t);
  size_t (*output_count)(const CustomOp*);
  void (*compute)(void*, KernelContext*);
  void (*destroy)(void*);
  Characteristic (*input_characteristic)(const CustomOp*, size_t);
  Characteristic (*output_characteristic)(const CustomOp*, size_t);
  int (*input_memory_type)(const CustomOp*, size_t);
  int (*variadic_input_min_arity)(const CustomOp*);
  int (*variadic_input_homogeneity)(const CustomOp*);
  int (*variadic_output_min_arity)(const CustomOp*);
  int (*variadic_output_homogeneity)(const CustomOp*);
  Status* (*create_kernel_v2)(const CustomOp*, Api*, const KernelInfo*, void**);
  Status* (*compute_v2)(void*, KernelContext*);
  Status* (*infer_output_shapes)(const CustomOp*, ShapeInferContext*);
  int (*start_version)(const CustomOp*);
  int (*end_version)(const CustomOp*);
};

// Of CreateEnvWithCustomLogger: parameter, level, category, id, place in the code, message.
using LoggingFunction = void (*)(void*, LoggingLevel, const char*, const char*, const char*,
                                 const char*);

// The file that messages of our library come from, as the log says it.
inline constexpr char kLogFile[] = "pagefuse_ort";

// The one function that a library of custom ops exports.
inline constexpr char kRegisterCustomOps[] = "RegisterCustomOps";
using RegisterCustomOps = Status*(SessionOptions*, const ApiBase*);

// A function of the table; calling it calls the one of that table.
template <typename Signature>
struct Function;
template <typename Result, typename... Args>
struct Function<Result(Args...)> {
  int place;
  Result operator()(Api* api, Args... args) const {
    return reinterpret_cast<Result (*)(Args...)>(const_cast<void*>(api[place]))(args...);
  }
};

// One that answers with a status: null is success. Whoever gets a status releases it.
template <typename... Args>
using Call = Function<Status*(Args...)>;

inline constexpr Call<ErrorCode, const char*> kCreateStatus{0};
inline constexpr Function<ErrorCode(const Status*)> kGetErrorCode{1};
inline constexpr Function<const char*(const Status*)> kGetErrorMessage{2};
inline constexpr Call<LoggingLevel, const char*, Env**> kCreateEnv{3};
inline constexpr Call<LoggingFunction, void*, LoggingLevel, const char*, Env**>
    kCreateEnvWithCustomLogger{4};
inline constexpr Call<const Env*, const char*, const SessionOptions*, Session**> kCreateSession{7};
inline constexpr Call<Session*, const RunOptions*, const char* const*, const Value* const*, size_t,
                      const char* const*, size_t, Value**>
    kRun{9};
inline constexpr Call<SessionOptions**> kCreateSessionOptions{10};
inline constexpr Call<SessionOptions*, int> kSetIntraOpNumThreads{24};
inline constexpr Call<const char*, CustomOpDomain**> kCreateCustomOpDomain{26};
inline constexpr Call<CustomOpDomain*, const CustomOp*> kCustomOpDomainAdd{27};
inline constexpr Call<SessionOptions*, CustomOpDomain*> kAddCustomOpDomain{28};
inline constexpr Call<SessionOptions*, const char*, void**> kRegisterCustomOpsLibrary{29};
inline constexpr Call<Allocator*, const int64_t*, size_t, ElementType, Value**>
    kCreateTensorAsOrtValue{48};
inline constexpr Call<const MemoryInfo*, void*, size_t, const int64_t*, size_t, ElementType,
                      Value**>
    kCreateTensorWithDataAsOrtValue{49};
inline constexpr Call<const Value*, int*> kIsTensor{50};
inline constexpr Call<Value*, void**> kGetTensorMutableData{51};
inline constexpr Call<Value*, const char* const*, size_t> kFillStringTensor{52};
inline constexpr Call<const Value*, size_t*> kGetStringTensorDataLength{53};
inline constexpr Call<const Value*, void*, size_t, size_t*, size_t> kGetStringTensorContent{54};
inline constexpr Call<const TypeInfo*, const TensorTypeAndShapeInfo**> kCastTypeInfoToTensorInfo{
    55};
inline constexpr Call<const TypeInfo*, ValueType*> kGetOnnxTypeFromTypeInfo{56};
inline constexpr Call<TensorTypeAndShapeInfo**> kCreateTensorTypeAndShapeInfo{57};
inline constexpr Call<TensorTypeAndShapeInfo*, ElementType> kSetTensorElementType{58};
inline constexpr Call<TensorTypeAndShapeInfo*, const int64_t*, size_t> kSetDimensions{59};
inline constexpr Call<const TensorTypeAndShapeInfo*, ElementType*> kGetTensorElementType{60};
inline constexpr Call<const TensorTypeAndShapeInfo*, size_t*> kGetDimensionsCount{61};
inline constexpr Call<const TensorTypeAndShapeInfo*, int64_t*, size_t> kGetDimensions{62};
// Names of dims that are symbols, empty for others; they last as long as the object.
inline constexpr Call<const TensorTypeAndShapeInfo*, const char**, size_t> kGetSymbolicDimensions{
    63};
inline constexpr Call<const TensorTypeAndShapeInfo*, size_t*> kGetTensorShapeElementCount{64};
inline constexpr Call<const Value*, TensorTypeAndShapeInfo**> kGetTensorTypeAndShape{65};
inline constexpr Call<const Value*, TypeInfo**> kGetTypeInfo{66};
inline constexpr Call<const Value*, ValueType*> kGetValueType{67};
inline constexpr Function<Status*(const char*, int allocator, int id, int memory, MemoryInfo**)>
    kCreateMemoryInfo{68};
inline constexpr Function<Status*(int allocator, int memory, MemoryInfo**)> kCreateCpuMemoryInfo{
    69};
inline constexpr Call<const MemoryInfo*, const MemoryInfo*, int*> kCompareMemoryInfo{70};
inline constexpr Call<const MemoryInfo*, const char**> kMemoryInfoGetName{71};
inline constexpr Call<const MemoryInfo*, int*> kMemoryInfoGetId{72};
inline constexpr Call<const MemoryInfo*, int*> kMemoryInfoGetMemType{73};
inline constexpr Call<const MemoryInfo*, int*> kMemoryInfoGetType{74};
inline constexpr Call<Allocator*, size_t, void**> kAllocatorAlloc{75};
inline constexpr Call<Allocator*, void*> kAllocatorFree{76};
inline constexpr Call<const Allocator*, const MemoryInfo**> kAllocatorGetInfo{77};
inline constexpr Call<Allocator**> kGetAllocatorWithDefaultOptions{78};
inline constexpr Call<const KernelInfo*, const char*, float*> kKernelInfoGetAttributeFloat{85};
inline constexpr Call<const KernelInfo*, const char*, int64_t*> kKernelInfoGetAttributeInt64{86};
inline constexpr Call<const KernelInfo*, const char*, char*, size_t*> kKernelInfoGetAttributeString{
    87};
inline constexpr Call<const KernelContext*, size_t*> kKernelContextGetInputCount{88};
inline constexpr Call<const KernelContext*, size_t*> kKernelContextGetOutputCount{89};
inline constexpr Call<const KernelContext*, size_t, const Value**> kKernelContextGetInput{90};
inline constexpr Call<KernelContext*, size_t, const int64_t*, size_t, Value**>
    kKernelContextGetOutput{91};
inline constexpr Function<void(Env*)> kReleaseEnv{92};
inline constexpr Function<void(Status*)> kReleaseStatus{93};
inline constexpr Function<void(MemoryInfo*)> kReleaseMemoryInfo{94};
inline constexpr Function<void(Session*)> kReleaseSession{95};
inline constexpr Function<void(Value*)> kReleaseValue{96};
inline constexpr Function<void(TypeInfo*)> kReleaseTypeInfo{98};
inline constexpr Function<void(TensorTypeAndShapeInfo*)> kReleaseTensorTypeAndShapeInfo{99};
inline constexpr Function<void(SessionOptions*)> kReleaseSessionOptions{100};
inline constexpr Function<void(CustomOpDomain*)> kReleaseCustomOpDomain{101};
inline constexpr Call<SessionOptions*, const char*, const char*> kAddSessionConfigEntry{130};
inline constexpr Function<void(Allocator*)> kReleaseAllocator{132};
inline constexpr Call<const KernelInfo*, const char*, float*, size_t*>
    kKernelInfoGetAttributeFloats{162};
inline constexpr Call<const KernelInfo*, const char*, int64_t*, size_t*>
    kKernelInfoGetAttributeInt64s{163};
inline constexpr Call<const Value*, int*> kHasValue{192};
inline constexpr Call<const KernelContext*, void**> kKernelContextGetGpuComputeStream{193};
inline constexpr Call<const Value*, const MemoryInfo**> kGetTensorMemoryInfo{194};
inline constexpr Function<void(const MemoryInfo*, int*)> kMemoryInfoGetDeviceType{225};
inline constexpr Call<const KernelInfo*, size_t*> kKernelInfoGetInputCount{230};
inline constexpr Call<const KernelInfo*, size_t*> kKernelInfoGetOutputCount{231};
inline constexpr Call<const KernelInfo*, size_t, char*, size_t*> kKernelInfoGetInputName{232};
inline constexpr Call<const KernelInfo*, size_t, char*, size_t*> kKernelInfoGetOutputName{233};
inline constexpr Call<const KernelInfo*, size_t, TypeInfo**> kKernelInfoGetInputTypeInfo{234};
inline constexpr Call<const KernelInfo*, size_t, TypeInfo**> kKernelInfoGetOutputTypeInfo{235};
inline constexpr Call<const KernelInfo*, const char*, Allocator*, Value**>
    kKernelInfoGetAttributeTensor{236};
inline constexpr Call<const SessionOptions*, const char*, int*> kHasSessionConfigEntry{237};
inline constexpr Call<const SessionOptions*, const char*, char*, size_t*> kGetSessionConfigEntry{
    238};
inline constexpr Call<const KernelInfo*, char*, size_t*> kKernelInfoGetNodeName{244};
inline constexpr Call<const KernelInfo*, const Logger**> kKernelInfoGetLogger{245};
inline constexpr Call<const KernelContext*, const Logger**> kKernelContextGetLogger{246};
inline constexpr Call<const Logger*, LoggingLevel, const char*, const char*, int, const char*>
    kLoggerLogMessage{247};
inline constexpr Call<const Logger*, LoggingLevel*> kLoggerGetLoggingSeverityLevel{248};
inline constexpr Call<const KernelInfo*, size_t, int*, const Value**> kKernelInfoGetConstantInput{
    249};
inline constexpr Call<const KernelContext*, const MemoryInfo*, Allocator**>
    kKernelContextGetAllocator{253};
inline constexpr Function<const char*()> kGetBuildInfoString{254};
inline constexpr Function<Status*(const KernelContext*, int version, int id, void**)>
    kKernelContextGetResource{265};
inline constexpr Call<const ShapeInferContext*, size_t*> kShapeInferContextGetInputCount{267};
inline constexpr Call<const ShapeInferContext*, size_t, TensorTypeAndShapeInfo**>
    kShapeInferContextGetInputTypeShape{268};
inline constexpr Call<const ShapeInferContext*, const char*, const OpAttr**>
    kShapeInferContextGetAttribute{269};
inline constexpr Call<const ShapeInferContext*, size_t, const TensorTypeAndShapeInfo*>
    kShapeInferContextSetOutputTypeShape{270};
inline constexpr Call<TensorTypeAndShapeInfo*, const char**, size_t> kSetSymbolicDimensions{271};
inline constexpr Call<const OpAttr*, OpAttrType, void*, size_t, size_t*> kReadOpAttr{272};
inline constexpr Call<const KernelContext*, void (*)(void*, size_t), size_t, size_t, void*>
    kKernelContextParallelFor{274};
inline constexpr Call<const KernelContext*, const MemoryInfo*, size_t, void**>
    kKernelContextGetScratchBuffer{277};
inline constexpr Function<Status*(const KernelInfo*, int memory, Allocator**)>
    kKernelInfoGetAllocator{278};
inline constexpr Call<const Value*, size_t*> kGetTensorSizeInBytes{318};
inline constexpr Call<const Value*, const void**> kGetTensorData{378};

}  // namespace pagefuse::ort
