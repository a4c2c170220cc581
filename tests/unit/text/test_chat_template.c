/* Renderings against jinja2's (tests/golden/template_golden.py), and what is not Python's: which bytes are
 * content, budgets, errors, threads, memory. */
#include "util/alloc_fail.h"
#include "util_template.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- golden renderings ---- */

static char *read_file(const char *name, size_t *len) {
    char path[1024];
    snprintf(path, sizeof path, "%s/templates/%s", TEST_DATA, name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*len + 1);
    assert_int_equal(fread(data, 1, *len, f), *len);
    data[*len] = '\0';
    fclose(f);
    return data;
}

static char *read_template(const char *stem, size_t *len) {
    char name[256];
    snprintf(name, sizeof name, "%s.jinja", stem);
    return read_file(name, len);
}

static struct chat_template_input conversation(json_t *c, json_int_t now) {
    return (struct chat_template_input){
        .messages = json_object_get(c, "messages"),
        .tools = json_object_get(c, "tools"),
        .documents = json_object_get(c, "documents"),
        .kwargs = json_object_get(c, "kwargs"),
        .add_generation_prompt = json_is_true(json_object_get(c, "add_generation_prompt")),
        .bos_token = json_string_value(json_object_get(c, "bos_token")),
        .eos_token = json_string_value(json_object_get(c, "eos_token")),
        .now_unix_s = now,
    };
}

static bool compare(json_t *line, const struct chat_template_input *in) {
    const char *file = json_string_value(json_object_get(line, "file"));
    json_t *source = json_object_get(line, "source"), *text = json_object_get(line, "text");
    size_t len = json_string_length(source);
    char *data = file ? read_template(file, &len) : NULL;
    struct template_run run = template_run(data ? data : json_string_value(source), len, in);
    bool same = text ? !run.rc && run.r.text.len == json_string_length(text) &&
                           memcmp(run.r.text.data, json_string_value(text), run.r.text.len) == 0
                     : run.rc != 0;
    if (!same)
        print_error("%s with %s\n  gives   %s\n  but not %s\n", file ? file : json_string_value(source),
                    json_string_value(json_object_get(line, "with")), run.rc ? run.err.text : run.r.text.data,
                    text ? json_string_value(text) : "an error");
    template_run_free(&run);
    free(data);
    return same;
}

static void test_golden(void **state) {
    size_t len, n = 0, n_bad = 0;
    char *data = read_file("golden.jsonl", &len);
    json_t *head = NULL;
    for (char *line = data, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_error_t e;
        json_t *j = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, &e);
        if (!j) fail_msg("golden.jsonl: %s", e.text);
        if (!head) {
            head = j;
            continue;
        }
        json_t *c = json_object_get(json_object_get(head, "conversations"),
                                    json_string_value(json_object_get(j, "with")));
        assert_non_null(c);
        struct chat_template_input in = conversation(c, json_integer_value(json_object_get(head, "now")));
        n_bad += !compare(j, &in);
        n++;
        json_decref(j);
    }
    print_message("%zu renderings\n", n);
    assert_int_equal(n_bad, 0);
    assert_true(n > 900);
    json_decref(head);
    free(data);
}

/* ---- which bytes are content ---- */

static bool is_content(const struct chat_rendering *r, size_t i) {
    for (size_t k = 0; k < r->n_content; k++)
        if (i >= r->content[k].start && i < r->content[k].start + r->content[k].len) return true;
    return false;
}

static void check_spans(const struct chat_rendering *r) {
    size_t end = 0;
    for (size_t k = 0; k < r->n_content; k++) {
        assert_true(r->content[k].len > 0);
        assert_true(k == 0 || r->content[k].start > end);
        end = r->content[k].start + r->content[k].len;
    }
    assert_true(end <= r->text.len);
}

