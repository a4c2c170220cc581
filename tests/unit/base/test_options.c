#include "base/options.h"
#include "util/alloc_fail.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct values {
    bool chunked, caching;
    int64_t max_num_seqs, bytes, offset;
    double share;
    const char *host, *policy, *config;
    struct option_list names;
};

#define AT(field) offsetof(struct values, field)

static const struct option table[] = {
    {"host", OPTION_STRING, AT(host), "Server", "HOST", "0.0.0.0", 0, 0, NULL, "QT_HOST",
     "Address to listen on."},
    {"served-model-name", OPTION_LIST, AT(names), "Server", "NAME", NULL, 0, 0, NULL, "QT_NAME",
     "Model names | aliases."},
    {"max-num-seqs", OPTION_INT, AT(max_num_seqs), "Scheduler", "N", "64", 1, 4096, NULL, "QT_SEQS",
     "Sequences in a step."},
    {"enable-chunked-prefill", OPTION_BOOL, AT(chunked), "Scheduler", NULL, "true", 0, 0, NULL, NULL,
     "Chunk prompts."},
    {"enable-prefix-caching", OPTION_BOOL, AT(caching), "Memory", NULL, NULL, 0, 0, NULL, "QT_CACHE",
     "Reuse prefixes."},
    {"scheduling-policy", OPTION_CHOICE, AT(policy), "Scheduler", "POLICY", "fcfs", 0, 0, "fcfs|priority",
     NULL, "Order."},
    {"gpu-memory-utilization", OPTION_FLOAT, AT(share), "Memory", "SHARE", "0.9", 0.01, 1, NULL, NULL,
     "Share of memory."},
    {"kv-cache-memory-bytes", OPTION_INT, AT(bytes), "Memory", "BYTES", NULL, 0, 1e18, NULL, NULL,
     "Bytes of KV."},
    {"offset", OPTION_INT, AT(offset), "Memory", "N", NULL, 0, 0, NULL, NULL, "Anything."},
    {"tensor-parallel-size", OPTION_FIXED, 0, "Compatibility", "N", NULL, 0, 0, "1", NULL,
     "Only one device is used."},
    {"trust-remote-code", OPTION_FIXED, 0, "Compatibility", NULL, NULL, 0, 0, "true|false", NULL,
     "No code is run."},
    {"enforce-eager", OPTION_FIXED, 0, "Compatibility", NULL, NULL, 0, 0, "true", NULL,
     "There are no graphs."},
    {"config", OPTION_STRING, AT(config), "Server", "FILE", NULL, 0, 0, NULL, "QT_CONFIG",
     "Options from a file."},
    {0}};

struct run {
    struct values v;
    struct options_state *state;
    struct error err;
    int code, n_positional;
    char *argv[64], *notices;
};

/* Arguments separated by blanks; "~" stands for a blank inside one. */
static struct run *parse(const char *line) {
    static char words[4096];
    static struct run r;
    int argc = 0;
    size_t n = 0;
    r = (struct run){.code = 99};
    memset(&r.v, 0xee, sizeof r.v); /* every field must be set */
    snprintf(words, sizeof words, "%s", line);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) r.argv[argc++] = w;
    for (int i = 0; i < argc; i++)
        for (char *c = r.argv[i]; *c; c++)
            if (*c == '~') *c = ' ';
    FILE *f = open_memstream(&r.notices, &n);
    r.code = options_parse(table, argc, r.argv, &r.n_positional, &r.v, f, &r.state, &r.err);
    fclose(f);
    return &r;
}

static void done(struct run *r) {
    options_free(r->state);
    free(r->notices);
}

static struct run *parse_ok(const char *line) {
    struct run *r = parse(line);
    if (r->code != QUIRE_OK) fail_msg("%s: %s", line, r->err.text);
    return r;
}

