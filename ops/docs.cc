#include "pagefuse/ops/docs.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "pagefuse/ir/str_cat.h"

namespace pagefuse {
namespace {

std::string DomainName(const std::string& domain) { return domain.empty() ? "ai.onnx" : domain; }

// Text inside a table cell.
std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string KindText(PortKind kind) {
  switch (kind) {
    case PortKind::kOptional:
      return "optional";
    case PortKind::kVariadic:
      return "one or more";
    default:
      return "";
  }
}

void AppendPorts(const char* title, const std::vector<Port>& ports, std::string& page) {
  if (ports.empty()) return;
  StrAppend(&page, "\n| ", title, " | type | shape | |\n|---|---|---|---|\n");
  for (const Port& port : ports) {
    const std::string shape = port.shape.empty() ? "" : StrCat("`", Cell(port.shape), "`");
    StrAppend(&page, "| `", port.name, "` | ", port.type, " | ", shape, " | ", KindText(port.kind),
              " |\n");
  }
}

std::string DefaultText(const AttributeDef& attribute) {
  if (attribute.required) return "required";
  return std::visit(
      [](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return "none";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return StrCat("\"", value, "\"");
        } else if constexpr (std::is_arithmetic_v<T>) {
          return StrCat(value);
        } else {
          return StrCat("[", absl::StrJoin(value, ", "), "]");
        }
      },
      attribute.default_value);
}

void AppendAttributes(const OpDef& op, std::string& page) {
  if (op.attributes().empty()) return;
  StrAppend(&page, "\n| attribute | default | |\n|---|---|---|\n");
  for (const AttributeDef& attribute : op.attributes()) {
    StrAppend(&page, "| `", attribute.name, "` | ", DefaultText(attribute), " | ",
              Cell(attribute.doc), " |\n");
  }
}

std::string TypeList(const std::vector<DataType>& types) {
  return absl::StrJoin(types, ", ",
                       [](std::string* out, DataType type) { StrAppend(out, DataTypeName(type)); });
}

// "`reference`, `hwy` (float, bfloat16)"
std::string KernelList(const OpDef& op) {
  return absl::StrJoin(op.kernels(), ", ", [](std::string* out, const Kernel& kernel) {
    StrAppend(out, "`", kernel.name, "`");
    if (!kernel.dtypes.empty()) StrAppend(out, " (", TypeList(kernel.dtypes), ")");
  });
}

std::string PairList(const char* text, const std::vector<std::pair<int, int>>& pairs,
                     const OpDef& op) {
  std::string result;
  for (const auto& [output, input] : pairs) {
    StrAppend(&result, result.empty() ? "" : " ", "`", op.outputs()[output].name, "` ", text, " `",
              op.inputs()[input].name, "`.");
  }
  return result.empty() ? result : StrCat("\n", result, "\n");
}

// Longer decompositions are read where they are defined.
constexpr int64_t kMaxLines = 40;

void AppendDecompositions(const OpDef& op, std::string& page) {
  const std::vector<DecompositionVariant> variants = op.variants();
  if (variants.empty()) {
    if (op.has_decomposition())
      StrAppend(&page, "\nHas a decomposition for every choice of attributes.\n");
    return;
  }
  for (const DecompositionVariant& variant : variants) {
    const std::string name = variant.name.empty() ? "" : StrCat(" (", variant.name, ")");
    const std::string text(absl::StripAsciiWhitespace(variant.text));
    const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
    if (lines > kMaxLines) {
      StrAppend(&page, "\nDecomposition", name, ": ", lines, " lines of standard ops.\n");
      continue;
    }
    StrAppend(&page, "\nDecomposition", name, ":\n\n```\n", text, "\n```\n");
  }
}

void AppendOp(const OpDef& op, std::string& page) {
  StrAppend(&page, "\n### ", op.name(), "\n\n");
  if (!op.doc().empty()) StrAppend(&page, op.doc(), " ");
  StrAppend(&page, "Since version ", op.since(), ".\n");
  AppendPorts("input", op.inputs(), page);
  AppendPorts("output", op.outputs(), page);
  AppendAttributes(op, page);
  for (const auto& [variable, types] : op.types()) {
    StrAppend(&page, "\n", variable, ": ", TypeList(types), ".\n");
  }
  StrAppend(&page, PairList("is a view of", op.views(), op),
            PairList("may be written over", op.in_place(), op),
            PairList("is the memory of", op.aliases(), op));
  if (!op.kernels().empty()) StrAppend(&page, "\nKernels: ", KernelList(op), ".\n");
  AppendDecompositions(op, page);
}

}  // namespace

std::string OpsReference(const OpRegistry& registry) {
  std::string page =
      "# Ops\n\nGenerated from the definitions in `ops/`; a test fails when this page is stale, "
      "and rewrites it with "
      "`PAGEFUSE_UPDATE_TESTS=1`.\n";
  std::string domain = "-";
  for (const OpDef* op : registry.ops()) {
    if (op->domain() != domain) {
      domain = op->domain();
      StrAppend(&page, "\n## ", DomainName(domain), "\n");
    }
    AppendOp(*op, page);
  }
  return page;
}

}  // namespace pagefuse