/* All content is Cyrillic, which no template writes: so those bytes, and no others, must be content. */
static void test_content_of_families(void **state) {
    struct chat_template_input in = template_input(
        "[{\"role\":\"user\",\"content\":\"Привет\"},{\"role\":\"assistant\",\"content\":\"Ответ\"},"
        "{\"role\":\"user\",\"content\":\"Вопрос\"}]");
    in.add_generation_prompt = true;
    in.bos_token = "<s>";
    in.eos_token = "</s>";
    static const char *const families[] = {"alpaca",
                                           "apertus_blocks",
                                           "chatml",
                                           "chatml_default_system",
                                           "command_r",
                                           "command_r_tools",
                                           "deepseek_coder",
                                           "deepseek_r1",
                                           "deepseek_v31",
                                           "falcon",
                                           "functionary",
                                           "gemma",
                                           "gemma3_parts",
                                           "gemma4_schema",
                                           "glm4",
                                           "glm4_role",
                                           "granite",
                                           "granite4_ns",
                                           "harmony_macros",
                                           "hermes_tools",
                                           "kimi",
                                           "lfm2",
                                           "llama2",
                                           "llama3",
                                           "llama31_tools",
                                           "llama32_date",
                                           "minimax",
                                           "mistral_v1",
                                           "mistral_v3_tools",
                                           "mistral_v7_blocks",
                                           "mixtral_offset",
                                           "nemotron_toggle",
                                           "olmo",
                                           "openchat",
                                           "phi3",
                                           "phi4_mini",
                                           "phi4_sep",
                                           "qwen25_tools",
                                           "qwen3_coder_xml",
                                           "qwen3_thinking",
                                           "seed_budget",
                                           "smollm3",
                                           "solar_reverse",
                                           "vicuna",
                                           "zephyr"};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        size_t len, n = 0;
        char *source = read_template(families[f], &len);
        struct template_run run = template_run(source, len, &in);
        if (run.rc) fail_msg("%s: %s", families[f], run.err.text);
        check_spans(&run.r);
        for (size_t i = 0; i < run.r.text.len; i++) {
            unsigned char c = (unsigned char)run.r.text.data[i],
                          before = i ? (unsigned char)run.r.text.data[i - 1] : 0;
            bool cyrillic = c == 0xd0 || c == 0xd1 || before == 0xd0 || before == 0xd1;
            if (cyrillic != is_content(&run.r, i))
                fail_msg("%s: byte %zu of %s", families[f], i, run.r.text.data);
            n += cyrillic;
        }
        if (n < 2 * strlen("Привет"))
            fail_msg("%s: only %zu bytes of content in %s", families[f], n, run.r.text.data);
        template_run_free(&run);
        free(source);
    }
    json_decref(in.messages);
}

/* Renders with one message {"role": "user", "content": "Mess|age x", "n": 12, ...} and marks the content by [
 * ]. */
static void check_marked(const char *source, const char *marked) {
    struct chat_template_input in =
        template_input("[{\"role\":\"user\",\"content\":\"Abc "
                       "def\",\"n\":12,\"o\":{\"k\":\"v\",\"i\":1},\"l\":[\"p\",\"q\"],"
                       "\"bad\":\"<|x|>\",\"name\":\"user\",\"pad\":\"  z  "
                       "\",\"f\":\"%s!\",\"role2\":\"admin\"},{\"role\":\"admin\"}]");
    struct template_run run = template_run(source, strlen(source), &in);
    if (run.rc) fail_msg("%s: %s", source, run.err.text);
    char text[2048];
    size_t n = 0;
    check_spans(&run.r);
    for (size_t i = 0, k = 0; i <= run.r.text.len; i++) {
        if (k < run.r.n_content && i == run.r.content[k].start + run.r.content[k].len) {
            text[n++] = ']';
            k++;
        }
        if (k < run.r.n_content && i == run.r.content[k].start) text[n++] = '[';
        if (i < run.r.text.len) text[n++] = run.r.text.data[i];
    }
    text[n] = '\0';
    if (strcmp(text, marked) != 0) fail_msg("%s\n  gives   %s\n  but not %s", source, text, marked);
    template_run_free(&run);
    json_decref(in.messages);
}