static void refused(const char *line, int code, const char *param, const char *text) {
    struct run *r = parse(line);
    if (r->code != code) fail_msg("%s: code %d, wanted %d (%s)", line, r->code, code, r->err.text);
    assert_null(r->state);
    assert_string_equal(r->err.text, text);
    if (param)
        assert_string_equal(r->err.param, param);
    else
        assert_null(r->err.param);
    done(r);
}

/* ---- flags --------------------------------------------------------------------------------------------- */

static void defaults(void **state) {
    struct run *r = parse_ok("");
    assert_string_equal(r->v.host, "0.0.0.0");
    assert_int_equal(r->v.max_num_seqs, 64);
    assert_true(r->v.chunked);
    assert_false(r->v.caching);
    assert_string_equal(r->v.policy, "fcfs");
    assert_true(r->v.share == 0.9);
    assert_int_equal(r->v.bytes, 0);
    assert_int_equal(r->v.names.n, 0);
    assert_null(r->v.config);
    assert_false(options_given(r->state, "host"));
    assert_string_equal(r->notices, "");
    done(r);
}

static void every_way_to_write_a_flag(void **state) {
    struct run *r =
        parse_ok("model.gguf --max_num-seqs 8 --host=:: --no-enable_chunked_prefill --enable-prefix-caching "
                 "--gpu-memory-utilization 5e-1 --scheduling-policy=priority --offset -12 second");
    assert_int_equal(r->v.max_num_seqs, 8);
    assert_string_equal(r->v.host, "::");
    assert_false(r->v.chunked);
    assert_true(r->v.caching);
    assert_true(r->v.share == 0.5);
    assert_string_equal(r->v.policy, "priority");
    assert_int_equal(r->v.offset, -12);
    assert_int_equal(r->n_positional, 2);
    assert_string_equal(r->argv[0], "model.gguf");
    assert_string_equal(r->argv[1], "second");
    assert_true(options_given(r->state, "host"));
    assert_true(options_given(r->state, "max-num-seqs"));
    assert_false(options_given(r->state, "kv-cache-memory-bytes"));
    assert_false(options_given(r->state, "unheard-of"));
    done(r);
    r = parse_ok("--enable-prefix-caching=off --enable-chunked-prefill=yes --host= - -- --host -x");
    assert_false(r->v.caching);
    assert_true(r->v.chunked);
    assert_string_equal(r->v.host, "");
    assert_int_equal(r->n_positional, 3);
    assert_string_equal(r->argv[0], "-");
    assert_string_equal(r->argv[1], "--host");
    assert_string_equal(r->argv[2], "-x");
    done(r);
    r = parse_ok("--served-model-name a --host h --served-model-name=b=c --served_model_name d~e");
    assert_int_equal(r->v.names.n, 3);
    assert_string_equal(r->v.names.items[1], "b=c");
    assert_string_equal(r->v.names.items[2], "d e");
    done(r);
}

static void whole_numbers_with_suffixes(void **state) {
    static const struct {
        const char *text;
        int64_t want;
    } good[] = {{"0", 0},
                {"+7", 7},
                {"8k", 8000},
                {"8K", 8192},
                {"8Ki", 8192},
                {"3m", 3000000},
                {"3M", 3 << 20},
                {"3Mi", 3 << 20},
                {"2g", 2000000000},
                {"2G", (int64_t)2 << 30},
                {"2Gi", (int64_t)2 << 30},
                {"1.5k", 1500},
                {"1.5G", (int64_t)3 << 29},
                {"0.5K", 512},
                {"-3k", -3000},
                {"9223372036854775807", INT64_MAX},
                {"0000000000000000000000012", 12}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char line[80];
        snprintf(line, sizeof line, "--offset %s", good[i].text);
        struct run *r = parse_ok(line);
        assert_true(r->v.offset == good[i].want);
        done(r);
    }
    static const char *const bad[] = {"",
                                      "x",
                                      "1x",
                                      "1kk",
                                      "k",
                                      "1 k",
                                      "1.5",
                                      "1.k",
                                      "1.0001k",
                                      "0x10",
                                      "--",
                                      "+-1",
                                      "1e3",
                                      "- 1",
                                      "1Kb",
                                      "1ki",
                                      "8G8",
                                      "1,000",
                                      "9223372036854775808",
                                      "1.",
                                      "99999999999999999999",
                                      "9223372036854775807k",
                                      "1.0000000000k",
                                      "nan"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char line[80];
        snprintf(line, sizeof line, "--offset=%s", bad[i]);
        for (char *c = line; *c; c++)
            if (*c == ' ') *c = '~';
        struct run *r = parse(line);
        if (r->code != QUIRE_EINVAL) fail_msg("\"%s\" was taken as %lld", bad[i], (long long)r->v.offset);
        assert_non_null(strstr(r->err.text, "is not allowed (a whole number)"));
        done(r);
    }
}

