// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/tokenizer/token_decoder.h"

#include <utility>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/tokenizer/byte_level.h"
#include "pagefuse/text/tokenizer/growth.h"

namespace pagefuse {
namespace {

// The byte that a token <0x00> to <0xFF> stands for.
std::optional<char> ByteOf(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  int value = 0;
  for (char c : token.substr(3, 2)) {
    if (!std::isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
    value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return static_cast<char>(value);
}

size_t CountLeading(std::string_view text, std::string_view content, int64_t most) {
  size_t end = 0;
  for (; most > 0 && !content.empty() && text.substr(end).starts_with(content); --most) {
    end += content.size();
  }
  return end;
}

}  // namespace

absl::StatusOr<TokenDecoder::Step> TokenDecoder::ReadStep(const JsonFields& part) {
  PF_ASSIGN_OR_RETURN(const std::string type, part.Text("type"));
  Step step;
  if (type == "ByteLevel") {
    step.kind = Step::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = Step::kByteFallback;
  } else if (type == "Replace") {
    step.kind = Step::kReplace;
    PF_ASSIGN_OR_RETURN(const JsonFields pattern, part.Object("pattern"));
    PF_ASSIGN_OR_RETURN(step.pattern, TextPattern::FromJson(pattern));
    PF_ASSIGN_OR_RETURN(step.content, part.Text("content"));
  } else if (type == "Strip") {
    step.kind = Step::kStrip;
    PF_ASSIGN_OR_RETURN(step.content, part.Text("content"));
    PF_ASSIGN_OR_RETURN(step.start, part.Number("start", 0));
    PF_ASSIGN_OR_RETURN(step.stop, part.Number("stop", 0));
  } else if (type == "Metaspace") {
    step.kind = Step::kMetaspace;
    PF_ASSIGN_OR_RETURN(step.content, part.Text("replacement"));
    PF_ASSIGN_OR_RETURN(step.drops_first, part.Flag("add_prefix_space", true));
    if (part.Has("prepend_scheme")) {
      PF_ASSIGN_OR_RETURN(const std::string scheme, part.Text("prepend_scheme"));
      step.drops_first = scheme != "never";
    }
  } else {
    return part.UnknownType("Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace");
  }
  return step;
}

absl::StatusOr<TokenDecoder> TokenDecoder::FromJson(const nlohmann::json& json) {
  TokenDecoder decoder;
  PF_ASSIGN_OR_RETURN(const auto parts, SequenceOf(json, "decoder", "decoders"));
  bool fused = false;  // what follows sees the whole text as one token
  for (const JsonFields& part : parts) {
    PF_ASSIGN_OR_RETURN(const std::string type, part.Text("type"));
    if (type == "Fuse") {
      fused = true;
      continue;
    }
    PF_ASSIGN_OR_RETURN(Step step, ReadStep(part));
    if (!fused) {
      decoder.steps_.push_back(std::move(step));
      continue;
    }
    if (step.kind != Step::kStrip || step.stop > 0 || !decoder.whole_.content.empty()) {
      return absl::UnimplementedError(
          StrCat(part.place(), ": expected one Strip with stop 0 behind Fuse, got ", type));
    }
    decoder.whole_ = std::move(step);
  }
  if (parts.empty()) decoder.steps_.push_back({.kind = Step::kSpaces});
  return decoder;
}

std::string TokenDecoder::Apply(const Step& step, std::string token, bool first, size_t most) {
  switch (step.kind) {
    case Step::kByteLevel:
      return CharactersAsBytes(token).value_or(token);
    case Step::kByteFallback: {
      const std::optional<char> byte = ByteOf(token);
      return byte ? std::string(1, *byte) : token;
    }
    case Step::kReplace:
      // A pattern that gives up, or that would make too much of it, leaves the token as it is.
      return step.pattern.ReplaceAll(token, step.content, most).value_or(token);
    case Step::kStrip: {
      token.erase(0, CountLeading(token, step.content, step.start));
      for (int64_t left = step.stop; left > 0 && !step.content.empty(); --left) {
        if (!token.ends_with(step.content)) break;
        token.resize(token.size() - step.content.size());
      }
      return token;
    }
    case Step::kMetaspace: {
      const bool drops = first && step.drops_first;
      return TextPattern::String(step.content)
          .ReplaceAll(token, drops ? "" : " ", most)
          .value_or(token);
    }
    case Step::kSpaces:
      return first ? token : " " + token;
  }
  return token;
}

std::string TokenDecoder::Bytes(std::string_view token, bool first) const {
  std::string text(token);
  const size_t most = Growth(token.size()).most();
  for (const Step& step : steps_) text = Apply(step, std::move(text), first, most);
  return text;
}

size_t TokenDecoder::LeadingBytes(std::string_view text) const {
  return CountLeading(text, whole_.content, whole_.start);
}

}  // namespace pagefuse
