// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/tokenizer/tokenizer.h"

#include <utility>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/text/tokenizer/added_tokens.h"
#include "pagefuse/text/tokenizer/bpe.h"
#include "pagefuse/text/tokenizer/byte_level.h"
#include "pagefuse/text/tokenizer/normalizer.h"
#include "pagefuse/text/tokenizer/pre_tokenizer.h"
#include "pagefuse/text/tokenizer/token_decoder.h"
#include "pagefuse/text/tokenizer/token_table.h"
#include "pagefuse/text/tokenizer/tokenizer_file.h"

namespace pagefuse {
namespace {

// The tokens that a text is put between.
struct Frame {
  std::vector<int64_t> before, after;
};

absl::Status AppendSpecial(const JsonFields& part, const JsonFields& tokens,
                           std::vector<int64_t>& ids) {
  PF_ASSIGN_OR_RETURN(const std::string name, part.Text("id"));
  PF_ASSIGN_OR_RETURN(const JsonFields token, tokens.Object(name.c_str()));
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> more, token.Numbers("ids"));
  ids.insert(ids.end(), more.begin(), more.end());
  return absl::OkStatus();
}

absl::Status ReadTemplate(const JsonFields& part, Frame& frame) {
  PF_ASSIGN_OR_RETURN(const auto pieces, part.Objects("single"));
  PF_ASSIGN_OR_RETURN(const JsonFields tokens, part.Object("special_tokens"));
  bool behind = false;
  for (const JsonFields& piece : pieces) {
    if (piece.Has("Sequence")) {
      if (behind) return part.Wrong("single", "one Sequence");
      behind = true;
      continue;
    }
    PF_ASSIGN_OR_RETURN(const JsonFields special, piece.Object("SpecialToken"));
    PF_RETURN_IF_ERROR(AppendSpecial(special, tokens, behind ? frame.after : frame.before));
  }
  return behind ? absl::OkStatus() : part.Wrong("single", "one Sequence");
}

// "post_processor" of tokenizer.json.
absl::StatusOr<Frame> ReadFrame(const nlohmann::json& json) {
  Frame frame;
  PF_ASSIGN_OR_RETURN(const auto parts, SequenceOf(json, "post_processor", "processors"));
  for (const JsonFields& part : parts) {
    PF_ASSIGN_OR_RETURN(const std::string type, part.Text("type"));
    if (type == "ByteLevel") continue;  // moves offsets, adds nothing
    if (type != "TemplateProcessing") {
      return part.UnknownType("Sequence, ByteLevel, TemplateProcessing");
    }
    PF_RETURN_IF_ERROR(ReadTemplate(part, frame));
  }
  return frame;
}

}  // namespace

struct Tokenizer::Impl {
  TokenTable tokens;  // of the model: what merges see
  TokenTable added;   // found in texts
  absl::flat_hash_set<int64_t> special;
  AddedTokens in_text, in_normalized;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::optional<Bpe> bpe;
  TokenDecoder decoder;
  Frame frame;

