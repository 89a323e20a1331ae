// SPDX-License-Identifier: Apache-2.0
// The kinds of attributes: their codes (AttributeProto.AttributeType), names, and lists.
#pragma once

#include <string_view>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// AttributeProto.AttributeType.
enum AttributeType : int {
  kFloatAttribute = 1,
  kIntAttribute = 2,
  kStringAttribute = 3,
  kTensorAttribute = 4,
  kGraphAttribute = 5,
  kFloatsAttribute = 6,
  kIntsAttribute = 7,
  kStringsAttribute = 8,
  kTensorsAttribute = 9,
  kGraphsAttribute = 10,
  kSparseTensorAttribute = 11,
  kSparseTensorsAttribute = 12,
  kTypeProtoAttribute = 13,
  kTypeProtosAttribute = 14,
};

// "int", "floats", ...; "undefined" for 0 and unknown codes.
std::string_view AttributeTypeName(int type);
// 0 for an unknown name.
int AttributeTypeFromName(std::string_view name);
bool IsListType(int type);
// The list type of an item type; 0 for a list type or 0.
int ListType(int item_type);
// The item type of a list type; 0 for an item type or 0.
int ItemType(int list_type);
// The code of what an attribute holds. 0 for a reference without a type and for a proto that says
// none.
int AttributeTypeOf(const Attribute& attribute);

}  // namespace pagefuse