static void numbers(void **state) {
    static const char *const bad[] = {"nan",   "inf", "-inf",  "0x1p-1", "",    "0.5x",
                                      "1e999", "0,5", "0.009", "1.001",  "-0.5"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char line[80], text[160];
        snprintf(line, sizeof line, "--gpu-memory-utilization=%s", bad[i]);
        snprintf(text, sizeof text,
                 "--gpu-memory-utilization: \"%s\" is not allowed (a number from 0.01 to 1)", bad[i]);
        refused(line, QUIRE_EINVAL, "gpu-memory-utilization", text);
    }
    struct run *r = parse_ok("--gpu-memory-utilization 1");
    assert_true(r->v.share == 1);
    done(r);
}

static void what_is_wrong_is_named(void **state) {
    refused("--max-num-seqs 0", QUIRE_EINVAL, "max-num-seqs",
            "--max-num-seqs: \"0\" is not allowed (a whole number from 1 to 4096)");
    refused("--max-num-seqs 4097", QUIRE_EINVAL, "max-num-seqs",
            "--max-num-seqs: \"4097\" is not allowed (a whole number from 1 to 4096)");
    refused("--kv-cache-memory-bytes -1", QUIRE_EINVAL, "kv-cache-memory-bytes",
            "--kv-cache-memory-bytes: \"-1\" is not allowed (a whole number, at least 0)");
    refused("--scheduling-policy lifo", QUIRE_EINVAL, "scheduling-policy",
            "--scheduling-policy: \"lifo\" is not allowed (one of fcfs, priority)");
    refused("--scheduling-policy fcfs|priority", QUIRE_EINVAL, "scheduling-policy",
            "--scheduling-policy: \"fcfs|priority\" is not allowed (one of fcfs, priority)");
    refused("--scheduling-policy=", QUIRE_EINVAL, "scheduling-policy",
            "--scheduling-policy: \"\" is not allowed (one of fcfs, priority)");
    refused("--enable-prefix-caching=maybe", QUIRE_EINVAL, "enable-prefix-caching",
            "--enable-prefix-caching: \"maybe\" is not allowed (true or false)");
    refused("--no-enable-prefix-caching=true", QUIRE_EINVAL, "enable-prefix-caching",
            "--no-enable-prefix-caching takes no value");
    refused("--max-num-seqs", QUIRE_EINVAL, "max-num-seqs", "--max-num-seqs needs a value (N)");
    refused("--max-num-seqs --host x", QUIRE_EINVAL, "max-num-seqs", "--max-num-seqs needs a value (N)");
    refused("--host a --host b", QUIRE_EINVAL, "host", "--host is given twice");
    refused("--max-num-seqs 1 --max_num_seqs=1", QUIRE_EINVAL, "max-num-seqs",
            "--max-num-seqs is given twice");
    refused("--enable-prefix-caching --no-enable-prefix-caching", QUIRE_EINVAL, "enable-prefix-caching",
            "--enable-prefix-caching is given twice");
    refused("-x", QUIRE_EINVAL, NULL, "unknown option -x (options start with two dashes)");
}

