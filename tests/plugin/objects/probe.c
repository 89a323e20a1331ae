// SPDX-License-Identifier: Apache-2.0
/* A plug-in that tries all that the header offers, and fails by name where it is not as documented. */
#include <stdlib.h>
#include <string.h>

#include <pagefuse/plugin.h>

static const char kText[] =
    "# op: probe.Gather      rows of a table, in states and threads\n"
    "# types: T in float\n"
    "<opset_import: [\"\" : 21]>\n"
    "Gather <scale: float = 2.0, axis: int = 0, mode: string = \"plain\", steps: ints = [1, 2], weights: floats = [0.5]>\n"
    "    (T[V, D] table, int64[N] rows, T[D] bias?) => (T[N, D] y) {\n"
    "  factor = Constant <value_float: float = @scale> ()\n"
    "  taken = Gather <axis = 0> (table, rows)\n"
    "  scaled = Mul (taken, factor)\n"
    "  y = Add (scaled, bias)\n"
    "}\n"
    "# ---- without: bias\n"
    "(table, rows) => (y) {\n"
    "  factor = Constant <value_float: float = @scale> ()\n"
    "  taken = Gather <axis = 0> (table, rows)\n"
    "  y = Mul (taken, factor)\n"
    "}\n"
    "\n"
    "# op: probe.Double\n"
    "# types: T in float\n"
    "# elementwise:\n"
    "# in-place: y = x\n"
    "Double (T[...] x) => (T[...] y) { y = Add (x, x) }\n"
    "\n"
    "# Gathers of tables whose rows are whole vectors.\n"
    "# rule: probe-gather\n"
    "# where: divides(table, 4), rank(table) == 2, rank(rows) == 1\n"
    "(table, rows) => (y) {\n"
    "  factor = Constant <value_float: float = @scale> ()\n"
    "  taken = Gather <axis = 0> (table, rows)\n"
    "  y = Mul (taken, factor)\n"
    "}\n"
    "# ---- after\n"
    "(table, rows) => (y) { y = probe.Gather <scale = @scale> (table, rows) }\n";

static int live_states = 0;

/* The table times the scale: what a run then copies rows of. */
typedef struct {
  float* table;
  float scale;
} State;

static pf_status Supports(void* user, const pf_host* host, const pf_node* node) {
  const char* mode = NULL;
  size_t size = 0;
  const pf_status status = host->attribute_string(node, "mode", &mode, &size);
  if (status != PF_OK) return status;
  if (strcmp(mode, (const char*)user) != 0) {
    return host->error(host, PF_UNIMPLEMENTED, "computes mode %s, not %s", (const char*)user, mode);
  }
  if (host->constant(node, 0) == NULL)
    return host->error(host, PF_UNIMPLEMENTED, "the table is no constant");
  return PF_OK;
}

static pf_status Prepare(void* user, const pf_host* host, const pf_node* node, void** state) {
  (void)user;
  const pf_tensor* table = host->constant(node, 0);
  if (table == NULL || table->dtype != PF_FLOAT || table->rank != 2) {
    return host->error(host, PF_INTERNAL, "prepare: no constant table");
  }
  const int64_t* steps = NULL;
  const float* weights = NULL;
  size_t num_steps = 0, num_weights = 0;
  int64_t axis = -1;
  if (host->attribute_ints(node, "steps", &steps, &num_steps) != PF_OK || num_steps != 2 ||
      steps[1] != 2 || host->attribute_floats(node, "weights", &weights, &num_weights) != PF_OK ||
      num_weights != 1 || host->attribute_int(node, "axis", &axis) != PF_OK || axis != 0 ||
      host->attribute_int(node, "nothing", &axis) != PF_NOT_FOUND ||
      host->attribute_int(node, "scale", &axis) != PF_INVALID_ARGUMENT) {
    return host->error(host, PF_INTERNAL, "prepare: attributes are not as declared");
  }
  State* made = malloc(sizeof(State));
  const int64_t count = table->dims[0] * table->dims[1];
  made->table = malloc((size_t)count * sizeof(float));
  host->attribute_float(node, "scale", &made->scale);
  for (int64_t i = 0; i < count; ++i) made->table[i] = ((const float*)table->data)[i] * made->scale;
  ++live_states;
  *state = made;
  return PF_OK;
}

static void Release(void* user, void* state) {
  (void)user;
  State* made = state;
  free(made->table);
  free(made);
  --live_states;
}

