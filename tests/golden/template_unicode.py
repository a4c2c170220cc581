"""Writes src/text/jinja_unicode_table.c: the character properties and case mappings that Python's str methods use.

The authority is the running Python itself (its unicodedata version is noted in the output), because a rendered
template must equal what Python's str.upper(), str.isspace(), repr() and so on give.

    python3 tests/golden/template_unicode.py > src/text/jinja_unicode_table.c
"""
import sys
import unicodedata

N = 0x110000
SURROGATES = range(0xD800, 0xE000)


def properties(cp):
    c = chr(cp)
    number = 3 if c.isdecimal() else 2 if c.isdigit() else 1 if c.isnumeric() else 0
    bits = [c.isspace(), c.isalpha(), number & 1, number >> 1, c.isupper(), c.islower(), unicodedata.category(c) == "Lt",
            c.isprintable(), c.isidentifier(), ("a" + c).isidentifier(), False]
    if cp not in SURROGATES:
        # Case-ignorable: the character hides a final sigma's end of word, and hides the cased letter behind it too.
        bits[10] = ("A\u03a3" + c).lower()[1] == "\u03c2" and ("A\u03a3" + c + "B").lower()[1] == "\u03c3"
    return sum(bool(b) << i for i, b in enumerate(bits))


def runs(mapping):
    """{cp: target} to (first, last, step, delta): stretches with one delta, every or every second code point."""
    out = []
    for cp in sorted(mapping):
        delta = mapping[cp] - cp
        if out:
            first, last, step, d = out[-1]
            if d == delta and (cp - last == step or (first == last and cp - last in (1, 2))):
                out[-1] = (first, cp, cp - last, d)
                continue
        out.append((cp, cp, 1, delta))
    return out


def table(name, kind, rows, per_line):
    print(f"const struct {kind} {name}[] = {{")
    for i in range(0, len(rows), per_line):
        print("    " + " ".join(rows[i:i + per_line]))
    print("};")
    print(f"const size_t {name}_n = sizeof {name} / sizeof *{name};\n")


def main():
    print("/* Made by tests/golden/template_unicode.py from Python "
          f"{sys.version_info.major}.{sys.version_info.minor} (Unicode {unicodedata.unidata_version}). */")
    print("/* clang-format off */")
    print('#include "text/jinja_unicode.h"\n')
    rows, before = [], None
    for cp in range(N):
        p = properties(cp)
        if p != before:
            rows.append(f"0x{cp << 11 | p:08x},")
            before = p
    print("const uint32_t jinja_unicode_properties[] = {")
    for i in range(0, len(rows), 9):
        print("    " + " ".join(rows[i:i + 9]))
    print("};")
    print("const size_t jinja_unicode_properties_n = "
          "sizeof jinja_unicode_properties / sizeof *jinja_unicode_properties;\n")

    simple = {"upper": {}, "lower": {}}
    special = []
    for cp in range(N):
        if cp in SURROGATES:
            continue
        c = chr(cp)
        upper, lower, title, fold = c.upper(), c.lower(), c.title(), c.casefold()
        for name, value in (("upper", upper), ("lower", lower)):
            if len(value) == 1 and value != c:
                simple[name][cp] = ord(value)
        if len(upper) > 1:
            special.append((cp, "UPPER", upper))
        if len(lower) > 1:
            special.append((cp, "LOWER", lower))
        if title != upper:
            special.append((cp, "TITLE", title))
        if fold != lower:
            special.append((cp, "FOLD", fold))
    for name in ("upper", "lower"):
        table(f"jinja_unicode_{name}", "jinja_case_run",
              [f"{{0x{a:x}, 0x{b:x}, {s}, {d}}}," for a, b, s, d in runs(simple[name])], 4)
    table("jinja_unicode_special", "jinja_case_special",
          [f"{{0x{cp:x}, JINJA_CASE_{kind}, {{" + ", ".join(f"0x{ord(c):x}" for c in text) + "}},"
           for cp, kind, text in special], 3)


main()