static void near_misses_are_suggested(void **state) {
    refused("--max-num-seq 1", QUIRE_EINVAL, NULL,
            "unknown option --max-num-seq (did you mean --max-num-seqs?)");
    refused("--max-seqs=1", QUIRE_EINVAL, NULL, "unknown option --max-seqs (did you mean --max-num-seqs?)");
    refused("--MAX-NUM-SEQS 1", QUIRE_EINVAL, NULL, "unknown option --MAX-NUM-SEQS (--help lists all)");
    refused("--hots x", QUIRE_EINVAL, NULL, "unknown option --hots (did you mean --host?)");
    refused("--enable_prefix_cache", QUIRE_EINVAL, NULL,
            "unknown option --enable_prefix_cache (did you mean --enable-prefix-caching?)");
    refused("--no-enable-prefix-cach", QUIRE_EINVAL, NULL,
            "unknown option --no-enable-prefix-cach (did you mean --no-enable-prefix-caching?)");
    refused("--no-host", QUIRE_EINVAL, NULL, "unknown option --no-host (did you mean --host?)");
    refused("--xyzzy", QUIRE_EINVAL, NULL, "unknown option --xyzzy (--help lists all)");
    refused("--=1", QUIRE_EINVAL, NULL, "unknown option -- (--help lists all)");
    char line[3000] = "--";
    memset(line + 2, 'a', sizeof line - 3);
    struct run *r = parse(line);
    assert_int_equal(r->code, QUIRE_EINVAL);
    assert_in_range(strlen(r->err.text), 100, 200); /* shown in part */
    done(r);
}

static void a_list_is_bounded(void **state) {
    char line[1024] = "";
    for (int i = 0; i < OPTION_LIST_MAX; i++) strcat(line, "--served-model-name x ");
    struct run *r = parse_ok(line);
    assert_int_equal(r->v.names.n, OPTION_LIST_MAX);
    done(r);
    strcat(line, "--served-model-name x");
    refused(line, QUIRE_ELIMIT, "served-model-name", "--served-model-name: more than 16 values");
}

static void fixed_options(void **state) {
    struct run *r = parse_ok("--tensor-parallel-size 1 --trust-remote-code --enforce-eager");
    assert_string_equal(
        r->notices,
        "--tensor-parallel-size 1 is accepted for compatibility and changes nothing: Only one device is "
        "used.\n"
        "--trust-remote-code true is accepted for compatibility and changes nothing: No code is run.\n"
        "--enforce-eager true is accepted for compatibility and changes nothing: There are no graphs.\n");
    done(r);
    r = parse_ok("--no-trust-remote-code --enforce-eager=1");
    assert_non_null(strstr(r->notices, "--trust-remote-code false is accepted"));
    done(r);
    refused("--tensor-parallel-size 2", QUIRE_EUNSUPPORTED, "tensor-parallel-size",
            "--tensor-parallel-size: \"2\" is not allowed (1)");
    refused("--tensor-parallel-size", QUIRE_EINVAL, "tensor-parallel-size",
            "--tensor-parallel-size needs a value (N)");
    refused("--no-enforce-eager", QUIRE_EUNSUPPORTED, "enforce-eager",
            "--enforce-eager: \"false\" is not allowed (true)");
    struct values v;
    struct options_state *s;
    struct error err;
    int n;
    char *argv[] = {(char[]){"--enforce-eager"}};
    assert_int_equal(options_parse(table, 1, argv, &n, &v, NULL, &s, &err), 0); /* notices are not wanted */
    options_free(s);
}