typedef struct {
  const pf_host* host;
  const float* table;
  const int64_t* rows;
  const float* bias;
  float* y;
  int64_t num_rows, width;
} Loop;

static pf_status Rows(void* context, int64_t begin, int64_t end) {
  const Loop* loop = context;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = loop->rows[i];
    if (row < 0 || row >= loop->num_rows) {
      return loop->host->error(loop->host, PF_INVALID_ARGUMENT, "row %lld of %lld", (long long)row,
                               (long long)loop->num_rows);
    }
    for (int64_t j = 0; j < loop->width; ++j) {
      loop->y[i * loop->width + j] =
          loop->table[row * loop->width + j] + (loop->bias ? loop->bias[j] : 0.0f);
    }
  }
  return PF_OK;
}

static pf_status Run(void* user, const pf_host* host, const pf_node* node, void* state) {
  (void)user;
  const pf_tensor* table = host->input(node, 0);
  const pf_tensor* rows = host->input(node, 1);
  char* one = host->scratch(node, 100);
  char* two = host->scratch(node, 100);
  if (one == NULL || two == NULL || one == two || (size_t)one % 64 != 0) {
    return host->error(host, PF_INTERNAL, "run: scratch is not two blocks");
  }
  memset(one, 1, 100);
  memset(two, 2, 100);
  if (host->input(node, 17)->dtype != PF_UNDEFINED || host->num_outputs(node) != 1 ||
      live_states < 1) {
    return host->error(host, PF_INTERNAL, "run: ports or states are not as they should be");
  }
  Loop loop = {host,
               ((State*)state)->table,
               rows->data,
               host->input(node, 2)->data,
               host->output(node, 0)->data,
               table->dims[0],
               table->dims[1]};
  return host->parallel_for(host, rows->dims[0], 1 << 20, Rows, &loop);
}

static pf_status Double(void* user, const pf_host* host, const pf_node* node, void* state) {
  const float* x = host->input(node, 0)->data;
  float* y = host->output(node, 0)->data;
  int64_t count = 1;
  (void)user;
  for (int32_t i = 0; i < host->input(node, 0)->rank; ++i) count *= host->input(node, 0)->dims[i];
  for (int64_t i = 0; i < count; ++i) y[i] = 2.0f * x[i];
  return state == NULL ? PF_OK : host->error(host, PF_INTERNAL, "a state that nobody prepared");
}

static int32_t Divides(void* user, const pf_host* host, const pf_tensor* const* values,
                       int64_t number) {
  (void)user, (void)host;
  const pf_tensor* value = values[0];
  if (value->rank < 1 || number < 1) return 0;
  const int64_t last = value->dims[value->rank - 1];
  return last >= 0 && last % number == 0;
}

static pf_status Register(const pf_host* host, pf_registrar* registrar) {
  const pf_dtype types[] = {PF_FLOAT};
  pf_kernel kernel = {.size = sizeof(pf_kernel),
                      .name = "packed",
                      .priority = 20,
                      .dtypes = types,
                      .num_dtypes = 1,
                      .user = "plain",
                      .supports = Supports,
                      .prepare = Prepare,
                      .run = Run,
                      .release = Release};
  const pf_condition divides = {.size = sizeof(pf_condition),
                                .name = "divides",
                                .num_values = 1,
                                .takes_number = 1,
                                .holds = Divides};
  if (!PF_HAS(host, parallel_for) || host->version == NULL)
    return host->error(host, PF_INTERNAL, "an old host");
  if (registrar->add_text(registrar, kText) != PF_OK) return PF_INTERNAL;
  if (registrar->add_condition(registrar, &divides) != PF_OK) return PF_INTERNAL;
  if (registrar->add_kernel(registrar, "probe.Gather", &kernel) != PF_OK) return PF_INTERNAL;
  const pf_kernel doubling = {
      .size = sizeof(pf_kernel), .name = "doubling", .priority = 10, .run = Double};
  if (registrar->add_kernel(registrar, "probe.Double", &doubling) != PF_OK) return PF_INTERNAL;
  kernel.name = "other";
  kernel.user = "other";
  kernel.priority = 30;
  host->log(host, "registered %d kernels", 3);
  return registrar->add_kernel(registrar, "probe.Gather", &kernel);
}

const pf_plugin pagefuse_plugin = PF_PLUGIN("probe", "1.2", Register);