static void test_content_of_operations(void **state) {
    static const struct {
        const char *source, *marked;
    } cases[] = {
        {"{% set m = messages[0] %}<{{ m.content }}>", "<[Abc def]>"},
        {"{% set c = messages[0].content %}{{ 'a' + c + 'b' }}|{{ 'a' ~ c ~ 1 }}", "a[Abc def]b|a[Abc def]1"},
        {"{% set c = messages[0].content %}{{ (c + 'xyz')[4:9] }}", "[def]xy"},
        {"{% set c = messages[0].content %}{{ ('xy' + c)[::-1] }}", "[fed cbA]yx"},
        {"{% set c = messages[0].content %}{{ c[0] }}{{ c[-1] }}{{ c|first }}{{ c|last }}", "[AfAf]"},
        {"{% set c = messages[0].content %}{{ c.split(' ')|join('-') }}", "[Abc]-[def]"},
        {"{% set c = messages[0].content %}{{ '-'.join(c.split()) }}", "[Abc]-[def]"},
        {"{% set c = messages[0].content %}{{ ('t ' + c).split()|join }}", "t[Abcdef]"},
        {"{% set c = messages[0].content %}{{ c.replace('b', '_') }}|{{ 'x_y'.replace('_', c) }}",
         "[A]_[c def]|x[Abc def]y"},
        {"{% set c = messages[0].content %}{{ c|replace('b', '_') }}|{{ 'x_y'|replace('_', c) }}",
         "[A]_[c def]|x[Abc def]y"},
        {"{{ messages[0].pad.strip() }}|{{ ('..' ~ messages[0].pad ~ '..').strip('.') }}", "[z]|[  z  ]"},
        {"{% set c = messages[0].content %}{{ ('x ' ~ c)|upper }} {{ c.lower() }} {{ ('y ' ~ c)|title }}",
         "X [ABC DEF] [abc def] Y [Abc Def]"},
        {"{% set c = messages[0].content %}{{ '%s: %s' % ('a', c) }} {{ '{}-{}'.format(c, 'b') }} {{ "
         "'%s|'|format(c) }}",
         "a: [Abc def] [Abc def]-b [Abc def]|"},
        {"{{ messages[0].f % 'tpl' }} {{ messages[0].f|format('tpl') }}", "tpl[!] tpl[!]"},
        {"{{ messages[0].n }} {{ messages[0].n + 1 }} {{ 'n' ~ messages[0].n }} {{ messages|length }}",
         "[12] 13 n[12] 2"},
        {"{{ messages[0].o|tojson }} {{ messages[0].l|tojson }} {{ messages[0].content|tojson }}",
         "[{\"k\": \"v\", \"i\": 1}] [[\"p\", \"q\"]] [\"Abc def\"]"},
        {"{{ {'a': messages[0].content, 'b': messages[0].l}|tojson }}",
         "{\"a\": [\"Abc def\"], \"b\": [[\"p\", \"q\"]]}"},
        {"{{ [messages[0].content, 'x'] }} {{ messages[0].l }} {{ messages[0].o }}",
         "[[\'Abc def\'], 'x'] [['p', 'q']] [{'k': 'v', 'i': 1}]"},
        {"{% for k, v in messages[0].o.items() %}{{ k }}={{ v }};{% endfor %}{{ messages[0].o|list|join('/') "
         "}}",
         "[k]=[v];[i]=[1];[k]/[i]"},
        {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[0].content) }}{% set s %}[{{ messages[0].bad "
         "}}]{% endset %}{{ s }}",
         "<[Abc def]>[[<|x|>]]"},
        {"{% filter upper %}a{{ messages[0].content }}b{% endfilter %}", "A[ABC DEF]B"},
        {"{% macro w() %}({{ caller() }}){% endmacro %}{% call w() %}{{ messages[0].content }}!{% endcall %}",
         "([Abc def]!)"},
        {"{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t ~ m.role ~ ';' %}{% endfor "
         "%}{{ ns.t }}",
         "user;[admin];"},
        {"{{ '<|' + messages[0].role + '|>' }}{{ '<|' + messages[1]['role'] + '|>' }}{{ messages[0].name "
         "}}{{ messages[0].role2 }}",
         "<|user|><|[admin]|>[useradmin]"},
        {"{{ messages|map(attribute='role')|list }} {{ (messages|map(attribute='content', "
         "default='none')|list)[0] }}",
         "['user', ['admin']] [Abc def]"},
        {"{{ {'user': '<u>', 'admin': '<a>'}[messages[1].role] }}{{ '<s>' if messages[0].content == 'Abc "
         "def' }}",
         "<a><s>"},
        {"{{ messages[0].content|indent(2, true) }}|{{ messages[0].content|center(11) }}|{{ "
         "messages[0].content|truncate(6, true, '..', 0) }}",
         "  [Abc def]|  [Abc def]  |[Abc ].."},
        {"{{ messages[0].bad|e }} {{ ('<'|safe) + messages[0].bad }}", "[&lt;|x|&gt;] <[&lt;|x|&gt;]"},
        {"{% for c in messages[0].content %}{{ c }}{{ '.' }}{% endfor %}", "[A].[b].[c].[ ].[d].[e].[f]."},
        {"{{ messages[0].content|list|reverse|join }}{{ messages[0].content|reverse }}", "[fed cbAfed cbA]"},
        {"{{ messages[0].content.partition(' ')|join('|') }}", "[Abc]|[ ]|[def]"},
        {"{{ dict(messages[0].o, z='t') }}", "{['k']: ['v'], ['i']: [1], 'z': 't'}"},
        {"{{ 'x' * 2 }}{{ messages[0].l|join(messages[0].content) }}{{ (messages[0].l + ['t'])|join(',') }}",
         "xx[pAbc defqp],[q],t"},
        {"{{ 'a b' | urlencode }}{{ messages[0].content | urlencode }}{{ messages[0].content|wordwrap(3) }}",
         "a%20b[Abc%20defAbc]\n[def]"},
        {"{{ '{:>9}|{:.3}'.format(messages[0].content, messages[0].content) }}", "  [Abc def]|[Abc]"},
        {"{{ messages[0].content if false else 'x' }}{{ (messages[0].nope or "
         "messages[0].content)|default('d') }}",
         "x[Abc def]"},
        {"{{ strftime_now('%Y') }}{{ (messages[0].content|length) }}{{ range(messages[0].n)|last }}",
         "1970711"},
        {"{{ bos_token }}{{ kw }}", ""},
    };
    setenv("TZ", "UTC", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_marked(cases[i].source, cases[i].marked);
}

static void test_tokens_and_kwargs(void **state) {
    struct chat_template_input in = template_input("[]");
    json_error_t e;
    in.kwargs = json_loads("{\"kw\":\"k\",\"flag\":true,\"num\":3}", 0, &e);
    in.bos_token = "<s>";
    const char *source =
        "{{ bos_token }}{{ kw }}{{ eos_token }}{{ num }}{{ 'on' if flag }}{{ tools is none }}";
    struct template_run run = template_run(source, strlen(source), &in);
    assert_int_equal(run.rc, 0);
    assert_string_equal(run.r.text.data, "<s>k3onTrue");
    assert_int_equal(run.r.n_content, 1);
    assert_int_equal(run.r.content[0].start, 3);
    assert_int_equal(run.r.content[0].len, 2);
    template_run_free(&run);
    json_decref(in.kwargs);
    json_decref(in.messages);
}

/* ---- budgets ---- */

static void test_hostile(void **state) {
    static const char *const sources[] = {
        "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}x{% endfor %}{% endfor "
        "%}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ range(10 ** 9) }}",
        "{{ range(10 ** 9)|list }}",
        "{{ 'a' * 10 ** 9 }}",
        "{{ 'a' * 10 ** 18 }}",
        "{{ [0] * 10 ** 9 }}",
        "{{ (0,) * 10 ** 18 }}",
        "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s "
        "%}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ "
        "ns.s }}",
        "{% set ns = namespace(s={}) %}{% for i in range(60) %}{% set ns.s = {'a': ns.s, 'b': ns.s} %}{% "
        "endfor %}{{ ns.s|tojson }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(5000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s "
        "}}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(5000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s "
        "== ns.s + [] }}",
        "{% set ns = namespace(s=(1,)) %}{% for i in range(5000) %}{% set ns.s = (ns.s,) %}{% endfor %}{{ "
        "{ns.s: 1} }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(n) %}{{ m(n + 1) ~ m(n + 2) }}{% endmacro %}{{ m(0) }}",
        "{% for i in [[[[]]]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%.999999999f' % 1 }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:,}'.format(1).center(999999999) }}",
        "{{ 'x'.ljust(10 ** 12) }}{{ 'x'.zfill(10 ** 12) }}",
        "{{ 'x'|indent(10 ** 12, true) }}",
        "{{ ('a' * 1000000)|replace('a', 'b' * 1000000) }}",
        "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% set s = 'a' * 4000000 %}{% for i in range(100000) %}{% set x = s.upper() %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% set n = 'a' * 500000 ~ 'b' %}{% for i in range(1000) %}{% set x = "
        "s.rfind(n) %}{% endfor %}",
        "{% set s = 'ab' * 1000000 %}{% for i in range(100000) %}{% set x = s.strip('ba') %}{% endfor %}",
        "{% set s = 'é' * 1000000 %}{% for i in range(100000) %}{% set x = s[999999] %}{% endfor %}",
        "{% set l = range(99999)|list %}{% for i in range(99999) %}{% set x = -1 in l %}{% endfor %}",
        "{% set l = range(99999)|map('string')|list %}{% for i in range(999) %}{% set x = l|sort|length %}{% "
        "endfor %}",
        "{% set ns = namespace(g=[1]) %}{% for i in range(5000) %}{% set ns.g = ns.g|map('string') %}{% "
        "endfor %}{{ ns.g|list }}",
        "{{ range(99999)|batch(1)|map('tojson')|map('tojson')|map('tojson')|join|length ~ "
        "range(99999)|map('string')|join|list|length }}"
        "{% for i in range(99999) %}{{ range(99999)|list|length }}{% endfor %}",
    };
    struct chat_template_input in = template_input("[]");
    double worst = 0;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        struct template_run run = template_run(sources[i], strlen(sources[i]), &in);
        if (run.rc != QUIRE_ELIMIT) fail_msg("%s: %s", sources[i], run.rc ? run.err.text : run.r.text.data);
        assert_int_equal(run.err.code, QUIRE_ELIMIT);
        if (getenv("TEMPLATE_TIMES")) print_message("%8.1f ms %s: %.80s\n", run.ms, run.err.text, sources[i]);
        if (run.ms > worst) worst = run.ms;
        template_run_free(&run);
    }
    print_message("slowest hostile template: %.1f ms of processor time\n", worst);
    assert_true(worst < 2000); /* 100 are meant; sanitizers take several times as long */
    json_decref(in.messages);
}