static void environment(void **state) {
    setenv("QT_HOST", "10.0.0.1", 1);
    setenv("QT_SEQS", "2k", 1);
    setenv("QT_CACHE", "true", 1);
    setenv("QT_NAME", "from-env", 1);
    struct run *r = parse_ok("");
    assert_string_equal(r->v.host, "10.0.0.1");
    assert_int_equal(r->v.max_num_seqs, 2000);
    assert_true(r->v.caching);
    assert_int_equal(r->v.names.n, 1);
    assert_true(options_given(r->state, "host"));
    done(r);
    r = parse_ok("--host x --no-enable-prefix-caching --served-model-name y");
    assert_string_equal(r->v.host, "x");
    assert_false(r->v.caching);
    assert_int_equal(r->v.names.n, 1); /* replaced, not added to */
    assert_string_equal(r->v.names.items[0], "y");
    done(r);
    setenv("QT_SEQS", "many", 1);
    refused("", QUIRE_EINVAL, "max-num-seqs",
            "environment variable QT_SEQS: max-num-seqs: \"many\" is not allowed (a whole number from 1 to "
            "4096)");
    setenv("QT_SEQS", "", 1); /* empty counts as not set */
    r = parse_ok("");
    assert_int_equal(r->v.max_num_seqs, 64);
    assert_false(options_given(r->state, "max-num-seqs"));
    done(r);
    unsetenv("QT_HOST");
    unsetenv("QT_SEQS");
    unsetenv("QT_CACHE");
    unsetenv("QT_NAME");
}

/* ---- the config file ----------------------------------------------------------------------------------- */

static char config[64];

