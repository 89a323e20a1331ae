// SPDX-License-Identifier: Apache-2.0
// Libraries of custom ops that are wrong, each in the way that a macro WRONG_... names.
#include "plugin/ort/ort_abi.h"

namespace {

using namespace pagefuse::ort;  // NOLINT(google-build-using-namespace)

constexpr ElementType kFloat = 1;
#if defined(WRONG_NEWER)
constexpr uint32_t kVersion = 24;
#else
constexpr uint32_t kVersion = 17;
#endif

size_t One(const CustomOp* /*op*/) { return 1; }
size_t Two(const CustomOp* /*op*/) { return 2; }
ElementType Float(const CustomOp* /*op*/, size_t /*port*/) { return kFloat; }
Characteristic Required(const CustomOp* /*op*/, size_t /*port*/) {
  return Characteristic::kRequired;
}
Characteristic Variadic(const CustomOp* /*op*/, size_t /*port*/) {
  return Characteristic::kVariadic;
}

CustomOp MakeOp() {
  CustomOp op = {};
  op.version = kVersion;
  op.name = [](const CustomOp*) { return "Wrong"; };
  op.execution_provider = [](const CustomOp*) -> const char* { return nullptr; };
  op.input_count = op.output_count = One;
  op.input_type = op.output_type = Float;
  op.input_characteristic = op.output_characteristic = Required;
  op.create_kernel = [](const CustomOp*, Api*, const KernelInfo*) -> void* { return nullptr; };
  op.compute = [](void*, KernelContext*) {};
  op.destroy = [](void*) {};
  return op;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) Status* RegisterCustomOps(SessionOptions* options,
                                                                            const ApiBase* base) {
  Api* api = base->get_api(kVersion);
  static CustomOp op = MakeOp(), other = MakeOp();
  const char* name = "wrong.party";
#if defined(WRONG_FAILURE)
  return kCreateStatus(api, ErrorCode::kFail, "no licence for this machine");
#elif defined(WRONG_DECLARATION)
  op.version = 99;
#elif defined(WRONG_NULL)
  op.compute = nullptr;
#elif defined(WRONG_VARIADIC)
  op.input_count = Two;
  op.input_characteristic = Variadic;
#elif defined(WRONG_ROWS)
  other.input_count = Two;
#elif defined(WRONG_DOMAIN)
  name = "";
#elif defined(WRONG_FUNCTION)
  Env* env = nullptr;
  Status* status = kCreateEnv(api, LoggingLevel::kWarning, "wrong", &env);
  if (status != nullptr) return status;
#elif defined(WRONG_THROW)
  throw 8;
#endif
  (void)Two;
  (void)Variadic;
  static CustomOpDomain* domain = nullptr;
  Status* failed = kCreateCustomOpDomain(api, name, &domain);
  if (failed == nullptr) failed = kCustomOpDomainAdd(api, domain, &op);
  if (failed == nullptr) failed = kCustomOpDomainAdd(api, domain, &other);
  return failed != nullptr ? failed : kAddCustomOpDomain(api, options, domain);
}
