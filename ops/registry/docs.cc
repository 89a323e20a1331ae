// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/registry/docs.h"

#include <algorithm>
#include <map>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

std::string DomainName(const std::string& domain) { return domain.empty() ? "ai.onnx" : domain; }

// Text inside a table cell.
std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string UseText(const Port& port) {
  if (port.kind == PortKind::kVariadic) return "one or more";
  if (port.kind == PortKind::kRequired) return "";
  if (!port.only_if.empty() && port.only_if == port.required_if) {
    return StrCat("exactly if `", port.only_if, "`");
  }
  std::string text = "optional";
  if (!port.required_if.empty()) StrAppend(&text, "; required if `", port.required_if, "`");
  if (!port.only_if.empty()) StrAppend(&text, "; only if `", port.only_if, "`");
  return text;
}

// "`[P, R], R % 2 = 0`: R/2 cosines, then R/2 sines"
std::string ShapeText(const Port& port) {
  if (port.shape.empty()) return "";
  const size_t colon = port.is_checked ? port.shape.find(':') : std::string::npos;
  if (colon == std::string::npos) return StrCat("`", Cell(port.shape), "`");
  return StrCat("`", Cell(port.shape.substr(0, colon)), "`", Cell(port.shape.substr(colon)));
}

void AppendPorts(const char* title, const std::vector<Port>& ports, std::string& page) {
  if (ports.empty()) return;
  StrAppend(&page, "\n| ", title, " | type | shape | |\n|---|---|---|---|\n");
  for (const Port& port : ports) {
    StrAppend(&page, "| `", port.name, "` | ", port.type, " | ", ShapeText(port), " | ",
              UseText(port), " |\n");
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
    // Of a flag the text says what 1 means.
    const bool is_flag = attribute.least == 0 && attribute.most == 1 && !attribute.doc.empty();
    const std::string allowed = is_flag ? "" : AllowedValues(attribute);
    const char* separator = allowed.empty() || attribute.doc.empty() ? "" : "; ";
    StrAppend(&page, "| `", attribute.name, "` | ", DefaultText(attribute), " | ", allowed,
              separator, Cell(attribute.doc), " |\n");
  }
}

void AppendLets(const OpDef& op, std::string& page) {
  for (const SizeDef& let : op.lets()) {
    const char* quote = let.compute ? "" : "`";
    StrAppend(&page, "\n`", let.name, "`: ", quote, let.text, quote, ".\n");
  }
}

std::string TypeList(const std::vector<DataType>& types) {
  return absl::StrJoin(types, ", ",
                       [](std::string* out, DataType type) { StrAppend(out, DataTypeName(type)); });
}

// "`reference`, `hwy` (float, bfloat16)". Those of the CPU, which every build has.
std::string KernelList(const OpDef& op) {
  std::vector<Kernel> kernels = op.kernels();
  std::erase_if(kernels, [](const Kernel& kernel) { return kernel.device != Device::kCpu; });
  return absl::StrJoin(kernels, ", ", [](std::string* out, const Kernel& kernel) {
    StrAppend(out, "`", kernel.Description(), "`");
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
  if (op.forms().empty() && op.has_decomposition()) {
    StrAppend(&page, "\nHas a decomposition for every choice of attributes.\n");
  }
  for (const DecompositionForm& form : op.forms()) {
    const std::string name = form.name.empty() ? "" : StrCat(" (", form.name, ")");
    const std::string text(absl::StripAsciiWhitespace(form.text));
    const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
    if (lines > kMaxLines) {
      StrAppend(&page, "\nDecomposition", name, ": ", lines, " lines of standard ops.\n");
      continue;
    }
    StrAppend(&page, "\nDecomposition", name, ":\n\n```\n", text, "\n```\n");
  }
}

void AppendOp(const OpDef& op, std::string& page) {
  StrAppend(&page, "\n## ", op.name(), "\n\n");
  if (!op.doc().empty()) StrAppend(&page, op.doc(), " ");
  StrAppend(&page, "Since version ", op.since(), " of ", DomainName(op.domain()), ".\n");
  AppendPorts("input", op.inputs(), page);
  AppendPorts("output", op.outputs(), page);
  AppendAttributes(op, page);
  AppendLets(op, page);
  for (const auto& [variable, types] : op.types()) {
    StrAppend(&page, "\n", variable, ": ", TypeList(types), ".\n");
  }
  StrAppend(&page, PairList("is a view of", op.views(), op),
            PairList("may be written over", op.in_place(), op),
            PairList("is the memory of", op.aliases(), op));
  if (const std::string kernels = KernelList(op); !kernels.empty()) {
    StrAppend(&page, "\nKernels: ", kernels, ".\n");
  }
  AppendDecompositions(op, page);
}

// The family under which ops.inc lists the ops of a domain: ai.onnx.preview is a part of ONNX too.
std::string_view Family(std::string_view domain) {
  if (domain.empty() || domain.starts_with("ai.onnx")) return "onnx";
  return domain == "com.microsoft" ? "microsoft" : domain;
}

struct Page {
  std::string name;
  std::string title;
  std::vector<const OpDef*> ops = {};
};

// The pages, with the ops of the registry on them.
std::vector<Page> PagesOf(const OpRegistry& registry) {
  std::vector<Page> pages;
  std::map<std::pair<std::string_view, std::string_view>, size_t> page_of;
#define PF_OP_PAGE(page, title) pages.push_back({#page, title});
#define PF_OP(family, op) page_of[{#family, #op}] = pages.size() - 1;
#include "pagefuse/ops/registry/ops.inc"
#undef PF_OP
  for (const OpDef* op : registry.ops()) {
    // A domain that is not built in gets a page when its first op is met.
    const auto [entry, is_new] = page_of.try_emplace({Family(op->domain()), op->name()}, 0);
    if (is_new) {
      const auto same = std::find_if(pages.begin(), pages.end(),
                                     [&](const Page& page) { return page.name == op->domain(); });
      entry->second = same - pages.begin();
      if (same == pages.end()) pages.push_back({op->domain(), op->domain()});
    }
    pages[entry->second].ops.push_back(op);
  }
  return pages;
}

constexpr char kGenerated[] =
    "Generated from the definitions in `ops/`; a test fails when this page is stale. Written anew by "
    "`pagefuse ops --emit-docs docs`.\n";

std::string PageText(const Page& page) {
  std::string text = StrCat("# Ops of ", page.title, "\n\n", kGenerated);
  for (const OpDef* op : page.ops) AppendOp(*op, text);
  return text;
}

}  // namespace

std::vector<ReferencePage> OpsReference(const OpRegistry& registry) {
  std::vector<ReferencePage> result = {
      {"ops.md", StrCat("# Ops\n\n", kGenerated, "\n| page | ops |\n|---|---|\n")}};
  for (const Page& page : PagesOf(registry)) {
    if (page.ops.empty()) continue;
    const std::string path = StrCat("ops/", page.name, ".md");
    const auto link = [&](std::string* out, const OpDef* op) {
      StrAppend(out, "[", op->name(), "](", path, "#", absl::AsciiStrToLower(op->name()), ")");
    };
    StrAppend(&result[0].text, "| [", page.title, "](", path, ") | ",
              absl::StrJoin(page.ops, ", ", link), " |\n");
    result.push_back({path, PageText(page)});
  }
  return result;
}

}  // namespace pagefuse