static void test_own_budgets(void **state) {
    static const struct {
        const char *source;
        size_t steps, depth, output;
        int rc;
    } cases[] = {
        {"{% for i in range(50) %}x{% endfor %}", 100, 0, 0, QUIRE_ELIMIT},
        {"{% for i in range(50) %}x{% endfor %}", 1000, 0, 0, 0},
        {"{{ ((((1 - 1) - 1) - 1) - 1) }}", 0, 3, 0, QUIRE_ELIMIT},
        {"{{ ((((1 - 1) - 1) - 1) - 1) }}", 0, 30, 0, 0},
        {"{% for i in range(50) %}x{% endfor %}", 0, 0, 49, QUIRE_ELIMIT},
        {"{% for i in range(50) %}x{% endfor %}", 0, 0, 50, 0},
        {"{{ 'x' * 51 if 0 }}{% set s = 'x' * 51 %}", 0, 0, 50, QUIRE_ELIMIT},
    };
    struct chat_template_input in = template_input("[]");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        in.max_steps = cases[i].steps;
        in.max_depth = cases[i].depth;
        in.max_output_bytes = cases[i].output;
        struct template_run run = template_run(cases[i].source, strlen(cases[i].source), &in);
        if (run.rc != cases[i].rc) fail_msg("%s: %d %s", cases[i].source, run.rc, run.err.text);
        template_run_free(&run);
    }
    json_decref(in.messages);
}

