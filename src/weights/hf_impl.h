/* What the files that read a folder share. */
#ifndef WEIGHTS_HF_IMPL_H
#define WEIGHTS_HF_IMPL_H

#include "weights/hf.h"
#include "weights/weights_impl.h"

/* ---- hf_families.c: families as data ---- */

enum hf_use {
    HF_SIZE,   /* an integer, the key's value */
    HF_REAL,   /* a number */
    HF_RSQRT,  /* a number; the key's value is 1 / sqrt of it */
    HF_FLAG,   /* a boolean */
    HF_BIAS,   /* a boolean: whether layers have the tensor `key` */
    HF_TEXT,   /* a string that must be one of the words of `key` */
    HF_NONE,   /* must be absent, null, 0, false or empty: means what the forward pass does not do */
    HF_NUMBER, /* must be the preset */
    HF_OWN,    /* read where it is needed */
    HF_IGNORED /* says nothing about the arithmetic */
};

struct hf_key {
    const char *name; /* in config.json */
    enum hf_use use;
    const char *key; /* what follows "FAMILY." */
    double preset;   /* where config.json leaves it out; 0 = none (HF_FLAG, HF_BIAS: false) */
};

enum hf_windows {
    WINDOWS_NONE,
    WINDOWS_ALL,   /* in all layers */
    WINDOWS_UPPER, /* in layers from max_window_layers on */
    WINDOWS_PERIOD /* in all but the last of each window_period */
};

/* A key that a family has under a name of its own. */
struct hf_alias {
    const char *theirs, *name;
};

struct hf_names;

struct hf_family {
    const char *architecture;
    const char *trunk;         /* the class of the same without its output matrix, or NULL */
    const char *model_type;    /* where config.json has no architectures */
    const char *family;        /* general.architecture */
    const struct hf_key *keys; /* beside those of all, which they override */
    size_t n_keys;
    const struct hf_alias *aliases; /* ended by NULL; or NULL */
    const struct hf_names *names;   /* of its tensors, or NULL: as others of its kind */
    enum hf_windows windows;        /* where layer_types is left out */
    size_t window_period;           /* 0: layer_types must say */
    bool window_switch;             /* windows only if use_sliding_window */
    bool tied;                      /* tie_word_embeddings where it is left out */
    bool norms_plus_one;            /* norms are stored less 1 */
    bool post_attention_norm; /* post_attention_layernorm follows attention; elsewhere it precedes what comes
                                 next */
    bool own_window_rope;     /* layers with windows have a rotation of their own */
    bool scaled_length;       /* max_position_embeddings is the length after scaling, whatever scales it */
    bool no_rope_layers;      /* of each four layers the last does not rotate */
    const char *text_config;  /* keys are in text_config, whose model_type this is, and what is not of the
                                 text model is left out; or NULL. There is a row for each model_type */
    bool turned_experts;      /* experts without quantization are stored with rows and columns swapped */
    bool latent;              /* multi-head latent attention, as DeepSeek has it */
    bool sigmoid_router;      /* experts are weighed by sigmoid */
    bool temperature;         /* queries of later positions are multiplied */
    bool encoder;             /* BERT's: positions in a table, norms after blocks, no output matrix */
    bool rotates;             /* an encoder with rotary embeddings instead of the table */
    bool numbered_positions;  /* a text's first position has the number behind pad_token_id */
    const char *head[2];      /* of cross-encoders: what names of its two layers begin with */
    bool relu_head;           /* with ReLU between them; else tanh */
};

/* By architecture, or by model_type where that is NULL. text_type: the model_type of text_config, or NULL; of
 * several rows of an architecture the first is returned where none has it. */
const struct hf_family *hf_family(const char *architecture, const char *model_type, const char *text_type);
/* "a, b": what text_config may be for the family's architecture. */
void hf_text_types(const struct hf_family *family, char *out, size_t size);
void hf_family_names(char *out, size_t size); /* "Llama, ...", for messages */
#define HF_NAMES_BYTES 448
const struct hf_key *hf_key(const struct hf_family *family, const char *name); /* NULL: unknown */
/* Key i of those that apply; NULL at the end. */
const struct hf_key *hf_key_at(const struct hf_family *family, size_t i);

enum hf_op {
    HF_SAME,
    HF_EXPERT,     /* one of an expert, whose number stands for * */
    HF_HALVES,     /* of each matrix the upper half of the rows is `name`, the lower `second` */
    HF_MX_TURNS,   /* MXFP4 blocks, rows in turns: of `name`, of `second` */
    HF_MX_BLOCKS,  /* MXFP4 blocks of `name` */
    HF_MX_SCALES,  /* the scales of blocks; taken together with them */
    HF_BIAS_TURNS, /* elements in turns */
    HF_OUTPUT,     /* makes logits: left out where the embedding does */
    HF_POSITIONS   /* the rows from the first position's on */
};

