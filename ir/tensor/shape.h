// SPDX-License-Identifier: Apache-2.0
// Dims and shapes: numbers, symbols, and affine expressions of symbols, so that equality of two
// dims can be proved.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pagefuse {

// A dimension: c0 + c1*s1 + c2*s2 + ... over named symbols, or unknown. A value type, kept in
// canonical form (terms sorted by symbol, no zero coefficients), so that `past + seq` and `seq +
// past` are equal. Expressions that are not affine (`4*(seq//4)`) become one opaque symbol named by
// their canonical text. Arithmetic that overflows gives unknown.
class Dim {
 public:
  using Term = std::pair<std::string, int64_t>;  // symbol, coefficient

  Dim() = default;                                        // unknown
  Dim(int64_t value) : known_(true), constant_(value) {}  // NOLINT(google-explicit-constructor)
  static Dim Unknown() { return Dim(); }
  static Dim Symbol(std::string_view name);
  // Parses the text of a dim_param: a name, or an expression with + - * // and parentheses. Text
  // that is no such expression is one opaque symbol. The empty text is unknown.
  static Dim Parse(std::string_view text);

  bool known() const { return known_; }
  bool is_constant() const { return known_ && terms_.empty(); }
  // The number, if this dim is one.
  std::optional<int64_t> constant() const {
    return is_constant() ? std::optional<int64_t>(constant_) : std::nullopt;
  }
  // The constant part and the terms. Meaningful if known().
  int64_t offset() const { return constant_; }
  const std::vector<Term>& terms() const { return terms_; }
  // The symbol's name if this dim is exactly one symbol.
  std::optional<std::string> symbol() const;

  Dim operator+(const Dim& other) const;
  Dim operator-(const Dim& other) const;
  // Affine if one factor is a number, else an opaque symbol; unknown if either is.
  Dim operator*(const Dim& other) const;
  // Floor division; exact on affine expressions whose coefficients all divide, else an opaque
  // symbol.
  Dim FloorDiv(const Dim& other) const;
  // This dim with symbols replaced. Symbols that `bindings` lacks stay.
  Dim Substitute(const std::map<std::string, Dim>& bindings) const;

  // True if both are known and the same for every value of their symbols. Unknown equals nothing,
  // itself included.
  friend bool ProvablyEqual(const Dim& a, const Dim& b);
  // Structural equality: unknown equals unknown. For containers and tests.
  friend bool operator==(const Dim& a, const Dim& b) = default;

  // "7", "seq", "past + seq", "2*seq - 1", "?" for unknown.
  std::string ToString() const;

 private:
  bool known_ = false;
  int64_t constant_ = 0;
  std::vector<Term> terms_;
};
bool ProvablyEqual(const Dim& a, const Dim& b);

// A list of dims; its rank is known (a value of unknown rank has no Shape at all).
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Dim> dims) : dims_(dims) {}
  explicit Shape(std::vector<Dim> dims) : dims_(std::move(dims)) {}
  static Shape FromInts(const std::vector<int64_t>& dims);

  int rank() const { return static_cast<int>(dims_.size()); }
  const Dim& operator[](int axis) const { return dims_[axis]; }
  Dim& operator[](int axis) { return dims_[axis]; }
  // As operator[], counting from the end: back(0) is the last dim.
  const Dim& back(int from_end) const { return dims_[dims_.size() - 1 - from_end]; }
  const std::vector<Dim>& dims() const { return dims_; }
  std::vector<Dim>& dims() { return dims_; }
  bool empty() const { return dims_.empty(); }

  // The numbers, if every dim is one.
  std::optional<std::vector<int64_t>> constant() const;
  Shape Substitute(const std::map<std::string, Dim>& bindings) const;
  friend bool ProvablyEqual(const Shape& a, const Shape& b);
  friend bool operator==(const Shape& a, const Shape& b) = default;
  std::string ToString() const;  // "[batch, 4, past + seq]"

 private:
  std::vector<Dim> dims_;
};
bool ProvablyEqual(const Shape& a, const Shape& b);

// a * b, or nullopt if the product does not fit in int64 or a factor is negative.
std::optional<int64_t> CheckedMul(int64_t a, int64_t b);
// The most that the dims of a tensor, those that are 0 aside, may multiply to. No memory holds as
// many elements; strides, also of empty tensors, and small multiples of dims then fit in int64.
inline constexpr int64_t kMaxElements = int64_t{1} << 56;
// The product of dims, 1 for none; nullopt for a negative dim, or past kMaxElements.
std::optional<int64_t> ElementCount(const std::vector<int64_t>& dims);
// False if the numbers among the dims alone go past kMaxElements.
bool WithinMaxElements(const Shape& shape);
// "[2, 3]"
std::string DimsToString(const std::vector<int64_t>& dims);

}  // namespace pagefuse