static void write_config(const char *text, size_t n) {
    snprintf(config, sizeof config, "/tmp/quire-test-%ld.yaml", (long)getpid());
    FILE *f = fopen(config, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static struct run *parse_config(const char *text, const char *flags) {
    char line[256];
    write_config(text, strlen(text));
    snprintf(line, sizeof line, "--config %s %s", config, flags);
    struct run *r = parse(line);
    unlink(config);
    return r;
}

static void config_values(void **state) {
    struct run *r = parse_config("---\n"
                                 "# all kinds\n"
                                 "host: \"a # \\\"b\\\"\\x41\\n\" # comment\n"
                                 "\n"
                                 "max_num_seqs: 2K   # blanks behind\t\n"
                                 "enable-prefix-caching: yes\r\n"
                                 "enable-chunked-prefill: false\n"
                                 "scheduling-policy: 'priority'\n"
                                 "served-model-name: [ one, \"t,w]o\", 'it''s' ,four#4]  # list\n"
                                 "gpu-memory-utilization: 0.25",
                                 "");
    if (r->code) fail_msg("%s", r->err.text);
    assert_string_equal(r->v.host, "a # \"b\"A\n");
    assert_int_equal(r->v.max_num_seqs, 2048);
    assert_true(r->v.caching);
    assert_false(r->v.chunked);
    assert_string_equal(r->v.policy, "priority");
    assert_int_equal(r->v.names.n, 4);
    assert_string_equal(r->v.names.items[0], "one");
    assert_string_equal(r->v.names.items[1], "t,w]o");
    assert_string_equal(r->v.names.items[2], "it's");
    assert_string_equal(r->v.names.items[3], "four#4");
    assert_true(r->v.share == 0.25);
    assert_true(options_given(r->state, "host") && options_given(r->state, "config"));
    done(r);
}

static void config_lists(void **state) {
    struct run *r = parse_config(
        "\xef\xbb\xbfserved-model-name:\n  - one\n\n  # between\n- \"two\"\n  -   http://a:1/#x # c\nhost: h",
        "");
    if (r->code) fail_msg("%s", r->err.text);
    assert_int_equal(r->v.names.n, 3);
    assert_string_equal(r->v.names.items[1], "two");
    assert_string_equal(r->v.names.items[2], "http://a:1/#x");
    assert_string_equal(r->v.host, "h");
    done(r);
    r = parse_config("served-model-name: []\n", "");
    assert_int_equal(r->code, 0);
    assert_int_equal(r->v.names.n, 0);
    done(r);
    r = parse_config("served-model-name: single\ntensor-parallel-size: 1\nno-enable-chunked-prefill: true\n",
                     "");
    assert_int_equal(r->code, 0);
    assert_int_equal(r->v.names.n, 1);
    assert_false(r->v.chunked);
    assert_non_null(strstr(r->notices, "--tensor-parallel-size 1 is accepted"));
    done(r);
}

static void flags_win_over_the_file_and_the_file_over_the_environment(void **state) {
    setenv("QT_HOST", "env", 1);
    setenv("QT_SEQS", "9", 1);
    struct run *r = parse_config("host: file\nserved-model-name: [a, b]\nenable-prefix-caching: true\n",
                                 "--served-model-name flag --no-enable-prefix-caching");
    assert_int_equal(r->code, 0);
    assert_string_equal(r->v.host, "file");
    assert_int_equal(r->v.max_num_seqs, 9);
    assert_int_equal(r->v.names.n, 1);
    assert_string_equal(r->v.names.items[0], "flag");
    assert_false(r->v.caching);
    done(r);
    unsetenv("QT_HOST");
    unsetenv("QT_SEQS");
    write_config("host: by-env\n", 13);
    setenv("QT_CONFIG", config, 1);
    r = parse_ok("");
    unsetenv("QT_CONFIG");
    unlink(config);
    assert_string_equal(r->v.host, "by-env");
    done(r);
}

static void config_mistakes_name_the_line(void **state) {
    static const struct {
        const char *text;
        int code;
        const char *message; /* after "FILE:" */
    } rows[] = {
        {"host: a\n\nhots: b\n", QUIRE_EINVAL, "3: unknown option hots (did you mean host?)"},
        {"host: a\nhost: b\n", QUIRE_EINVAL, "2: host is given twice"},
        {"max-num-seqs: 0\n", QUIRE_EINVAL,
         "1: max-num-seqs: \"0\" is not allowed (a whole number from 1 to 4096)"},
        {"tensor-parallel-size: 2\n", QUIRE_EUNSUPPORTED,
         "1: tensor-parallel-size: \"2\" is not allowed (1)"},
        {"served-model-name: [a]\nserved_model_name: [b]\n", QUIRE_EINVAL,
         "2: served-model-name is given twice"},
        {"host:\n", QUIRE_EFORMAT, "1: host has no value"},
        {"host: # nothing\n", QUIRE_EFORMAT, "1: host has no value"},
        {"\nserved-model-name:\nhost: a\n", QUIRE_EFORMAT, "2: served-model-name has no value"},
        {"served-model-name:\n", QUIRE_EFORMAT, "1: served-model-name has no value"},
        {"served-model-name:\n  -\n", QUIRE_EFORMAT, "2: an empty list item"},
        {"host: a\n  - b\n", QUIRE_EFORMAT, "2: a \"- value\" line is allowed only below \"key:\""},
        {"host: [a]\n", QUIRE_EFORMAT, "1: host takes one value, not a list"},
        {"served-model-name: [a\n", QUIRE_EFORMAT, "1: a list needs , or ] after each value"},
        {"served-model-name: [a,\n", QUIRE_EFORMAT, "1: a list starts with [ and has no ] on its line"},
        {"served-model-name: [a] b\n", QUIRE_EFORMAT, "1: unexpected text after a list"},
        {"served-model-name: [[a]]\n", QUIRE_EFORMAT, "1: a value cannot start with [: put it in quotes"},
        {"served-model-name: [,a]\n", QUIRE_EFORMAT, "1: a value cannot start with ,: put it in quotes"},
        {"served-model-name: ['a' b]\n", QUIRE_EFORMAT, "1: a list needs , or ] after each value"},
        {"host: 'a' b\n", QUIRE_EFORMAT, "1: unexpected text after a quoted value"},
        {"host: 'a'#b\n", QUIRE_EFORMAT, "1: a comment needs a space before it"},
        {"host: \"a\n", QUIRE_EFORMAT, "1: a value starts with \" and has no closing \" on its line"},
        {"host: 'a\n", QUIRE_EFORMAT, "1: a value starts with ' and has no closing ' on its line"},
        {"host: \"\\q\"\n", QUIRE_EFORMAT, "1: unknown escape \\q in a quoted value"},
        {"host: \"\\", QUIRE_EFORMAT, "1: unknown escape \\ in a quoted value"},
        {"host: \"\\x0\"\n", QUIRE_EFORMAT, "1: \\x needs two hex digits from 01 to 7f"},
        {"host: \"\\x00\"\n", QUIRE_EFORMAT, "1: \\x needs two hex digits from 01 to 7f"},
        {"host: \"\\xff\"\n", QUIRE_EFORMAT, "1: \\x needs two hex digits from 01 to 7f"},
        {"host: &a b\n", QUIRE_EFORMAT, "1: a value cannot start with &: put it in quotes"},
        {"host: |\n  text\n", QUIRE_EFORMAT, "1: a value cannot start with |: put it in quotes"},
        {"host: - a\n", QUIRE_EFORMAT, "1: a value cannot start with -: put it in quotes"},
        {"host: a: b\n", QUIRE_EFORMAT, "1: a value with \":\" in it must be in quotes"},
        {"host: null\n", QUIRE_EFORMAT, "1: null is not a value: leave the key out"},
        {"host: ~\n", QUIRE_EFORMAT, "1: null is not a value: leave the key out"},
        {"host a\n", QUIRE_EFORMAT, "1: expected \"key: value\""},
        {"host:a\n", QUIRE_EFORMAT, "1: expected \"key: value\""},
        {"{host: a}\n", QUIRE_EFORMAT, "1: expected \"key: value\""},
        {"\"host\": a\n", QUIRE_EFORMAT, "1: expected \"key: value\""},
        {": a\n", QUIRE_EFORMAT, "1: expected \"key: value\""},
        {"host: a\n  max-num-seqs: 1\n", QUIRE_EFORMAT,
         "2: nested values are not supported: a key starts its line"},
        {"\thost: a\n", QUIRE_EFORMAT, "1: a tab in the indentation"},
        {"host: a\n---\nhost: b\n", QUIRE_EFORMAT, "2: only one document is allowed"},
        {"config: other.yaml\n", QUIRE_EFORMAT, "1: a config file cannot name another one"},
        {"host: \xff\n", QUIRE_EFORMAT, "1: not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct run *r = parse_config(rows[i].text, "");
        char want[256];
        snprintf(want, sizeof want, "%s:%s", config, rows[i].message);
        if (r->code != rows[i].code || strcmp(r->err.text, want))
            fail_msg("%s\ngot  %d %s\nwant %d %s", rows[i].text, r->code, r->err.text, rows[i].code, want);
        done(r);
    }
}

static void config_files_that_cannot_be_read(void **state) {
    refused("--config /nonexistent/quire.yaml", QUIRE_ENOTFOUND, "config",
            "cannot open config file /nonexistent/quire.yaml: No such file or directory");
    refused("--config /", QUIRE_EINVAL, "config", "/ is a directory, not a config file");
    char line[128], want[160];
    size_t n = (1u << 20) + 1;
    char *big = malloc(n);
    assert_non_null(big);
    memset(big, '#', n);
    write_config(big, n);
    snprintf(line, sizeof line, "--config %s", config);
    snprintf(want, sizeof want, "%s is larger than a config file may be (1 MiB)", config);
    refused(line, QUIRE_ELIMIT, "config", want);
    write_config(big, n - 1);
    done(parse_ok(line)); /* one comment of exactly 1 MiB */
    write_config("host: a\0b\n", 10);
    snprintf(want, sizeof want, "%s:1: a NUL byte", config);
    refused(line, QUIRE_EFORMAT, NULL, want);
    write_config("", 0);
    done(parse_ok(line));
    unlink(config);
    free(big);
}

/* ---- help ---------------------------------------------------------------------------------------------- */

static char *print(void (*printer)(const struct option *table, FILE *out)) {
    struct printed {
        char *text;
        size_t n;
    } p = {0};
    FILE *f = open_memstream(&p.text, &p.n);
    printer(table, f);
    fclose(f);
    return p.text;
}

static void help(void **state) {
    char *text = print(options_help);
    assert_memory_equal(text,
                        "Server:\n  --host HOST               Address to listen on. (default: 0.0.0.0; "
                        "environment: QT_HOST)\n",
                        98);
    assert_non_null(strstr(
        text,
        "\n\nScheduler:\n  --max-num-seqs N          Sequences in a step. (default: 64; a whole number from "
        "1 to 4096;\n                            environment: QT_SEQS)\n"));
    assert_non_null(strstr(
        text, "  --[no-]enable-chunked-prefill\n                            Chunk prompts. (default: on)\n"));
    assert_non_null(strstr(
        text, "  --[no-]enable-prefix-caching\n                            Reuse prefixes. (default: off; "));
    assert_non_null(strstr(text, "Order. (default: fcfs; one of fcfs, priority)\n"));
    assert_non_null(strstr(text, "(accepted: 1)"));
    assert_null(strstr(strstr(text, "Server:") + 1, "Server:")); /* each group once */
    size_t width = 0;
    for (const char *c = text; *c; c++) {
        width = *c == '\n' ? 0 : width + 1;
        assert_true(width <= 96);
    }
    for (const struct option *o = table; o->name; o++) assert_non_null(strstr(text, o->name));
    free(text);
}

static void markdown(void **state) {
    char *text = print(options_markdown);
    assert_non_null(
        strstr(text, "### Server\n\n| option | default | allowed | meaning |\n|---|---|---|---|\n"
                     "| `--host HOST` | `0.0.0.0` |  | Address to listen on. Environment: `QT_HOST`. |\n"));
    assert_non_null(strstr(text, "| Model names \\| aliases."));
    assert_non_null(strstr(text, "accepted for compatibility: one of true, false"));
    int rows = 0;
    for (const char *line = text; (line = strstr(line, "\n| `--")); line++) {
        int bars = 0;
        for (const char *c = line + 1; *c != '\n'; c++) bars += *c == '|' && c[-1] != '\\';
        assert_int_equal(bars, 5);
        rows++;
    }
    assert_int_equal(rows, 13);
    free(text);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static void parse_with_little_memory(void *ctx) {
    struct values v;
    struct options_state *s;
    struct error err = {0};
    int n;
    char *argv[] = {(char[]){"--config"}, config, (char[]){"--host=a"}};
    int code = options_parse(table, 3, argv, &n, &v, NULL, &s, &err);
    if (!alloc_fail_hit()) {
        assert_int_equal(code, 0);
        assert_int_equal(v.max_num_seqs, 3);
    } else {
        assert_int_equal(code, QUIRE_ENOMEM);
        assert_int_equal(err.code, QUIRE_ENOMEM);
        assert_null(s);
    }
    options_free(s);
}

static void every_allocation_may_fail(void **state) {
    write_config("max-num-seqs: 3\n", 16);
    assert_int_equal(alloc_fail_each(parse_with_little_memory, NULL), 4);
    unlink(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(every_way_to_write_a_flag),
        cmocka_unit_test(whole_numbers_with_suffixes),
        cmocka_unit_test(numbers),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(near_misses_are_suggested),
        cmocka_unit_test(a_list_is_bounded),
        cmocka_unit_test(fixed_options),
        cmocka_unit_test(environment),
        cmocka_unit_test(config_values),
        cmocka_unit_test(config_lists),
        cmocka_unit_test(flags_win_over_the_file_and_the_file_over_the_environment),
        cmocka_unit_test(config_mistakes_name_the_line),
        cmocka_unit_test(config_files_that_cannot_be_read),
        cmocka_unit_test(help),
        cmocka_unit_test(markdown),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