/* ---- nesting on a small stack ---- */

static char *repeated(const char *before, const char *middle, const char *after, size_t n) {
    size_t a = strlen(before), b = strlen(middle), c = strlen(after);
    char *s = malloc(n * (a + c) + b + 1), *p = s;
    for (size_t i = 0; i < n; i++, p += a) memcpy(p, before, a);
    memcpy(p, middle, b);
    p += b;
    for (size_t i = 0; i < n; i++, p += c) memcpy(p, after, c);
    *p = '\0';
    return s;
}

static void *deep_things(void *arg) {
    static const char *const parts[][3] = {
        {"(", "{{ 1 }}", ")"},
        {"{% if 1 %}", "x", "{% endif %}"},
        {"{% for i in [1] %}", "x", "{% endfor %}"},
        {"{% macro m() %}", "x", "{% endmacro %}"},
        {"{% set x %}", "x", "{% endset %}"},
        {"{% filter upper %}", "x", "{% endfilter %}"},
        {"{% with %}", "x", "{% endwith %}"},
        {"{% call m() %}", "x", "{% endcall %}"},
    };
    static const char *const exprs[][3] = {
        {"(", "1", ")"},     {"[", "1", "]"},          {"{1:", "1", "}"},  {"-", "1", ""},
        {"not ", "1", ""},   {"1 + ", "1", ""},        {"1 ~ ", "1", ""},  {"1 if 1 else ", "1", ""},
        {"", "x", ".a"},     {"", "x", "[0]"},         {"", "x", "()"},    {"", "x", "|e"},
        {"f(", "1", ")"},    {"x[", "1", "]"},         {"x|e(", "1", ")"}, {"x is eq(", "1", ")"},
        {"1 and ", "1", ""}, {"", "1", " is defined"}, {"", "x", " < 1"},  {"2 ** ", "1", ""},
        {"(", "a", ",)"}};
    struct chat_template_input in = template_input("[]");
    size_t *n_limited = arg;
    for (size_t n = 10; n <= 100000; n *= 10) {
        for (size_t i = 1; i < sizeof parts / sizeof *parts; i++) {
            char *s = repeated(parts[i][0], parts[i][1], parts[i][2], n);
            struct template_run run = template_run(s, strlen(s), &in);
            *n_limited += run.rc == QUIRE_ELIMIT;
            template_run_free(&run);
            free(s);
        }
        for (size_t i = 0; i < sizeof exprs / sizeof *exprs; i++) {
            char *inner = repeated(exprs[i][0], exprs[i][1], exprs[i][2], n);
            char *s = malloc(strlen(inner) + 8);
            sprintf(s, "{{ %s }}", inner);
            struct template_run run = template_run(s, strlen(s), &in);
            *n_limited += run.rc == QUIRE_ELIMIT;
            template_run_free(&run);
            free(inner);
            free(s);
        }
    }
    json_decref(in.messages);
    return NULL;
}

static json_t *nested_json(size_t depth) {
    json_t *v = json_integer(1);
    for (size_t i = 0; i < depth; i++) {
        json_t *outer = i % 2 ? json_array() : json_object();
        if (i % 2) {
            json_array_append_new(outer, v);
        } else {
            json_object_set_new(outer, "k", v);
        }
        v = outer;
    }
    return v;
}

static void *deep_json(void *arg) {
    static const char *const sources[] = {"{{ messages|tojson }}", "{{ messages }}",
                                          "{{ messages == messages[:] }}", "{{ messages|tojson(indent=1) }}"};
    struct chat_template_input in = {.messages = json_array()};
    json_array_append_new(in.messages, nested_json(2001));
    for (size_t i = 0; i < 4; i++) {
        struct template_run run = template_run(sources[i], strlen(sources[i]), &in);
        if (run.rc != QUIRE_ELIMIT) ++*(size_t *)arg;
        template_run_free(&run);
    }
    json_decref(in.messages);
    return NULL;
}

#ifdef __SANITIZE_THREAD__ /* keeps much of its own on a thread's stack */
#define SMALL_STACK_BYTES (1024 * 1024)
#else
#define SMALL_STACK_BYTES (256 * 1024)
#endif

static void run_on_small_stack(void *(*body)(void *), void *arg) {
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, SMALL_STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attr, body, arg), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

