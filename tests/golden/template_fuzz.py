"""Random templates, rendered by jinja2 (template_oracle.py) and by the interpreter (tests/unit/text/template_driver.c),
compared byte by byte; where one fails the other has to. Not run by the tests; for whoever changes the interpreter.

    python3 tests/golden/template_fuzz.py DRIVER [COUNT [SEED]]
"""
import json
import os
import random
import re
import signal
import subprocess
import sys

os.environ["TZ"] = "UTC"
import warnings  # noqa: E402

import template_constructs  # noqa: E402
import template_oracle  # noqa: E402

STR_METHODS = ["upper", "lower", "title", "capitalize", "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines",
               "swapcase", "casefold", "isdigit", "isalpha", "isspace", "isupper", "islower", "istitle", "isalnum",
               "isnumeric", "isdecimal", "isprintable", "isidentifier", "isascii"]
STR_METHODS_ARG = ["startswith", "endswith", "find", "rfind", "index", "rindex", "count", "split", "rsplit", "strip", "lstrip",
                   "rstrip", "removeprefix", "removesuffix", "partition", "rpartition", "join"]
FILTERS = ["abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "forceescape",
           "int", "items", "join", "last", "length", "list", "lower", "max", "min", "reverse", "round", "safe", "sort",
           "string", "sum", "title", "tojson", "trim", "unique", "upper", "urlencode", "wordcount", "indent", "select",
           "reject", "filesizeformat", "center", "xmlattr", "wordwrap", "truncate"]
TESTS = ["defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping",
         "sequence", "iterable", "callable", "lower", "upper", "odd", "even", "escaped"]
TESTS_ARG = ["eq", "ne", "lt", "le", "gt", "ge", "equalto", "in", "divisibleby", "sameas"]
NAMES = ["x", "nums", "words", "users", "s", "u", "e", "n", "f", "t", "no", "empty_list", "empty_dict", "tree", "messages", "tools",
         "undef", "html", "multi", "items_dict", "nul", "a", "b", "i", "loop"]
STRINGS = ["", "a", "ab", " ", "x y", "é", "ß", "Σ", "ΑΣ", "%s", "%d", "{}", "{0}", "<b>", "a,b", "\\n", "\\t", "  pad ", "1", "1.5",
           "-3", "0x1f", "abc", "name", "role", "k", "age", "ǆ", "😀", "\\x00", "\\u2028", "\\\\", "'", "B", "aa", "-", "content", "n-m"]
FILLS = ["'*'", "'é'"]
SELECTS = ["", ", 'defined'", ", 'equalto', 30", ", 'string'"]
NAME_FILTERS = ["list", "sort", "unique|list", "map('upper')|list"]
ATTRS = ["name", "age", "role", "content", "k", "a", "b", "c", "y", "items", "keys", "get", "foo", "index", "first", "v", "length",
         "function", "parameters", "index0", "last", "real", "upper", "n", "city", "_p", "0"]


