// The part of ONNX Runtime's C API that the project uses, by the places of its functions in the
// table that every release since 1.17 gives out: the table only grows at its end, so a function
// keeps its place. Written for version 17 of the API, so that releases from 1.17 on serve.
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

enum class LoggingLevel : int { kVerbose = 0, kInfo = 1, kWarning = 2, kError = 3, kFatal = 4 };
// Element types have the numbers of ONNX's TensorProto.DataType.
using ElementType = int;

// The table of functions.
using Api = const void* const;

struct ApiBase {
  Api* (*get_api)(uint32_t version);  // null where the release does not have that version
  const char* (*version)();
};
// The one function that a library of ONNX Runtime exports for all of this.
inline constexpr char kGetApiBase[] = "OrtGetApiBase";
using GetApiBase = const ApiBase*();

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

// Null is success. Whoever gets a status releases it.
inline constexpr Function<const char*(const Status*)> kGetErrorMessage{2};
inline constexpr Function<Status*(LoggingLevel, const char*, Env**)> kCreateEnv{3};
inline constexpr Function<Status*(const Env*, const char*, const SessionOptions*, Session**)>
    kCreateSession{7};
inline constexpr Function<Status*(Session*, const RunOptions*, const char* const*,
                                  const Value* const*, size_t, const char* const*, size_t, Value**)>
    kRun{9};
inline constexpr Function<Status*(SessionOptions**)> kCreateSessionOptions{10};
inline constexpr Function<Status*(SessionOptions*, int)> kSetIntraOpNumThreads{24};
inline constexpr Function<Status*(SessionOptions*, const char*, void**)> kRegisterCustomOpsLibrary{
    29};
inline constexpr Function<Status*(const MemoryInfo*, void*, size_t, const int64_t*, size_t,
                                  ElementType, Value**)>
    kCreateTensorWithDataAsOrtValue{49};
inline constexpr Function<Status*(Value*, void**)> kGetTensorMutableData{51};
inline constexpr Function<Status*(const TensorTypeAndShapeInfo*, ElementType*)>
    kGetTensorElementType{60};
inline constexpr Function<Status*(const TensorTypeAndShapeInfo*, size_t*)> kGetDimensionsCount{61};
inline constexpr Function<Status*(const TensorTypeAndShapeInfo*, int64_t*, size_t)> kGetDimensions{
    62};
inline constexpr Function<Status*(const Value*, TensorTypeAndShapeInfo**)> kGetTensorTypeAndShape{
    65};
inline constexpr Function<Status*(int allocator, int memory, MemoryInfo**)> kCreateCpuMemoryInfo{
    69};
inline constexpr Function<void(Env*)> kReleaseEnv{92};
inline constexpr Function<void(Status*)> kReleaseStatus{93};
inline constexpr Function<void(MemoryInfo*)> kReleaseMemoryInfo{94};
inline constexpr Function<void(Session*)> kReleaseSession{95};
inline constexpr Function<void(Value*)> kReleaseValue{96};
inline constexpr Function<void(TensorTypeAndShapeInfo*)> kReleaseTensorTypeAndShapeInfo{99};
inline constexpr Function<void(SessionOptions*)> kReleaseSessionOptions{100};

}  // namespace pagefuse::ort