/* What is deep but not hostile goes through: macros that call themselves, as for the schema of a tool. */
static void *deep_macros(void *arg) {
    static const char source[] =
        "{% macro m(n) %}{% for i in [n] %}{% if i > 0 %}<{{ m(i - 1) }}>{% else %}x{% endif %}"
        "{% endfor %}{% endmacro %}{{ m(25) }}";
    struct chat_template_input in = template_input("[]");
    struct template_run run = template_run(source, sizeof source - 1, &in);
    if (run.rc || run.r.text.len != 51) ++*(size_t *)arg;
    template_run_free(&run);
    json_decref(in.messages);
    return NULL;
}

static void test_small_stack(void **state) {
    size_t n_limited = 0, n_bad = 0;
    run_on_small_stack(deep_things, &n_limited);
    assert_true(n_limited > 50);
    run_on_small_stack(deep_json, &n_bad);
    run_on_small_stack(deep_macros, &n_bad);
    assert_int_equal(n_bad, 0);
}

/* ---- errors ---- */

static void test_compile_errors(void **state) {
    static const struct {
        const char *source;
        int rc;
        const char *text;
    } cases[] = {
        {"{% include 'x' %}", QUIRE_EUNSUPPORTED,
         "chat template, line 1, column 4: the 'include' tag is not supported"},
        {"a\nb {% extends 'x' %}", QUIRE_EUNSUPPORTED,
         "chat template, line 2, column 6: the 'extends' tag is not supported"},
        {"é{% import 'x' as y %}", QUIRE_EUNSUPPORTED,
         "chat template, line 1, column 5: the 'import' tag is not supported"},
        {"{% from 'x' import y %}", QUIRE_EUNSUPPORTED,
         "chat template, line 1, column 4: the 'from' tag is not supported"},
        {"{% do x %}", QUIRE_EUNSUPPORTED, "chat template, line 1, column 4: the 'do' tag is not supported"},
        {"{{ x|random }}", QUIRE_EUNSUPPORTED,
         "chat template, line 1, column 6: filter 'random' is not supported"},
        {"{{ x is nice }}", QUIRE_EUNSUPPORTED,
         "chat template, line 1, column 6: test 'nice' is not supported"},
        {"{{ self.x() }}", QUIRE_EUNSUPPORTED, "chat template, line 1, column 4: 'self' is not supported"},
        {"{% autoescape true %}{% endautoescape %}", QUIRE_EUNSUPPORTED,
         "chat template, line 1, column 4: autoescape is not supported"},
        {"{% foo %}", QUIRE_EFORMAT, "chat template, line 1, column 4: unknown or misplaced tag 'foo'"},
        {"{% endif %}", QUIRE_EFORMAT, "chat template, line 1, column 4: unknown or misplaced tag 'endif'"},
        {"{% if x %}", QUIRE_EFORMAT,
         "chat template, line 1, column 11: unexpected end of template, expected 'elif'"},
        {"{% for x in y %}{% endif %}", QUIRE_EFORMAT,
         "chat template, line 1, column 20: unknown or misplaced tag 'endif'"},
        {"{{ x", QUIRE_EFORMAT, "chat template, line 1, column 5: expected '}}', got 'end of template'"},
        {"{{ }}", QUIRE_EFORMAT, "chat template, line 1, column 4: expected an expression, got '}}'"},
        {"{{ x. }}", QUIRE_EFORMAT, "chat template, line 1, column 7: expected a name or number behind '.'"},
        {"{{ (1 }}", QUIRE_EFORMAT, "chat template, line 1, column 7: unexpected '}', expected ')'"},
        {"{{ 1) }}", QUIRE_EFORMAT, "chat template, line 1, column 5: unexpected ')'"},
        {"{{ 'abc }}", QUIRE_EFORMAT,
         "chat template, line 1, column 4: unexpected character: a string that is not closed"},
        {"{{ a ? b }}", QUIRE_EFORMAT, "chat template, line 1, column 6: unexpected character U+003F '?'"},
        {"{{ '\\xg' }}", QUIRE_EFORMAT,
         "chat template, line 1, column 7: malformed \\x, \\u or \\U escape in a string"},
        {"{{ '\\ud800' }}", QUIRE_EFORMAT,
         "chat template, line 1, column 11: surrogates cannot be written in a string"},
        {"{{ '\\N{BULLET}' }}", QUIRE_EUNSUPPORTED,
         "chat template, line 1, column 7: \\N{...} escapes are not supported"},
        {"{{ 99999999999999999999 }}", QUIRE_EFORMAT,
         "chat template, line 1, column 4: integer does not fit in 64 bits"},
        {"{# x", QUIRE_EFORMAT, "chat template, line 1, column 1: missing end of comment tag"},
        {"{% raw %}x", QUIRE_EFORMAT, "chat template, line 1, column 1: missing end of raw directive"},
        {"{% break %}", QUIRE_EFORMAT, "chat template, line 1, column 4: 'break' outside a loop"},
        {"{% for i in x %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}", QUIRE_EFORMAT,
         "chat template, line 1, column 35: 'continue' outside a loop"},
        {"{% for i in x %}{% set loop = 1 %}{% endfor %}", QUIRE_EFORMAT,
         "chat template, line 1, column 24: 'loop' cannot be assigned to in a loop"},
        {"{% set 1 = 2 %}", QUIRE_EFORMAT, "chat template, line 1, column 8: cannot assign to this"},
        {"{% set x.y.z = 2 %}", QUIRE_EFORMAT, "chat template, line 1, column 11: expected '%}', got '.'"},
        {"{% macro m(a, a) %}{% endmacro %}", QUIRE_EFORMAT,
         "chat template, line 1, column 15: parameter 'a' is repeated"},
        {"{% macro m(a=1, b) %}{% endmacro %}", QUIRE_EFORMAT,
         "chat template, line 1, column 17: a parameter without default follows one with default"},
        {"{{ f(a=1, a=2) }}", QUIRE_EFORMAT,
         "chat template, line 1, column 11: keyword argument 'a' is repeated"},
        {"{{ f(a=1, 2) }}", QUIRE_EFORMAT,
         "chat template, line 1, column 11: positional arguments must come before keyword arguments, * and "
         "**"},
        {"{% block a %}{% endblock %}{% block a %}{% endblock %}", QUIRE_EFORMAT,
         "chat template, line 1, column 31: block 'a' is defined twice"},
        {"{{ x is none is none }}", QUIRE_EFORMAT,
         "chat template, line 1, column 14: tests with 'is' cannot be chained"},
        {"a\xff", QUIRE_EFORMAT, "chat template, line 1, column 2: the template is not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_template *t;
        struct error err = {0};
        int rc = chat_template_compile(cases[i].source, strlen(cases[i].source), &t, &err);
        if (rc != cases[i].rc || strncmp(err.text, cases[i].text, strlen(cases[i].text)) != 0)
            fail_msg("%s\n  gives   %d %s\n  but not %d %s", cases[i].source, rc, rc ? err.text : "",
                     cases[i].rc, cases[i].text);
        assert_null(t);
        assert_int_equal(err.code, rc);
        assert_int_equal(chat_template_compile(cases[i].source, strlen(cases[i].source), &t, NULL), rc);
    }
    char *big = calloc(1, (256 << 10) + 1);
    struct chat_template *t;
    struct error err = {0};
    memset(big, 'a', (256 << 10) + 1);
    assert_int_equal(chat_template_compile(big, (256 << 10) + 1, &t, &err), QUIRE_ELIMIT);
    assert_int_equal(chat_template_compile(big, 256 << 10, &t, &err), 0);
    chat_template_free(t);
    free(big);
}

static void test_render_errors(void **state) {
    static const struct {
        const char *source;
        int rc;
        const char *text;
    } cases[] = {
        {"{{ raise_exception('No, thanks!') }}", QUIRE_EINVAL, "No, thanks!"},
        {"a\n{{ x.y }}", QUIRE_EINVAL, "chat template, line 2: 'x' is undefined"},
        {"{{ messages[0].content.foo.bar }}", QUIRE_EINVAL,
         "chat template, line 1: 'str object' has no attribute 'foo'"},
        {"{{ messages[5].content }}", QUIRE_EINVAL, "chat template, line 1: list object has no element 5"},
        {"\n\n{{ 'a' + 1 }}", QUIRE_EINVAL,
         "chat template, line 3: unsupported operand type(s) for +: 'str' and 'int'"},
        {"{{ 1 / 0 }}", QUIRE_EINVAL, "chat template, line 1: division by zero"},
        {"{{ [1].append(2) }}", QUIRE_EINVAL,
         "chat template, line 1: access to attribute 'append' of 'list' object is unsafe"},
        {"{{ messages[0].update({}) }}", QUIRE_EINVAL,
         "chat template, line 1: access to attribute 'update' of 'dict' object is unsafe"},
        {"{{ ''.__class__.__mro__ }}", QUIRE_EINVAL,
         "chat template, line 1: access to attribute '__class__' of 'str' object is unsafe"},
        {"{% set messages.x = 1 %}", QUIRE_EINVAL,
         "chat template, line 1: cannot assign attribute on non-namespace object"},
        {"{% set ns = namespace(_a=1) %}", QUIRE_EINVAL,
         "chat template, line 1: a namespace cannot have attributes that start with '_'"},
        {"{{ 9223372036854775807 + 1 }}", QUIRE_ELIMIT,
         "chat template, line 1: the result does not fit in a 64-bit integer"},
        {"{{ 'x'.encode() }}", QUIRE_EUNSUPPORTED,
         "chat template, line 1: str.encode, str.translate and str.maketrans are not supported"},
        {"{% if true %}{{ 1|urlize }}{% endif %}", QUIRE_EUNSUPPORTED,
         "chat template, line 1: filter 'urlize' is not supported"},
        {"{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", QUIRE_EINVAL,
         "chat template, line 1: macro 'm' takes no keyword argument 'b'"},
        {"{{ 'a'|replace('b') }}", QUIRE_EINVAL, "chat template, line 1: replace lacks the argument 'new'"},
        {"{{ {[1]: 2} }}", QUIRE_EINVAL, "chat template, line 1: unhashable type: 'list'"},
        /* A key of the input is not repeated in the error. */
        {"{{ {}[messages[0].content].x }}", QUIRE_EINVAL,
         "chat template, line 1: 'dict object' has no attribute '...'"},
    };
    struct chat_template_input in = template_input("[{\"role\":\"user\",\"content\":\"Secret\"}]");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct template_run run = template_run(cases[i].source, strlen(cases[i].source), &in);
        if (run.rc != cases[i].rc || strcmp(run.err.text, cases[i].text) != 0)
            fail_msg("%s\n  gives   %d %s\n  but not %d %s", cases[i].source, run.rc, run.err.text,
                     cases[i].rc, cases[i].text);
        template_run_free(&run);
    }
    json_decref(in.messages);
}