  absl::Status ReadTokens(const TokenizerFile& file);
  absl::Status AddToken(AddedToken token);
  absl::Status EncodeText(std::string_view text, bool first, std::vector<int64_t>& ids) const;
  absl::Status EncodePiece(std::string_view text, bool first, const std::vector<TextRange>& plain,
                           std::vector<int64_t>& ids) const;
  absl::StatusOr<std::vector<TextRange>> PlainAfterNormalizing(
      std::string_view text, std::string_view normalized,
      const std::vector<TextRange>& plain) const;
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

absl::Status Tokenizer::Impl::ReadTokens(const TokenizerFile& file) {
  size_t bytes = 0;
  for (const auto& [text, id] : file.vocabulary) bytes += text.size();
  tokens.Reserve(file.vocabulary.size(), bytes);
  for (const auto& [text, id] : file.vocabulary) PF_RETURN_IF_ERROR(tokens.Add(text, id));
  tokens.Finish();
  for (const AddedToken& token : file.added) PF_RETURN_IF_ERROR(AddToken(token));
  added.Finish();
  return absl::OkStatus();
}

// A token that the model has too keeps the model's id.
absl::Status Tokenizer::Impl::AddToken(AddedToken token) {
  if (token.content.empty()) return absl::OkStatus();
  if (const int32_t known = tokens.Find(token.content); known != TokenTable::kNone) {
    token.id = known;
  }
  PF_RETURN_IF_ERROR(added.Add(token.content, token.id));
  if (token.special) special.insert(token.id);
  if (!token.normalized) {
    in_text.Add(token);
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(token.content, normalizer.Apply(token.content));
  in_normalized.Add(token);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Parse(const std::string& json) {
  PF_ASSIGN_OR_RETURN(const TokenizerFile file, ReadTokenizerFile(json));
  auto impl = std::make_unique<Impl>();
  PF_ASSIGN_OR_RETURN(impl->normalizer, Normalizer::FromJson(file.normalizer));
  PF_ASSIGN_OR_RETURN(impl->pre_tokenizer, PreTokenizer::FromJson(file.pre_tokenizer));
  PF_ASSIGN_OR_RETURN(impl->frame, ReadFrame(file.post_processor));
  PF_ASSIGN_OR_RETURN(impl->decoder, TokenDecoder::FromJson(file.decoder));
  PF_RETURN_IF_ERROR(impl->ReadTokens(file));
  PF_ASSIGN_OR_RETURN(impl->bpe, Bpe::Create(&impl->tokens, file.merges, file.bpe));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::OfBytes() {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[BytesAsCharacters(std::string(1, static_cast<char>(byte)))] = byte;
  }
  const nlohmann::json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return Parse(nlohmann::json{
      {"model", {{"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
      {"pre_tokenizer", bytes},
      {"decoder",
       bytes}}.dump());
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const std::string& path) {
  PF_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  auto tokenizer = Parse(json);
  if (tokenizer.ok()) return tokenizer;
  return InFile(path, tokenizer.status());
}

absl::Status Tokenizer::Impl::EncodeText(std::string_view text, bool first,
                                         std::vector<int64_t>& ids) const {
  if (text.empty()) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const auto words, pre_tokenizer.Split(text, first));
  for (const std::string& word : words) bpe->Encode(word, ids);
  return absl::OkStatus();
}

// Where the plain ranges lie after normalising. Each stretch is normalised alone; where that gives
// another text than the whole, as a character was composed across a border, all of it is plain.
absl::StatusOr<std::vector<TextRange>> Tokenizer::Impl::PlainAfterNormalizing(
    std::string_view text, std::string_view normalized, const std::vector<TextRange>& plain) const {
  if (plain.empty() || text == normalized) return plain;
  std::vector<TextRange> moved;
  std::string joined;
  size_t at = 0;
  for (const TextRange& range : plain) {
    PF_ASSIGN_OR_RETURN(const std::string before,
                        normalizer.Apply(text.substr(at, range.first - at)));
    PF_ASSIGN_OR_RETURN(const std::string inside,
                        normalizer.Apply(text.substr(range.first, range.end - range.first)));
    joined += before;
    moved.push_back({joined.size(), joined.size() + inside.size()});
    joined += inside;
    at = range.end;
  }
  PF_ASSIGN_OR_RETURN(const std::string after, normalizer.Apply(text.substr(at)));
  if (joined + after == normalized) return moved;
  return std::vector<TextRange>{{0, normalized.size()}};
}

absl::Status Tokenizer::Impl::EncodePiece(std::string_view text, bool first,
                                          const std::vector<TextRange>& plain,
                                          std::vector<int64_t>& ids) const {
  std::string changed;
  std::string_view normalized = text;
  if (!normalizer.changes_nothing()) {
    PF_ASSIGN_OR_RETURN(changed, normalizer.Apply(text));
    normalized = changed;
  }
  if (in_normalized.empty()) return EncodeText(normalized, first, ids);
  PF_ASSIGN_OR_RETURN(const auto ranges, PlainAfterNormalizing(text, normalized, plain));
  for (const AddedTokens::Piece& piece : in_normalized.Split(normalized, ranges)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
      continue;
    }
    PF_RETURN_IF_ERROR(EncodeText(normalized.substr(piece.first, piece.end - piece.first),
                                  first && piece.first == 0, ids));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> Tokenizer::Encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  if (const auto broken = FirstBrokenByte(text)) {
    return absl::InvalidArgumentError(
        StrCat("text: expected UTF-8, byte ", *broken, " is not part of a character"));
  }
  std::vector<int64_t> ids;
  if (options.adds_special) ids = impl_->frame.before;
  for (const AddedTokens::Piece& piece : impl_->in_text.Split(text, options.plain)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
      continue;
    }
    PF_RETURN_IF_ERROR(impl_->EncodePiece(text.substr(piece.first, piece.end - piece.first),
                                          piece.first == 0,
                                          Within(options.plain, piece.first, piece.end), ids));
  }
  if (options.adds_special) {
    ids.insert(ids.end(), impl_->frame.after.begin(), impl_->frame.after.end());
  }
  return ids;
}

absl::StatusOr<std::vector<int64_t>> Tokenizer::Encode(std::string_view text) const {
  return Encode(text, EncodeOptions());
}

std::string Tokenizer::Decode(std::span<const int64_t> ids, bool special) const {
  TextStream stream(std::shared_ptr<const Tokenizer>(std::shared_ptr<void>(), this), special);
  std::string text;
  for (int64_t id : ids) text += stream.Add(id);
  return text += stream.Finish();
}

std::string Tokenizer::Bytes(int64_t id, bool first) const {
  const std::string_view added = impl_->added.Text(id);
  const std::string_view token = added.empty() ? impl_->tokens.Text(id) : added;
  return token.empty() ? std::string() : impl_->decoder.Bytes(token, first);
}

bool Tokenizer::IsSpecial(int64_t id) const { return impl_->special.contains(id); }

std::optional<int64_t> Tokenizer::Find(std::string_view token) const {
  for (const TokenTable* table : {&impl_->added, &impl_->tokens}) {
    if (const int32_t id = table->Find(token); id != TokenTable::kNone) return id;
  }
  return std::nullopt;
}

int64_t Tokenizer::size() const { return std::max(impl_->tokens.size(), impl_->added.size()); }

std::string TextStream::Add(int64_t id) {
  if (!special_ && tokenizer_->IsSpecial(id)) return {};
  const std::string bytes = tokenizer_->Bytes(id, first_token_);
  first_token_ = false;
  return Begun(utf8_.Add(bytes), /*end=*/false);
}

std::string TextStream::Finish() { return Begun(utf8_.Finish(), /*end=*/true); }

// Takes away what does not belong to the beginning of the text, once that has come.
std::string TextStream::Begun(std::string text, bool end) {
  if (begun_) return text;
  leading_ += text;
  const size_t strip = tokenizer_->impl_->decoder.LeadingBytes(leading_);
  if (strip == leading_.size() && !end) return {};
  begun_ = true;
  return std::exchange(leading_, "").substr(strip);
}

}  // namespace pagefuse