struct hf_name {
    const char *theirs; /* of a layer: what follows "layers.N." */
    const char *name;   /* of a layer: what follows "blk.N." */
    enum hf_op op;
    const char *second;
};

struct hf_names {
    const char *layer; /* what stands in front of a layer's number */
    const struct hf_name *of_layer, *of_model;
    size_t n_of_layer, n_of_model;
};

const struct hf_names *hf_names(const struct hf_family *family);

/* ---- reading ---- */

struct hf_reader {
    struct weights *w;
    json_t *top;          /* config.json, keys under their usual names */
    json_t *aliased;      /* those that have had others there */
    const json_t *config; /* it, or its text_config */
    const struct hf_family *family;
    bool bare;             /* config.json names the family's trunk: there is no output matrix */
    bool pooled;           /* the folder says how a text becomes one vector */
    size_t first_position; /* rows of the table of positions that are no text's */
    size_t n_layers;       /* and behind them n_unused that are left out */
    size_t n_unused;
    bool scaled;      /* 8-bit weights with scales, as quantization_config says, */
    size_t block[2];  /* rows and columns of a block that has one; 0: not in blocks */
    const char *file; /* that keys are read from, for messages; NULL = config.json */
    struct error *err;
    int rc; /* first failure; later calls do nothing */
};

/* Sets r->rc: "config.json: NAME: ...", or with r->file in front. */
void hf_fail(struct hf_reader *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* "NAME = VALUE: SAYS", the value as it is written, cut. */
void hf_fail_value(struct hf_reader *r, int code, const char *name, const json_t *v, const char *says);
int hf_no_memory(struct hf_reader *r);

/* What config.json calls a key, where the family has a name of its own for it. */
const char *hf_spelling(const struct hf_reader *r, const char *name);
/* A key of an object; NULL also if it is null. */
json_t *hf_get(const json_t *object, const char *name);
/* In [min, max], also where it is written 2.0; preset if absent. name: for messages. */
uint64_t hf_size(struct hf_reader *r, const json_t *object, const char *name, uint64_t min, uint64_t max,
                 uint64_t preset);
double hf_real(struct hf_reader *r, const json_t *object, const char *name, double preset); /* finite */
bool hf_flag(struct hf_reader *r, const json_t *object, const char *name, bool preset);
#define HF_MAX_LENGTH (1u << 26)
#define HF_MAX_LAYERS 4096

/* Metadata under "FAMILY.key" (or key itself if it has a dot in front). label: what config.json calls it. */
void hf_put_u64(struct hf_reader *r, const char *key, const char *label, uint64_t v);
void hf_put_f64(struct hf_reader *r, const char *key, const char *label, double v);
void hf_put_bool(struct hf_reader *r, const char *key, const char *label, bool v);
void hf_put_bools(struct hf_reader *r, const char *key, const char *label, const bool *v, size_t n);
void hf_put_str(struct hf_reader *r, const char *key, const char *label, const char *v);
/* An F32 vector, copied. label: as above. */
void hf_put_vector(struct hf_reader *r, const char *name, const char *label, const float *v, size_t n);

void hf_read_quantization(struct hf_reader *r); /* hf_quant.c */
/* hf_quant.c: weights in the files that have scales become floats. Before tensors are translated. */
void hf_join_scales(struct hf_reader *r);
bool hf_is_scale(const struct hf_reader *r, const char *name); /* of such weights, or of their inputs */
void hf_read_latent(struct hf_reader *r);                      /* hf_latent.c: DeepSeek's own keys */
void hf_read_rope(struct hf_reader *r);                        /* hf_rope.c: after the sizes */
void hf_read_config(struct hf_reader *r);                      /* hf_config.c: r->family is set by it */
/* hf_sentence.c: what sentence-transformers puts beside a model, if it is there; after config.json. */
void hf_read_sentence(struct hf_reader *r);

/* hf_folder.c: nothing read yet; NULL: out of memory. */
struct weights *hf_new_folder(const char *path, bool any_type);
/* hf_folder.c: a JSON file of the folder, of any type. Errors begin with its name. QUIRE_ENOTFOUND */
int hf_read_json(const char *folder, const char *name, json_t **out, struct error *err);
/* hf_json.c: as hf_json_parse, of any type; *out NULL after a failure. */
int hf_json_load(const char *text, size_t n, json_t **out, struct error *err);
/* hf_config.c: 0, false, empty or absent. */
bool hf_is_neutral(const json_t *v);

/* hf_tensors.c: the tensors of all files, translated; some are added to w by hf_read_config. */
void hf_read_tensors(struct hf_reader *r);

#endif