static void check_refused(struct chat_template_input in, const char *param, const char *text) {
    struct template_run run = template_run("x", 1, &in);
    assert_int_equal(run.rc, QUIRE_EINVAL);
    assert_string_equal(run.err.param, param);
    assert_string_equal(run.err.text, text);
}

static void test_bad_input(void **state) {
    struct chat_template_input in = template_input("[]");
    json_t *list = json_pack("[s]", "x"), *object = json_pack("{s:i}", "messages", 1),
           *eos = json_pack("{s:s}", "eos_token", "x");
    check_refused((struct chat_template_input){0}, "messages", "messages must be an array");
    check_refused((struct chat_template_input){.messages = list}, "messages",
                  "messages[0] must be an object");
    check_refused((struct chat_template_input){.messages = in.messages, .tools = object}, "tools",
                  "tools must be an array");
    check_refused((struct chat_template_input){.messages = in.messages, .documents = object}, "documents",
                  "documents must be an array");
    check_refused((struct chat_template_input){.messages = in.messages, .kwargs = list},
                  "chat_template_kwargs", "chat_template_kwargs must be an object");
    check_refused((struct chat_template_input){.messages = in.messages, .kwargs = object},
                  "chat_template_kwargs", "chat_template_kwargs cannot set 'messages'");
    check_refused((struct chat_template_input){.messages = in.messages, .kwargs = eos, .eos_token = "y"},
                  "chat_template_kwargs", "chat_template_kwargs cannot set 'eos_token'");
    struct template_run run = template_run("", 0, &in);
    assert_int_equal(run.rc, 0);
    assert_int_equal(run.r.text.len, 0);
    assert_string_equal(run.r.text.data, "");
    template_run_free(&run);
    json_decref(list);
    json_decref(object);
    json_decref(eos);
    json_decref(in.messages);
}

