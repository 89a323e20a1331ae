// SPDX-License-Identifier: Apache-2.0
// Converts between types and their text, and leaves to protobuf what the text form cannot say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

struct TextType {
  enum class Kind { kTensor, kSparseTensor, kSequence, kOptional, kMap, kOpaque, kOther };
  struct TextDim {  // neither: not known
    std::optional<int64_t> number;
    std::optional<std::string> symbol;
  };

  Kind kind = Kind::kTensor;
  DataType element = DataType::kUndefined;        // of tensors; of maps: what their keys are
  std::optional<std::vector<TextDim>> dims = {};  // of tensors; nullopt: the rank is not known
  std::vector<TextType> inner = {};               // what sequences, optionals and maps hold: one
  std::string domain = {}, name = {};             // of opaque types
  // The TypeProto where the text gave its bytes. Then a tensor's element and dims are read from it.
  std::optional<std::string> proto = {};

  bool is_tensor() const { return kind == Kind::kTensor; }
};

// Graphs keep what is no tensor as bytes of protobuf messages, and texts may hold such bytes. Texts
// without them are read without protobuf.
class TextProtos {
 public:
  virtual ~TextProtos() = default;

  // False if the bytes are no TypeProto.
  virtual bool ReadType(const std::string& bytes, TextType& type) const = 0;
  virtual bool IsAttribute(const std::string& bytes) const = 0;
  // The bytes of the TypeProto.
  virtual std::string TypeBytes(const TextType& type) const = 0;
  virtual absl::Status SetType(const TextType& type, Value& value) const = 0;

  // Attributes that are types; they carry their names too.
  virtual OpaqueAttribute TypeAttribute(const TextType& type) const = 0;
  virtual OpaqueAttribute EmptyAttribute(int attribute_type) const = 0;
  virtual OpaqueAttribute TypeList(const std::vector<OpaqueAttribute>& types) const = 0;
  virtual OpaqueAttribute Named(const OpaqueAttribute& attribute,
                                const std::string& name) const = 0;
  // A TensorProto that has a name alone.
  virtual std::string TensorFields(const std::string& name) const = 0;
};

const TextProtos& OnnxTextProtos();

}  // namespace pagefuse