class Generator:
    def __init__(self, rng):
        self.r = rng

    def string(self):
        s = self.r.choice(STRINGS)
        q = '"' if "'" in s else self.r.choice("'\"")
        return q + s + q

    def number(self):
        return self.r.choice(["0", "1", "2", "3", "-1", "5", "10", "1.5", "0.0", "2.50", "-2.5", "1e3", "7", "100", "1e-7", "123456.789"])

    def key(self, d):
        k = self.r.random()
        if k < 0.4:
            return self.string()
        if k < 0.8:
            return self.r.choice(["0", "1", "-1", "2", "-2"])
        return self.expr(d - 1)

    def args(self, d, n):
        return ", ".join(self.expr(d - 1) for _ in range(n))

    def slice(self):
        part = lambda: self.r.choice(["", "", "0", "1", "2", "-1", "-2", "5", "100", "none"])
        s = part() + ":" + part()
        return s + ":" + self.r.choice(["", "1", "2", "-1", "-2", "3"]) if self.r.random() < 0.4 else s

    def filter(self, d):
        r = self.r
        k = r.random()
        if k < 0.55:
            return r.choice(FILTERS)
        return r.choice([
            f"join({self.string()})", f"default({self.expr(d - 1)})", f"default({self.expr(d - 1)}, true)",
            f"replace({self.string()}, {self.string()})", f"replace({self.string()}, {self.string()}, {r.choice('0123')})",
            f"map('{r.choice(FILTERS)}')|list", f"map(attribute={self.string()})|list",
            f"map(attribute='{r.choice(ATTRS)}', default={self.expr(d - 1)})|list", f"select('{r.choice(TESTS)}')|list",
            f"reject('{r.choice(TESTS)}')|list", f"select('{r.choice(TESTS_ARG)}', {self.expr(d - 1)})|list",
            f"selectattr({self.string()})|list", f"selectattr('{r.choice(ATTRS)}', '{r.choice(TESTS_ARG)}', {self.expr(d - 1)})|list",
            f"rejectattr('{r.choice(ATTRS)}', '{r.choice(TESTS)}')|list", f"batch({r.choice('1234')})|list",
            f"batch(3, {self.expr(d - 1)})|list", f"slice({r.choice('123')})|list", f"slice(3, 'f')|list",
            f"sort(reverse={r.choice(['true', 'false'])})", f"sort(case_sensitive=true)", f"sort(attribute='{r.choice(ATTRS)}')",
            f"groupby('{r.choice(ATTRS)}')", f"groupby('{r.choice(ATTRS)}', default='q')", f"unique(true)|list",
            f"tojson(indent={r.choice('0124')})", "tojson(ensure_ascii=true)", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))",
            f"truncate({r.choice(['3', '5', '8'])}, {r.choice(['true', 'false'])}, '..', {r.choice('012')})", f"indent({r.choice('0124')}, true)",
            f"indent('> ', blank=true)", f"wordwrap({r.choice(['1', '2', '5', '9'])})", f"wordwrap({r.choice(['3', '7'])}, false)",
            f"wordwrap({r.choice(['3', '7'])}, true, '|', false)", f"round({r.choice(['0', '1', '2', '-1', '-2'])})",
            f"round(1, '{r.choice(['floor', 'ceil', 'common'])}')", f"int({self.expr(d - 1)})", f"int(0, {r.choice(['2', '8', '16', '0', '36'])})",
            f"float({self.expr(d - 1)})", f"format({self.args(d, r.randrange(3))})", f"dictsort(by='value')", "dictsort(true, reverse=true)",
            f"sum(attribute='{r.choice(ATTRS)}')", f"sum(start={self.expr(d - 1)})", f"max(attribute='{r.choice(ATTRS)}')",
            f"trim({self.string()})", f"center({r.choice(['3', '8', '11'])})", f"attr({self.string()})", "unique|list", "items|list", "reverse|list",
            "first", "last", "list", "string|length", "select|list", "reject|list"])

    def test(self, d):
        if self.r.random() < 0.6:
            return self.r.choice(TESTS)
        return f"{self.r.choice(TESTS_ARG)}({self.expr(d - 1)})"

    def primary(self, d):
        r = self.r
        k = r.random()
        if d <= 0 or k < 0.35:
            return r.choice([r.choice(NAMES), r.choice(NAMES), self.string(), self.number(), r.choice(["true", "false", "none"])])
        if k < 0.45:
            return "[" + self.args(d, r.randrange(4)) + "]"
        if k < 0.5:
            n = r.randrange(1, 4)
            return "(" + ", ".join(self.expr(d - 1) for _ in range(n)) + ("," if n == 1 else "") + ")"
        if k < 0.56:
            return "{" + ", ".join(self.key(d) + ": " + self.expr(d - 1) for _ in range(r.randrange(3))) + "}"
        if k < 0.66:
            return f"({self.primary(d - 1)}).{r.choice(ATTRS)}"
        if k < 0.76:
            return f"({self.primary(d - 1)})[{self.key(d)}]"
        if k < 0.82:
            return f"({self.primary(d - 1)})[{self.slice()}]"
        if k < 0.88:
            return f"({self.expr(d - 1)}).{r.choice(STR_METHODS)}()"
        if k < 0.95:
            extra = r.choice(["", "", ", 1", ", 0, 2", ", -1", ", none"])
            return f"({self.expr(d - 1)}).{r.choice(STR_METHODS_ARG)}({self.expr(d - 1)}{extra})"
        return r.choice([f"range({r.choice('01234567')})", f"range({r.choice('0123')}, {r.choice('056')}, {r.choice(['1', '2', '-1'])})|list",
                         f"dict({self.args(d, 1)})", f"dict(a={self.expr(d - 1)})", f"namespace(a={self.expr(d - 1)}).a",
                         f"({self.expr(d - 1)}).items()|list", f"({self.expr(d - 1)}).get({self.expr(d - 1)})",
                         f"({self.expr(d - 1)}).values()|list", f"({self.expr(d - 1)}).replace({self.string()}, {self.string()})",
                         f"({self.string()}).format({self.args(d, r.randrange(3))})", f"({self.string()}).zfill({r.choice('0357')})",
                         f"({self.string()}).center({r.choice('0357')}, '*')", f"'{{:{self.spec()}}}'.format({self.expr(d - 1)})",
                         f"'%{self.percent()}' % {self.primary(d - 1)}"])

    def spec(self):
        r = self.r
        return (r.choice(["", "", "<", ">", "^", "=", "*<", "0=", "é^"]) + r.choice(["", "", "+", " ", "-"]) + r.choice(["", "", "#"]) +
                r.choice(["", "", "0"]) + r.choice(["", "5", "12"]) + r.choice(["", "", ",", "_"]) + r.choice(["", "", ".0", ".2", ".5"]) +
                r.choice(["", "", "d", "f", "s", "x", "X", "o", "b", "e", "E", "g", "G", "%", "n", "c"]))

    def percent(self):
        r = self.r
        return (r.choice(["", "", "-", "0", "+", " ", "#", "0+", "-0"]) + r.choice(["", "3", "8"]) + r.choice(["", "", ".0", ".2", ".5"]) +
                r.choice(["s", "s", "d", "i", "f", "F", "e", "E", "g", "G", "x", "X", "o", "r", "a", "c", "%", "u"]))

    def expr(self, d):
        r = self.r
        k = r.random()
        if d <= 0 or k < 0.3:
            return self.primary(d)
        if k < 0.42:
            return f"{self.expr(d - 1)} {r.choice(['+', '-', '*', '/', '//', '%', '~', '~', '+'])} {self.expr(d - 1)}"
        if k < 0.44:
            return f"{self.primary(0)} ** {r.choice(['0', '1', '2', '3', '-1', '0.5'])}"
        if k < 0.53:
            return f"{self.expr(d - 1)} {r.choice(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {self.expr(d - 1)}"
        if k < 0.59:
            return f"{self.expr(d - 1)} {r.choice(['and', 'or'])} {self.expr(d - 1)}"
        if k < 0.62:
            return f"{r.choice(['not ', '-', '+'])}{self.expr(d - 1)}"
        if k < 0.68:
            return f"{self.expr(d - 1)} if {self.expr(d - 1)}" + (f" else {self.expr(d - 1)}" if r.random() < 0.7 else "")
        if k < 0.76:
            return f"({self.expr(d - 1)}) is {r.choice(['', 'not '])}{self.test(d)}"
        if k < 0.8:
            return f"({self.expr(d - 1)})"
        return f"({self.expr(d - 1)})|{self.filter(d)}" + (f"|{self.filter(d)}" if r.random() < 0.3 else "")

    # Expressions of one type, so that most templates get through.

    def text(self, d):
        r = self.r
        if d <= 0 or r.random() < 0.2:
            return r.choice(["s", "u", "html", "multi", "e", "nul", "words[1]", "users[0].name", "messages[0].content", "messages[-1].role", "x.b",
                             self.string(), self.string()])
        t, n, m = self.text(d - 1), self.num(0), self.text(0)
        return r.choice([
            f"{t} ~ {self.expr(d - 1)}" if r.random() < 0.5 else f"{t} ~ {m}", f"({t} + {m})", f"({t})|{r.choice(['upper', 'lower', 'title', 'capitalize', 'trim', 'e', 'string', 'safe', 'urlencode', 'indent', 'reverse', 'first|string', 'tojson', 'center(9)', 'wordwrap(7)', 'truncate(6)', 'forceescape'])}",
            f"({t}).{r.choice(['upper', 'lower', 'title', 'capitalize', 'strip', 'lstrip', 'rstrip', 'swapcase', 'casefold', 'expandtabs'])}()",
            f"({t}).{r.choice(['strip', 'lstrip', 'rstrip', 'removeprefix', 'removesuffix'])}({m})", f"({t})[{self.slice()}]", f"({t}).replace({m}, {self.text(0)})",
            f"({t})|replace({m}, {self.text(0)})", f"({self.seq(d - 1)})|join({m})", f"({t}) if {self.cond(d - 1)} else ({m})", f"({t}) * {r.choice('0123')}",
            f"({self.expr(d - 1)})|string", f"({self.seq(d - 1)})|tojson", f"({t}).split({self.string()})[0]", f"({t}).split()|join('/')", f"({t}).rsplit(' ', 1)|last",
            f"({t}).partition({self.string()})[{r.choice('012')}]" , f"({t}).zfill({r.choice('0369')})", f"({t}).center({r.choice('0369')}, {r.choice(FILLS)})",
            f"'{{:{r.choice(['', '<5', '>6', '^7', '*^8', '.2', '05', 's', '.1s'])}}}'.format({t})", f"'%{r.choice(['', '5', '-5', '.2', '6.1'])}s' % ({t},)",
            f"'{{:{self.numspec()}}}'.format({self.num(d - 1)})", f"'%{self.numpercent()}' % ({self.num(d - 1)},)", f"({t})|default({m}, true)",
            f"({self.seq(d - 1)})|map('string')|join({m})", f"({t})|indent({r.choice('0124')}, {self.cond(0)}, {self.cond(0)})", f"({t})|tojson(ensure_ascii={r.choice(['true', 'false'])})",
            f"({t})|truncate({r.choice(['4', '6'])}, {self.cond(0)}, '..', {r.choice('02')})", f"({t})|wordwrap({r.choice('234579')}, {self.cond(0)}, '/', {self.cond(0)})"])

    def numspec(self):
        r = self.r
        return r.choice(["", "", "<", ">", "^", "=", "*<", "0="]) + r.choice(["", "", "+", " "]) + r.choice(["", "", "0"]) + r.choice(["", "5", "12"]) + \
            r.choice(["", "", ",", "_"]) + r.choice([r.choice(["", ".0", ".2", ".5", ".12"]) + r.choice(["f", "e", "g", "%", "G", "E"]), "", "d", ".3", ".10", "n"])

    def numpercent(self):
        r = self.r
        return r.choice(["", "", "-", "0", "+", " ", "#", "0+", "-0"]) + r.choice(["", "3", "8"]) + r.choice(["", "", ".0", ".2", ".5"]) + r.choice("difeEgGFsru")

    def num(self, d):
        r = self.r
        if d <= 0 or r.random() < 0.3:
            return r.choice(["n", "f", "nums[0]", "nums[-1]", "x.a[1]", self.number(), self.number()])
        a, b = self.num(d - 1), self.num(d - 1)
        return r.choice([f"({a} {r.choice(['+', '-', '*'])} {b})", f"({a} {r.choice(['/', '//', '%'])} ({b} or 1))", f"({self.seq(d - 1)})|length", f"({a})|round({r.choice(['', '0', '1', '2', '-1'])})",
                         f"({self.text(d - 1)})|length", f"({a})|int", f"({a})|float", f"({self.text(0)})|int", f"({self.text(0)})|float({r.choice(['', '1.5'])})", f"({a})|abs", f"[{a}, {b}]|max", f"[{a}, {b}]|sum",
                         f"({self.text(d - 1)}).find({self.string()})", f"({self.text(d - 1)}).count({self.string()})", f"({self.text(d - 1)}).rfind({self.string()}, {r.choice('012')})", f"({self.text(d - 1)})|wordcount",
                         f"-({a})", f"({a}) if {self.cond(d - 1)} else ({b})", f"({a})|round({r.choice('012')}, '{r.choice(['floor', 'ceil'])}')"])

    def cond(self, d):
        r = self.r
        if d <= 0 or r.random() < 0.2:
            return r.choice(["true", "false", "t", "no", "undef", "e", "n > 3", "x is mapping"])
        return r.choice([f"({self.num(d - 1)} {r.choice(['<', '<=', '>', '>=', '==', '!='])} {self.num(d - 1)})", f"({self.text(d - 1)}) {r.choice(['<', '==', 'in', 'not in', '>='])} ({self.text(d - 1)})",
                         f"({self.expr(d - 1)}) is {r.choice(['', 'not '])}{r.choice(['defined', 'none', 'string', 'number', 'mapping', 'iterable', 'sequence', 'boolean', 'true', 'integer', 'float'])}",
                         f"not {self.cond(d - 1)}", f"({self.cond(d - 1)} {r.choice(['and', 'or'])} {self.cond(d - 1)})", f"({self.text(d - 1)}).{r.choice(['startswith', 'endswith'])}({self.string()})",
                         f"({self.text(d - 1)}).{r.choice(['isdigit', 'isalpha', 'isspace', 'isupper', 'islower', 'istitle', 'isalnum', 'isidentifier', 'isprintable'])}()", f"({self.seq(d - 1)}) == ({self.seq(d - 1)})",
                         f"{self.expr(0)} in ({self.seq(d - 1)})"])

    def seq(self, d):
        r = self.r
        if d <= 0 or r.random() < 0.25:
            return r.choice(["nums", "words", "users", "messages", "tools", "tree", "empty_list", "x.c.y", "x.a", "range(4)", "[1, 'a', none]", "documents", "(1, 2)"])
        q = self.seq(d - 1)
        return r.choice([f"[{self.expr(d - 1)}, {self.text(d - 1)}]", f"({q})[{self.slice()}]", f"({q})|list", f"({q})|reverse|list", f"({q})|batch({r.choice('123')})|list", f"({q})|slice({r.choice('123')})|list",
                         f"({q})|select('{r.choice(['defined', 'none', 'string', 'number', 'mapping', 'iterable'])}')|list", f"({q})|map('{r.choice(['string', 'tojson', 'list', 'default', 'length', 'first', 'e'])}')|list",
                         f"({self.text(d - 1)}).split({self.string()})", f"({self.text(d - 1)}).split()", f"({self.text(d - 1)}).splitlines({r.choice(['', 'true'])})", f"({self.text(d - 1)})|list", f"nums|sort(reverse={self.cond(0)})",
                         f"words|sort(case_sensitive={self.cond(0)})", f"words|unique({self.cond(0)})|list", f"words|groupby({r.choice('01')})", f"users|groupby('age', default=1)|list", f"x|dictsort({self.cond(0)})", f"x.items()|list",
                         f"x.keys()|list", f"users|selectattr('{r.choice(['on', 'age', 'name'])}'{r.choice(SELECTS)})|list", f"messages|rejectattr('role', 'equalto', {self.string()})|list",
                         f"messages|map(attribute='{r.choice(['role', 'content', 'foo'])}'{r.choice(['', ', default=1'])})|list", f"({q}) + [{self.expr(0)}]" , f"users|map(attribute='name')|{r.choice(NAME_FILTERS)}",
                         f"({self.text(d - 1)}).rsplit({self.string()}, {r.choice(['1', '2', '-1'])})", f"[{self.num(d - 1)}, {self.num(d - 1)}, {self.num(0)}]|sort", f"({q}) * {r.choice('012')}"])

    def typed(self, d):
        return self.r.choice([self.text, self.text, self.num, self.cond, self.seq, self.expr])(d)

    def ws(self):
        return self.r.choice(["", "", "\n", " ", "\n  ", "  \n", "x", " y\n", "\t", "z"])

    def tag(self, body):
        r = self.r
        return "{%" + r.choice(["", "", "-", "+"]) + f" {body} " + r.choice(["", "", "-", "+"]) + "%}"

    def output(self, d):
        r = self.r
        return "{{" + r.choice(["", "", "-"]) + f" {self.typed(d)} " + r.choice(["", "", "-"]) + "}}"

    def body(self, d, loop):
        return "".join(self.ws() + self.statement(d, loop) for _ in range(self.r.randrange(1, 4))) + self.ws()

    def statement(self, d, loop=False):
        r = self.r
        k = r.random()
        t = self.tag
        if d <= 0 or k < 0.3:
            return self.output(2)
        if k < 0.45:
            parts = t(f"if {self.cond(2) if r.random() < 0.7 else self.expr(2)}") + self.body(d - 1, loop)
            if r.random() < 0.3:
                parts += t(f"elif {self.expr(1)}") + self.body(d - 1, loop)
            if r.random() < 0.4:
                parts += t("else") + self.body(d - 1, loop)
            return parts + t("endif")
        if k < 0.62:
            target = r.choice(["i", "i", "a", "a, b", "i, (a, b)"])
            head = f"for {target} in {self.seq(2) if r.random() < 0.7 else self.expr(2)}" + (f" if {self.cond(1)}" if r.random() < 0.25 else "")
            if r.random() < 0.08:
                head += " recursive"
            body = self.body(d - 1, True)
            if r.random() < 0.5:
                body += self.output_loop()
            if r.random() < 0.1:
                body += "{{ loop([1]) if loop.depth < 3 }}"
            return t(head) + body + (t("else") + self.body(d - 1, loop) if r.random() < 0.2 else "") + t("endfor")
        if k < 0.74:
            return r.choice([t(f"set {r.choice('abinxs')} = {self.typed(2)}"), t(f"set a, b = {self.expr(2)}, 2"),
                             t("set ns = namespace(v=0)") + t(f"set ns.v = {self.expr(2)}") + "{{ ns.v }}",
                             t(f"set {r.choice('ab')}") + self.body(d - 1, loop) + t("endset"),
                             t(f"set {r.choice('ab')} | {r.choice(['upper', 'trim', 'length', 'list'])}") + self.body(d - 1, loop) + t("endset")])
        if k < 0.8:
            m = r.choice(["m", "m2"])
            extra = r.choice(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller }}", "{{ caller(1) }}"])
            return (t(f"macro {m}({r.choice(['', 'a', 'a, b=1', 'a=2, b=a', 'x, caller=none'])})") + self.body(d - 1, False) + extra +
                    t("endmacro") + "{{ " + r.choice([f"{m}()", f"{m}(1)", f"{m}(1, b=2)", f"{m}({self.expr(1)}, 2, 3)", f"{m}(k=1)"]) + " }}" +
                    (t(f"call{r.choice(['', '(q)'])} {m}({r.choice(['', '1'])})") + self.body(d - 1, False) + t("endcall") if r.random() < 0.4 else ""))
        if k < 0.85:
            return t(f"with {r.choice(['a', 'i', 's'])} = {self.expr(1)}") + self.body(d - 1, loop) + t("endwith")
        if k < 0.89:
            return t(f"filter {r.choice(['upper', 'trim', 'e', 'indent(2)', 'replace(' + self.string() + ', ' + self.string() + ')', 'length'])}") + \
                self.body(d - 1, loop) + t("endfilter")
        if k < 0.91:
            return t("generation") + self.body(d - 1, False) + t("endgeneration")
        if k < 0.93:
            return "{#" + r.choice(["", "-", "+"]) + " c " + r.choice(["", "-", "+"]) + "#}"
        if k < 0.95:
            return t("raw") + " {{ x }}\n" + t("endraw")
        if k < 0.96:
            return t(f"block b{r.randrange(10 ** 6)}{r.choice(['', ' scoped'])}") + self.body(d - 1, False) + t("endblock")
        if loop:
            return t(f"if {self.expr(1)}") + t(r.choice(["break", "continue"])) + t("endif")
        return self.output(3)

    def output_loop(self):
        return "{{ loop." + self.r.choice(["index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "depth",
                                           "cycle(1, 2)", "changed(i)", "foo"]) + " }}"

    def template(self):
        if self.r.random() < 0.5:
            return self.output(4)
        return "".join(self.ws() + self.statement(3) for _ in range(self.r.randrange(1, 5))) + self.ws()

    def mutated(self, sources):
        """A hand-written template with pieces cut, doubled or moved."""
        s = self.r.choice(sources)
        for _ in range(self.r.randrange(1, 4)):
            tokens = re.findall(r"\{[{%#][-+]?|[-+]?[}%#]\}|\w+|\s+|.", s, re.S)
            if len(tokens) < 2:
                break
            i, j = self.r.randrange(len(tokens)), self.r.randrange(len(tokens))
            k = self.r.random()
            if k < 0.4:
                del tokens[i]
            elif k < 0.6:
                tokens.insert(i, tokens[j])
            elif k < 0.8:
                tokens[i], tokens[j] = tokens[j], tokens[i]
            else:
                tokens[i] = self.r.choice(NAMES + ["1", "'a'", "-", "loop", ".", "|", "(", ")", "[", "]", "is", "not", "in", "if", "else", " ", "\n", "-%}", "{%-"])
            s = "".join(tokens)
        return s


