#include "plan/machine.h"

#include "base/error.h"
#include "base/size.h"
#include "plan/names.h"

#define GB 1e9
#define T  1e12

/* The makers' figures for dense products (where a data sheet gives them with sparsity, half of that): NVIDIA
 * A100, H100, H200, L4, L40S and A10 Tensor Core GPU data sheets, of the SXM modules where there are
 * several (A10: 72 multiprocessors x 1.695 GHz x 1,024 operations a clock, as the A40 has by its sheet); DGX
 * B200 data sheet (1,440 GB, 64 TB/s and 36 P operations with sparsity for eight); NVIDIA Ada GPU Architecture (RTX 4090: 165.2 with float32 accumulation); AMD Instinct MI300X data
 * sheet (1,307.4). Processors: memory channels x transfers x 8 bytes; cores x base clock x operations a
 * clock, which are 64 on Zen 4 (one 512-bit VDPBF16PS: 16 sums of 2 products) and 1,024 with AMX (TDPBF16PS:
 * 16 x 16 sums of 32 products in 16 clocks; 2,048 are those of 8-bit integers; Intel 64 and IA-32
 * Architectures Optimization Reference Manual). */
static const struct machine MACHINES[] = {
    {"a100", "NVIDIA A100 SXM 80 GB", (uint64_t)80 << 30, 2039 * GB, 312 * T, false},
    {"a100-40g", "NVIDIA A100 SXM 40 GB", (uint64_t)40 << 30, 1555 * GB, 312 * T, false},
    {"h100", "NVIDIA H100 SXM 80 GB", (uint64_t)80 << 30, 3350 * GB, 989 * T, false},
    {"h200", "NVIDIA H200 SXM 141 GB", (uint64_t)(141 * GB), 4800 * GB, 989 * T, false},
    {"b200", "NVIDIA B200 SXM 180 GB", (uint64_t)(180 * GB), 8000 * GB, 2250 * T, false},
    {"l4", "NVIDIA L4 24 GB", (uint64_t)24 << 30, 300 * GB, 121 * T, false},
    {"l40s", "NVIDIA L40S 48 GB", (uint64_t)48 << 30, 864 * GB, 362 * T, false},
    {"a10", "NVIDIA A10 24 GB", (uint64_t)24 << 30, 600 * GB, 125 * T, false},
    {"rtx-4090", "NVIDIA GeForce RTX 4090 24 GB", (uint64_t)24 << 30, 1008 * GB, 165 * T, false},
    {"mi300x", "AMD Instinct MI300X 192 GB", (uint64_t)192 << 30, 5300 * GB, 1307 * T, false},
    {"epyc-9654", "AMD EPYC 9654, 12 x DDR5-4800", 0, 460.8 * GB, 14.7 * T, true},
    {"xeon-8480", "Intel Xeon Platinum 8480+, 8 x DDR5-4800, AMX", 0, 307.2 * GB, 114.7 * T, true},
    {"ryzen-7950x", "AMD Ryzen 9 7950X, 2 x DDR5-5200", 0, 83.2 * GB, 4.6 * T, true},
};
#define N_MACHINES (sizeof MACHINES / sizeof *MACHINES)

static const char *name_at(size_t i) {
    return MACHINES[i].name;
}

int machine_find(const char *name, const struct machine **out, struct error *err) {
    size_t i;
    int rc = names_find("device", name, name_at, N_MACHINES, &i, err);
    if (!rc) *out = &MACHINES[i];
    return rc;
}

/* ---- sizes ---- */

static size_t elem_bytes(enum backend_dtype dtype) {
    return dtype == BACKEND_F32 ? 4 : 2;
}

static size_t paper_matrix_bytes(struct backend *b, const struct backend_tensor *t, enum backend_dtype dtype,
                                 struct error *err) {
    size_t row = t->block_elems > 1 ? t->cols / t->block_elems * t->block_bytes : t->cols * elem_bytes(dtype),
           bytes;
    if (size_mul(row, t->rows, &bytes) && bytes) return bytes;
    error_set(err, QUIRE_ELIMIT, "tensor %s: %zu x %zu is not possible", t->name, t->rows, t->cols);
    return 0;
}

static size_t paper_page_bytes(struct backend *b, const struct backend_kv_layout *l) {
    size_t most = 0;
    for (size_t g = 0; g < l->n_groups; g++) {
        size_t chunks = l->rows ? 1 : 2;
        most = size_max(most, l->groups[g].n_layers * chunks * l->groups[g].n_kv_heads *
                                  l->groups[g].head_dim * l->block_tokens * elem_bytes(l->dtype));
    }
    return most;
}

static const struct backend_ops PAPER_OPS = {.matrix_bytes = paper_matrix_bytes,
                                             .kv_page_bytes = paper_page_bytes};

const struct backend machine_paper = {.ops = &PAPER_OPS, .name = "paper", .path = "planned"};
