// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/tokenizer/split_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// What one match may cost: patterns of real tokenizers take a few steps a character.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr size_t kMaxPattern = 1 << 16;
constexpr size_t kJitStackStart = 64 << 10, kJitStackMost = 16 << 20;

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using CodePtr = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContextPtr = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using CompileContextPtr = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;
using JitStackPtr = std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>>;

std::string Message(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

// One walk over a text. Long matches need more than the machine's stack, which few texts do.
class Matcher {
 public:
  explicit Matcher(const pcre2_code* code)
      : code_(code),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    pcre2_set_match_limit(context_.get(), kMatchLimit);
  }

  // As pcre2_match.
  int Match(std::string_view text, size_t at, uint32_t options) {
    int result = Try(text, at, options);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {
      stack_.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr));
      pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
      result = Try(text, at, options);
    }
    return result;
  }

  const PCRE2_SIZE* range() const { return pcre2_get_ovector_pointer(data_.get()); }

 private:
  int Try(std::string_view text, size_t at, uint32_t options) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                       options | PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
  }

  const pcre2_code* code_;
  MatchDataPtr data_;
  MatchContextPtr context_;
  JitStackPtr stack_;
};

}  // namespace

struct SplitRegex::Code {
  CodePtr pattern;
};

absl::StatusOr<SplitRegex> SplitRegex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) {
    return absl::InvalidArgumentError(
        StrCat("a pattern of ", pattern.size(), " bytes: expected ", kMaxPattern, " at most"));
  }
  PF_ASSIGN_OR_RETURN(const std::string translated, TranslatePattern(pattern));
  CompileContextPtr context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE place = 0;
  CodePtr code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place,
                             context.get()));
  if (!code) {
    return absl::InvalidArgumentError(StrCat("pattern \"", pattern, "\": ", Message(error)));
  }
  // Without it, as where memory may not be executed, matches are found more slowly.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return SplitRegex(std::make_shared<const Code>(Code{std::move(code)}));
}

absl::Status SplitRegex::ForEachMatch(std::string_view text,
                                      const std::function<void(size_t, size_t)>& found) const {
  Matcher matcher(code_->pattern.get());
  uint32_t options = 0;
  for (size_t at = 0; at <= text.size();) {
    const int result = matcher.Match(text, at, options);
    if (result == PCRE2_ERROR_NOMATCH && options == 0) return absl::OkStatus();
    if (result == PCRE2_ERROR_NOMATCH) {
      // Nothing but the empty match at `at`: the next one begins a character further.
      do ++at;
      while (at < text.size() && (text[at] & 0xC0) == 0x80);
      options = 0;
      continue;
    }
    if (result < 0) {
      return absl::ResourceExhaustedError(StrCat("a pattern gives up: ", Message(result)));
    }
    const PCRE2_SIZE first = matcher.range()[0], end = matcher.range()[1];
    found(first, end);
    at = end;
    options = first == end ? PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED : 0;
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
