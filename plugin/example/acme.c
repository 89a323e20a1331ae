// SPDX-License-Identifier: Apache-2.0
/* A plug-in: an op, the rule that makes graphs use it, and its kernel. docs/plugins.md walks through it. */
#include <pagefuse/plugin.h>

static const char kText[] =
    "# op: acme.Scale     x * factor, with an optional bias\n"
    "# types: T in float\n"
    "# in-place: y = x\n"
    "<domain: \"acme\", opset_import: [\"\" : 21]>\n"
    "Scale <factor: float = 1.0> (T[..., D] x, T[D] bias?) => (T[..., D] y) {\n"
    "  constant = Constant <value_float: float = @factor> ()\n"
    "  scaled = Mul (x, constant)\n"
    "  y = Add (scaled, bias)\n"
    "}\n"
    "# ---- without: bias\n"
    "(x) => (y) {\n"
    "  constant = Constant <value_float: float = @factor> ()\n"
    "  y = Mul (x, constant)\n"
    "}\n"
    "\n"
    "# Products with a number, and the bias behind them.\n"
    "# rule: acme-scale\n"
    "# before: fuse-elementwise\n"
    "# match-op: acme.Scale\n";

typedef struct {
  const float *x, *bias;
  float* y;
  float factor;
  int64_t width;
} Rows;

static pf_status ScaleRows(void* context, int64_t begin, int64_t end) {
  const Rows* rows = context;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = rows->x + row * rows->width;
    float* y = rows->y + row * rows->width;
    for (int64_t i = 0; i < rows->width; ++i) {
      y[i] = x[i] * rows->factor + (rows->bias == NULL ? 0.0f : rows->bias[i]);
    }
  }
  return PF_OK;
}

static pf_status Run(void* user, const pf_host* host, const pf_node* node, void* state) {
  (void)user, (void)state;
  const pf_tensor* x = host->input(node, 0);
  Rows rows = {x->data, host->input(node, 1)->data, host->output(node, 0)->data, 1.0f, 1};
  const pf_status status = host->attribute_float(node, "factor", &rows.factor);
  if (status != PF_OK) return status;
  int64_t count = 1;
  for (int32_t i = 0; i + 1 < x->rank; ++i) count *= x->dims[i];
  rows.width = x->dims[x->rank - 1];
  const int64_t row_bytes = 2 * rows.width * (int64_t)sizeof(float);
  return host->parallel_for(host, count, row_bytes, ScaleRows, &rows);
}

static pf_status Register(const pf_host* host, pf_registrar* registrar) {
  (void)host;
  const pf_kernel plain = {.size = sizeof(pf_kernel), .name = "plain", .priority = 10, .run = Run};
  const pf_status status = registrar->add_text(registrar, kText);
  if (status != PF_OK) return status;
  return registrar->add_kernel(registrar, "acme.Scale", &plain);
}

const pf_plugin pagefuse_plugin = PF_PLUGIN("acme", "0.1", Register);