def give_up(*_):
    raise TimeoutError


LIMITS = ("64 bits", "64-bit", "more steps than", "MiB of memory", "bytes that a render", "bytes allowed", "nested too deeply", "is supported",
          "range too big",
          # jinja2 folds constants at compile time, where slicing a number gives undefined instead of an error
          "cannot be sliced", "complex numbers")


def main():
    warnings.simplefilter("ignore")
    driver, count, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10000, int(sys.argv[3]) if len(sys.argv) > 3 else 1
    rng = random.Random(seed)
    g = Generator(rng)
    sources = template_constructs.constructs()
    p = subprocess.Popen([driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TZ": "UTC"})
    signal.signal(signal.SIGALRM, give_up)
    both = same = failed = skipped = bad = 0
    case = dict(template_constructs.DATA)
    plain = json.dumps(case)  # some filters change what they are given
    for i in range(count):
        source = g.mutated(sources) if rng.random() < 0.25 else g.template()
        if re.search(r"\*\*\s*[^0-9.\s-]|\*\*\s*\d\d|\d{6}", source):
            continue
        signal.setitimer(signal.ITIMER_REAL, 2)
        try:
            text, error = template_oracle.render(source, json.loads(plain))
        except TimeoutError:
            continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        p.stdin.write((json.dumps({**case, "template": source, "now": template_oracle.NOW}) + "\n").encode())
        p.stdin.flush()
        line = p.stdout.readline()
        if not line:
            print("CRASH", repr(source))
            return 1
        got = json.loads(line)
        if text is None and "error" in got:
            failed += 1
        elif text is not None and got.get("text") == text:
            same += 1
        elif (text is not None and (" at 0x" in text.lower() or ").index" in source)) or any(l in got.get("error", "") for l in LIMITS) or "RecursionError" in (error or ""):
            skipped += 1
        else:
            bad += 1
            if bad <= 40:
                print("-----", repr(source))
                print(" PY", repr(text) if text is not None else error)
                print("  C", repr(got["text"]) if "text" in got else got)
    print(f"seed {seed}: {same} same, {failed} fail in both, {skipped} skipped, {bad} differ")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
