// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/loader/host_table.h"

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <list>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/base/parallel.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/plugin/loader/node_view.h"

namespace pagefuse {
namespace {

static_assert(PF_OK == static_cast<int>(absl::StatusCode::kOk));
static_assert(PF_INVALID_ARGUMENT == static_cast<int>(absl::StatusCode::kInvalidArgument));
static_assert(PF_NOT_FOUND == static_cast<int>(absl::StatusCode::kNotFound));
static_assert(PF_RESOURCE_EXHAUSTED == static_cast<int>(absl::StatusCode::kResourceExhausted));
static_assert(PF_FAILED_PRECONDITION == static_cast<int>(absl::StatusCode::kFailedPrecondition));
static_assert(PF_UNIMPLEMENTED == static_cast<int>(absl::StatusCode::kUnimplemented));
static_assert(PF_INTERNAL == static_cast<int>(absl::StatusCode::kInternal));
static_assert(PF_FLOAT == static_cast<int>(DataType::kFloat));
static_assert(PF_BFLOAT16 == static_cast<int>(DataType::kBfloat16));
static_assert(PF_FLOAT8E8M0 == static_cast<int>(DataType::kFloat8E8M0) &&
              PF_FLOAT8E8M0 == kMaxDataType);

thread_local std::string error_text;

std::string Format(const char* format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (size <= 0) return "";
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::vsnprintf(text.data(), text.size(), format, arguments);
  text.pop_back();
  return text;
}

// A table, and whose it is.
struct Host {
  pf_host table;  // first: a pointer to it is one to the whole
  std::string plugin;
};

pf_status Fail(pf_status status, std::string text) {
  error_text = std::move(text);
  return status;
}

pf_status Error(const pf_host*, pf_status status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  error_text = Format(format, arguments);
  va_end(arguments);
  return status;
}

void Log(const pf_host* host, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string text = Format(format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "%s: %s\n", reinterpret_cast<const Host*>(host)->plugin.c_str(),
               text.c_str());
}

// The attribute if it is a T.
template <typename T>
pf_status Find(const pf_node* node, const char* name, const T** value) {
  const Attribute* attribute = node->attribute(name);
  if (attribute == nullptr) {
    return Fail(PF_NOT_FOUND, StrCat("there is no attribute \"", std::string_view(name), "\""));
  }
  *value = std::get_if<T>(&attribute->value);
  if (*value != nullptr) return PF_OK;
  return Fail(PF_INVALID_ARGUMENT,
              StrCat("attribute \"", std::string_view(name), "\" is of another kind"));
}

template <typename T>
pf_status GetOne(const pf_node* node, const char* name, T* value) {
  const T* found = nullptr;
  const pf_status status = Find(node, name, &found);
  if (status == PF_OK) *value = *found;
  return status;
}

template <typename T>
pf_status GetList(const pf_node* node, const char* name, const T** values, size_t* count) {
  const std::vector<T>* found = nullptr;
  const pf_status status = Find(node, name, &found);
  if (status != PF_OK) return status;
  *values = found->data();
  *count = found->size();
  return PF_OK;
}

pf_status GetString(const pf_node* node, const char* name, const char** text, size_t* size) {
  const std::string* found = nullptr;
  const pf_status status = Find(node, name, &found);
  if (status != PF_OK) return status;
  *text = found->c_str();
  *size = found->size();
  return PF_OK;
}

pf_status Loop(const pf_host*, int64_t count, int64_t item_bytes,
               pf_status (*body)(void* context, int64_t begin, int64_t end), void* context) {
  std::mutex lock;
  pf_status failure = PF_OK;
  std::string text;
  ParallelFor(count, item_bytes, [&](int64_t begin, int64_t end) {
    error_text.clear();
    const pf_status status = body(context, begin, end);
    if (status == PF_OK) return;
    const std::lock_guard guard(lock);
    if (failure != PF_OK) return;
    failure = status;
    text = error_text;
  });
  return failure == PF_OK ? PF_OK : Fail(failure, std::move(text));
}

pf_host Table() {
  return {.size = sizeof(pf_host),
          .version = PAGEFUSE_VERSION,
          .error = Error,
          .log = Log,
          .num_inputs = [](const pf_node* node) { return node->num_inputs(); },
          .num_outputs = [](const pf_node* node) { return node->num_outputs(); },
          .input = [](const pf_node* node, int32_t index) { return node->input(index); },
          .output = [](const pf_node* node, int32_t index) { return node->output(index); },
          .constant = [](const pf_node* node, int32_t index) { return node->constant(index); },
          .attribute_int = GetOne<int64_t>,
          .attribute_float = GetOne<float>,
          .attribute_string = GetString,
          .attribute_ints = GetList<int64_t>,
          .attribute_floats = GetList<float>,
          .scratch = [](const pf_node* node, size_t size) { return node->Scratch(size); },
          .parallel_for = Loop};
}

}  // namespace

const pf_host* MakeHost(std::string_view plugin) {
  static auto* mutex = new std::mutex;
  static auto* hosts = new std::list<Host>;
  const std::lock_guard lock(*mutex);
  return &hosts->emplace_back(Host{Table(), std::string(plugin)}).table;
}

absl::Status RunCallback(const std::function<pf_status()>& callback) {
  error_text.clear();
  pf_status status = PF_INTERNAL;
  try {
    status = callback();
  } catch (const std::exception& error) {
    error_text = StrCat("threw: ", std::string_view(error.what()));
  } catch (...) {
    error_text = "threw";
  }
  if (status == PF_OK) return absl::OkStatus();
  std::string text = std::exchange(error_text, {});
  if (text.empty()) text = StrCat("failed with status ", status, " and no text");
  constexpr pf_status kLastCode = static_cast<pf_status>(absl::StatusCode::kUnauthenticated);
  const bool is_code = status > 0 && status <= kLastCode;
  return {is_code ? static_cast<absl::StatusCode>(status) : absl::StatusCode::kInternal, text};
}

}  // namespace pagefuse