/* ---- threads and memory ---- */

struct shared {
    struct chat_template *t;
    struct chat_template_input in;
    const char *expected;
};

static void *render_often(void *arg) {
    struct shared *s = arg;
    size_t n_bad = 0;
    for (int i = 0; i < 200; i++) {
        struct chat_rendering r;
        if (chat_template_render(s->t, &s->in, &r, NULL)) return (void *)1;
        n_bad += strcmp(r.text.data, s->expected) != 0;
        chat_rendering_free(&r);
    }
    return n_bad ? (void *)1 : NULL;
}

static void test_threads(void **state) {
    size_t len;
    char *source = read_template("qwen3_thinking", &len);
    struct shared s = {
        .in = template_input("[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"<"
                             "think>a</think>b\"}]"),
        .expected =
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\na\n</think>\n\nb<|im_end|>\n"};
    assert_int_equal(chat_template_compile(source, len, &s.t, NULL), 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, render_often, &s), 0);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
    chat_template_free(s.t);
    json_decref(s.in.messages);
    free(source);
}

static void compile_and_render(void *ctx) {
    struct chat_template_input *in = ctx;
    static const char source[] =
        "{% macro show(x) %}<{{ x|tojson }}>{% endmacro %}{% for m in messages %}{{ m.role ~ show(m) }}{% "
        "set s "
        "%}{{ 'x' * 70000 }}{% endset %}"
        "{{ s|length }}{% endfor %}{{ messages|groupby('role')|list }}{{ [1, 2, 3]|sort|batch(2)|list }}";
    struct template_run run = template_run(source, sizeof source - 1, in);
    if (alloc_fail_hit()) {
        assert_int_equal(run.rc, QUIRE_ENOMEM);
        assert_int_equal(run.err.code, QUIRE_ENOMEM);
    } else {
        assert_int_equal(run.rc, 0);
    }
    template_run_free(&run);
}

static void test_out_of_memory(void **state) {
    struct chat_template_input in =
        template_input("[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"tool\",\"content\":[1,2]}]");
    assert_true(alloc_fail_each(compile_and_render, &in) > 5);
    json_decref(in.messages);
}

int main(void) {
    setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_content_of_families),
        cmocka_unit_test(test_content_of_operations),
        cmocka_unit_test(test_tokens_and_kwargs),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_own_budgets),
        cmocka_unit_test(test_small_stack),
        cmocka_unit_test(test_compile_errors),
        cmocka_unit_test(test_render_errors),
        cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
