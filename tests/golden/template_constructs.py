"""Small templates, one construct each, rendered by template_golden.py. DATA is what they all get to see."""

DATA = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Hi <b>there</b> & \"you\"\n"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 2}}}]},
        {"role": "tool", "content": "{\"t\": 1.5}", "tool_call_id": "c1"},
        {"role": "user", "content": [{"type": "text", "text": "Straße ǅ ΑΣ"}, {"type": "image", "image_url": {"url": "x"}}]},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nDone.\n"},
    ],
    "tools": [{"type": "function", "function": {"name": "get_weather", "description": "Weather 'now' – \"here\" / there",
               "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["a", "b"]},
                                                               "days": {"type": "integer", "default": 3}},
                              "required": ["city"]}}}],
    "documents": [{"title": "T1", "text": "Text one"}, {"title": "t2", "text": "Text two"}],
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "kwargs": {
        "x": {"b": "a/b <&'> \u2014", "a": [1, 2.0, True, None], "A": 0, "c": {"z": 1, "y": [{"k": "v"}, {"k": "W"}]}},
        "nums": [3, 1, 2, 10, -5],
        "words": ["pear", "Apple", "fig", "apple", "Fig"],
        "users": [{"name": "Bo", "age": 30, "on": True, "city": {"n": "X"}}, {"name": "al", "age": 5, "on": False, "city": {"n": "y"}},
                  {"name": "Cy", "age": 30, "on": True, "city": {"n": "x"}}, {"name": "Di", "on": None}],
        "s": "Hello, World", "u": "naïve – Ünïcödé 𝒳 ß", "e": "", "n": 5, "f": 2.5, "big": 9007199254740993, "t": True, "no": None,
        "empty_list": [], "empty_dict": {}, "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}],
        "items_dict": {"items": 1, "keys": 2, "get": 3}, "nul": "a\u0000b", "html": "<i>", "multi": "one\ntwo\n\nthree\r\nfour",
    },
}

CONSTRUCTS = r"""
{{ 1 }}{{ 1.0 }}{{ true }}{{ none }}{{ 'a' }}{{ "b" }}{{ undefined_thing }}|
{{ [1, 'a', 2.5, none, true, [1], (1,), (), (1, 2), {'a': 1, 2: 'b'}] }}
{{ 'a' 'b' "c" }}{{ 'it''s' }}{{ "\n\t\\\x41\u00e9\U0001f600\101\q\'" }}
{{ "\é" }}{{ '\
x' }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }}
{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 1e16 }} {{ 1e15 }} {{ 1.5e-5 }} {{ 0.0001 }} {{ 123456789.123 }} {{ 1e300 * 10 }} {{ 0.1 + 0.2 }}
{{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1_0.5_0 }} {{ 1e3 }} {{ 00 }}
{{ -2 ** 2 }} {{ +3 }} {{ - 3 }} {{ -n }} {{ -f }} {{ not t }} {{ not not e }}
{{ true + true }} {{ true * 3 }} {{ 5 / 2 }} {{ 4 / 2 }} {{ 10 // 3.0 }} {{ 3 * 'ab' }} {{ 'ab' * 2 }} {{ [1, 2] * 2 }} {{ 'x' * -1 }}|
{{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2, 3) }} {{ 'a' ~ 1 ~ 2.0 ~ none ~ true }} {{ nums + [7] }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1, 2) == (1, 2) }} {{ {'a': 1} == {'a': 1.0} }} {{ none == none }} {{ zz == yy }} {{ 'a' != 'b' }}
{{ 1 in [1, 2] }} {{ 3 not in [1, 2] }} {{ 'el' in s }} {{ 'b' in x }} {{ 'zz' in x }} {{ 2 in range(5) }} {{ 1.0 in nums }} {{ 'a' in undefined_thing }}
{{ 1 and 0 }} {{ 0 or 'd' }} {{ '' or none }} {{ 'a' and 'b' }} {{ not 0 and 1 }} {{ 1 if t else 2 }} {{ 1 if no else 2 }} {{ 'q' if no }}|
{{ 'a' if 0 else 'b' if 0 else 'c' }} {{ ('x' if n > 3) or 'y' }}
{{ x.b }} {{ x['b'] }} {{ x.a[1] }} {{ x.a.0 }} {{ x['a'][-1] }} {{ x.nope }} {{ x['nope'] }} {{ x.a[99] }} {{ x.c.y[1].k }} {{ s[0] }} {{ s[-1] }} {{ u[3] }} {{ s[99] }}|
{{ s[1:3] }} {{ s[:-1] }} {{ s[::-1] }} {{ s[::2] }} {{ s[-3:] }} {{ s[5:2] }} {{ s[10:1:-2] }} {{ u[::-1] }} {{ u[2:9:3] }} {{ nums[1:] }} {{ nums[::-1] }} {{ nums[-2:] }} {{ (1, 2, 3)[1:] }} {{ range(10)[2:8:2] }} {{ range(10)[::-1]|list }} {{ s[none:2] }} {{ s[:100] }} {{ s[-100:2] }}
{{ messages[1:]|length }} {{ messages[::-1][0].content }} {{ messages[0]['role'] }}
{{ x.items() }} {{ x.keys() }} {{ x.values()|list }} {{ items_dict.items is callable }} {{ items_dict['items'] }}
{{ items_dict.get('get') }} {{ x.get('nope') }} {{ x.get('nope', 'd') }} {{ x.get('b') }}
{% for k, v in x.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in x %}{{ k }},{% endfor %}{% for c in 'añb' %}[{{ c }}]{% endfor %}
{% for i in range(3) %}{{ i }}{% endfor %} {% for i in range(2, 8, 3) %}{{ i }}{% endfor %} {% for i in range(5, 0, -2) %}{{ i }}{% endfor %} {{ range(3) }} {{ range(1, 5) }} {{ range(0, 9, 2) }} {{ range(3)|list }}
{% for i in [] %}x{% else %}empty{% endfor %} {% for i in [1] %}x{% else %}empty{% endfor %} {% for i in undefined_thing %}x{% else %}none{% endfor %}
{% for i in nums if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% else %}no{% endfor %}
{% for i in nums if i > 100 %}{{ i }}{% else %}no{% endfor %}
{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}-{{ b }} {% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for i in nums %}{{ loop.index }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.length }} {{ loop.previtem }} {{ loop.nextitem }} {{ loop.depth }} {{ loop.depth0 }}|{% endfor %}
{% for i in nums %}{{ loop.cycle('odd', 'even') }} {{ loop.changed(i > 2) }} {% endfor %}
{% for i in nums|select('gt', 1) %}{{ loop.last }}{{ loop.revindex }}{{ loop.nextitem }} {% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}{{ i }}{% else %}E{% endfor %}
{% for i in [1] %}{% break %}{% else %}else after break{% endfor %}{% for i in [1, 2] %}{% continue %}{% else %}else after continue{% endfor %}
{% for n in tree recursive %}{{ n.v }}@{{ loop.depth }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% if not loop.last %},{% endif %}{% endfor %}
{% for n in tree recursive %}{% for m in n.c %}{{ loop.index }}{{ m.v }}{% endfor %}{{ loop(n.c) if n.c }}{% endfor %}
{% for a in [1, 2] %}{% for b in [3, 4] %}{{ loop.index }}{{ a }}{{ b }} {% endfor %}{{ loop.index }};{% endfor %}
{% for a in [1, 2] %}{% set outer = loop %}{% for b in 'xy' %}{{ outer.index }}{{ b }}{{ loop.index }} {% endfor %}{% endfor %}
{% set ns = namespace(n=0, found=false) %}{% for i in nums %}{% set ns.n = ns.n + i %}{% if i == 2 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.n }} {{ ns.found }} {{ ns }} {{ ns.nope }} {{ ns['n'] }}
{% set y = 1 %}{% for i in [1, 2] %}{% set y = y + i %}{{ y }}{% endfor %}{{ y }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% set ns = namespace() %}{% set ns.a, ns.b = 5, 6 %}{{ ns.a }}{{ ns.b }}
{% set z %}  block {{ n }} {% endset %}[{{ z }}]{% set z | upper | trim %} b {% endset %}[{{ z }}]
{% if n > 3 %}big{% elif n > 1 %}mid{% else %}small{% endif %} {% if no %}a{% elif e %}b{% endif %}|
{% if x is mapping and nums is sequence %}m{% endif %}{% if t %}{% set q = 1 %}{% endif %}{{ q }}{% if no %}{% set r = 1 %}{% endif %}{{ r }}|{% if no %}{% set s = 1 %}{% endif %}{{ s }}
{% macro m(a, b='d', c=none) %}<{{ a }}|{{ b }}|{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 2, 3) }}{{ m(1, c=5) }}{{ m(b=1, a=2) }}{{ m() }}
{% macro m(a) %}{{ a }} {{ varargs }} {{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k='v', w=2) }}
{% macro m(a) %}{{ caller }}{{ a }}{{ caller('x') if caller }}{% endmacro %}{{ m(1) }}{% call(q) m(2) %}[{{ q }}]{% endcall %}
{% macro box() %}<{{ caller() }}>{% endmacro %}{% call box() %}in{{ n }}{% endcall %}{% call box() %}{% call box() %}deep{% endcall %}{% endcall %}
{% macro fact(k) %}{{ 1 if k < 2 else k * fact(k - 1)|int }}{% endmacro %}{{ fact(6) }}
{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{{ y }}{% endmacro %}{% set y = 7 %}{{ a() }}{% set y = 8 %}{{ a() }}
{% macro outer(p) %}{% macro inner(q) %}{{ p }}{{ q }}{% endmacro %}{{ inner('i') }}{% endmacro %}{{ outer('o') }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(3) }} {{ m.name }} {{ m.arguments }} {{ m.catch_kwargs }} {{ m }}
{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% set a = 5 %}{{ a }}{% endwith %}{{ a }}|{% with %}{% set w = 1 %}{{ w }}{% endwith %}{{ w }}|
{% set a = 9 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}
{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a', 'b')|trim %} banana {% endfilter %}
{% generation %}gen {{ n }}{% set inside = 1 %}{% endgeneration %}{{ inside }}|
{% raw %}{{ not }} {% this %}{% endraw %} {%- raw -%}  x  {%- endraw -%}  y
{% block title %}T{{ s }}{% endblock %}{% for i in [1] %}{% block b scoped %}{{ i }}{% endblock %}{% block c %}{{ i }}{% endblock %}{% endfor %}
{% set v = 'top' %}{% block b1 %}{{ v }}{% endblock b1 %}{% autoescape false %}{{ html }}{% endautoescape %}{% print 1, 'a', none %}
a{# comment #}b{#- x -#} c {#+ y +#} d
{% if true -%}  x  {%- endif %}  y {{- ' z ' -}} w
line1
  {% if true %}
  body
  {% endif %}
line2
  {%- for i in [1, 2] %}
 {{ i }}
  {%- endfor %}

end
  {%+ if true %}keep{% endif +%}
after
  {# comment alone #}
next {# inline #} rest
	{% set q = 1 %}
tabs
{% if x is defined %}d{% endif %}{% if zz is undefined %}u{% endif %}{% if zz is not defined %}nd{% endif %}
{{ 1 is odd }} {{ 2 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(4) }} {{ none is none }} {{ n is number }} {{ s is string }} {{ x is mapping }} {{ nums is iterable }} {{ nums is sequence }} {{ 5 is iterable }} {{ 5 is integer }} {{ true is integer }} {{ 2.0 is float }} {{ true is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }}
{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'Abc' is lower }} {{ s is sameas s }} {{ none is sameas none }} {{ 1 is sameas true }} {{ 'a' is in 'abc' }} {{ 1 is in [1] }} {{ 1 is eq 1 }} {{ 1 is equalto 2 }} {{ 1 is ne 2 }} {{ 2 is gt 1 }} {{ 2 is ge 2 }} {{ 2 is lt 1 }} {{ 2 is le 2 }} {{ 3 is greaterthan 2 }} {{ 3 is lessthan 2 }}
{{ range is callable }} {{ s is callable }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ html|e is escaped }} {{ html is escaped }} {{ zz is iterable }} {{ zz is none }} {{ zz is string }}
{{ -5|abs }} {{ 2.5|abs }} {{ x|attr('keys') is callable }} {{ x|attr('b') }}|
{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 'f')|list }} {{ [1, 2, 3, 4, 5, 6, 7]|slice(3)|list }} {{ [1, 2, 3, 4]|slice(3, 'f')|list }}
{{ 'hello WORLD'|capitalize }} {{ 'ab'|center(7) }}| {{ zz|default('d') }} {{ e|default('d') }} {{ e|default('d', true) }} {{ zz|d }}| {{ no|default('d', boolean=true) }}
{{ x|dictsort }} {{ {'b': 1, 'A': 2, 'a': 0}|dictsort(true) }} {{ {'b': 1, 'a': 2}|dictsort(by='value') }} {{ {'b': 1, 'a': 2}|dictsort(reverse=true) }}
{{ html|e }} {{ html|escape|e }} {{ '<a href="x">\'q\' & b</a>'|e }} {{ html|forceescape }} {{ ('<b>'|safe) + html }} {{ html ~ ('<b>'|safe) }} {{ ('%s<b>'|safe) % html }} {{ ('<b>'|safe)|e }}
{{ 13|filesizeformat }} {{ 1|filesizeformat }} {{ 1000|filesizeformat }} {{ 1234567|filesizeformat }} {{ 1234567|filesizeformat(true) }} {{ 1.5e30|filesizeformat }}
{{ nums|first }} {{ nums|last }} {{ []|first }}| {{ 'abc'|first }} {{ 'abc'|last }} {{ x|first }} {{ ''|last }}|
{{ '3.7'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ ' 1_000.5 '|float }} {{ 'inf'|float }} {{ '-Infinity'|float }} {{ 'nan'|float }} {{ none|float }} {{ true|float }}
{{ '42'|int }} {{ '42.9'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '0x1f'|int(base=16) }} {{ '1f'|int(0, 16) }} {{ 3.9|int }} {{ -3.9|int }} {{ ' 12 '|int }} {{ '1_0'|int }} {{ '٣'|int }} {{ none|int }} {{ true|int }} {{ '0b11'|int(0, 2) }} {{ '0x1f'|int(0, 0) }} {{ '010'|int(5, 0) }} {{ '1e3'|int }}
{{ '%s is %d, %5.2f|%-6s|%06d|%x|%X|%o|%e|%g|%%|%c|%r|%+d|% d|%#x|%.3s'|format('a', 3.9, 2.345, 'ab', 42, 255, 255, 8, 12345.678, 0.00001, 'z', 'q', 5, 5, 255, 'abcdef') }}
{{ '%(a)s-%(b)03d'|format(a='x', b=7) }} {{ '%s' % 'one' }} {{ '%s %s' % (1, 2) }} {{ '%(k)s' % {'k': 'v'} }} {{ '%s' % [1, 2] }} {{ '%*d|%.*f' % (5, 42, 2, 3.14159) }} {{ '%i' % true }}
{{ '{} {} {}'.format(1, 'a', none) }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{n:>5}|{n:<5}|{n:^5}|{n:05d}|{n:+}'.format(n=42) }} {{ '{:,}'.format(1234567) }} {{ '{:.2f}'.format(3.14159) }} {{ '{:10.3f}|'.format(3.14159) }} {{ '{:x}{:X}{:b}{:o}{:#x}'.format(255, 255, 5, 8, 255) }} {{ '{:%}'.format(0.25) }} {{ '{:e}'.format(12345.678) }} {{ '{{}}'.format() }} {{ '{!r} {!s}'.format('a', 'b') }} {{ '{a[k]} {b.c}'.format(a={'k': 1}, b={'c': 2}) }} {{ '{:*^9}'.format('mid') }} {{ '{:{w}}|'.format('a', w=4) }} {{ '{:.3}'.format('abcdef') }} {{ '{:,.2f}'.format(1234567.891) }} {{ '{:010,}'.format(1234) }} {{ '{:g}'.format(1e10) }} {{ '{}'.format(1.0) }} {{ '{:_x}'.format(65535000) }} {{ '{:d}'.format(true) }} {{ '{}'.format(true) }} {{ '{:5}|'.format(true) }}
{% for g, l in users|groupby('age', default=0) %}{{ g }}:{{ l|map(attribute='name')|join(',') }};{% endfor %} {% for g in words|groupby(0) %}{{ g.grouper }}={{ g.list }} {% endfor %} {{ words|groupby(0, case_sensitive=true) }}
{{ multi|indent }}|{{ multi|indent(2, true) }}|{{ multi|indent('> ', blank=true) }}|{{ 'a\nb'|indent(width=1, first=true) }}|{{ ''|indent(2, true) }}|
{{ x|items|list }} {% for k, v in x|items %}{{ k }}{% endfor %} {{ zz|items|list }}
{{ nums|join(', ') }} {{ nums|join }} {{ users|join('/', attribute='name') }} {{ [1, 'a', none, 2.0]|join('-') }} {{ 'abc'|join('.') }} {{ []|join(',') }}|
{{ nums|length }} {{ s|count }} {{ u|length }} {{ x|length }} {{ zz|length }} {{ range(5)|length }} {{ 'abc'|list }} {{ x|list }} {{ (1, 2)|list }}
{{ 'ÀÉ ΑΣ ΑΣ. İ'|lower }} {{ 'straße ŉ ﬁ ǆ'|upper }} {{ "hello wOrld-foo (bar) it's {x} [y] <z> ßeta"|title }} {{ 'ΟΔΥΣΣΕΥΣ'|title }}
{{ nums|map('string')|list }} {{ words|map('upper')|join(' ') }} {{ users|map(attribute='city.n', default='?')|list }} {{ nums|map('abs')|max }} {{ [[1, 2], [3]]|map('length')|list }} {{ ['a,b', 'c']|map('replace', ',', ';')|list }} {{ [[1, 2], [3, 4]]|map(attribute=1)|list }} {{ [1.234, 5.678]|map('round', 1)|list }}
{{ nums|max }} {{ nums|min }} {{ words|max }} {{ words|min }} {{ words|min(case_sensitive=true) }} {{ users[:3]|max(attribute='age') }} {{ []|max }}|
{{ nums|reject('odd')|list }} {{ nums|select('odd')|list }} {{ nums|select('divisibleby', 5)|list }} {{ [0, 1, '', 'a', none]|select|list }} {{ [0, 1, '']|reject|list }} {{ nums|select('in', [1, 2])|list }} {{ nums|select('>', 2)|list }}
{{ users|selectattr('on')|map(attribute='name')|list }} {{ users|rejectattr('on')|map(attribute='name')|list }} {{ users|selectattr('age', 'equalto', 30)|map(attribute='name')|list }} {{ users|selectattr('age', 'defined')|list|length }} {{ users|rejectattr('age', 'undefined')|list|length }} {{ messages|rejectattr('role', 'equalto', 'system')|list|length }} {{ messages|selectattr('role', 'in', ['user', 'tool'])|map(attribute='role')|join(',') }} {{ users[:3]|selectattr('city.n', '==', 'x')|list }}
{{ 'aXbXc'|replace('X', '-') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'abc'|replace('', '.') }} {{ 5|replace(5, 'five') }} {{ 'aaa'.replace('a', 'b', 1) }} {{ 'abc'.replace('', '-', 2) }} {{ ''|replace('', 'x') }}
{{ nums|reverse|list }} {{ 'añb'|reverse }} {{ (1, 2)|reverse|list }} {{ x|reverse|list }} {{ nums|select('odd')|reverse }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 42.55|round(1, 'floor') }} {{ 42.55|round(1, 'ceil') }} {{ 42.4|round(method='ceil') }} {{ 1234|round(-2) }} {{ 1250|round(-2) }} {{ 1350|round(-2) }} {{ 1234.5|round(-2) }} {{ 5|round }} {{ 5|round(1) }} {{ 0.5|round }} {{ 1.5|round }} {{ -2.5|round }} {{ 1e20|round(2) }} {{ 42.55|round|int }} {{ 50.0|round(-2) }} {{ 150.0|round(-2) }} {{ 15.5|round(-1) }} {{ -1250|round(-2) }} {{ 7|round(-1) }}
{{ nums|sort }} {{ nums|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ words|sort(true) }} {{ users[:3]|sort(attribute='age,name')|map(attribute='name')|list }} {{ users[:3]|sort(attribute='city.n', reverse=true)|map(attribute='name')|list }} {{ [none, none]|sort }}
{{ nums|sum }} {{ users[:3]|sum(attribute='age') }} {{ [1.5, 2]|sum }} {{ nums|sum(start=100) }} {{ [[1], [2]]|sum(start=[]) }} {{ []|sum }}
{{ nums|string }} {{ 5|string ~ 'x' }} {{ html|safe }} {{ 'a b  c_d é-f'|wordcount }} {{ '  x '|trim }}| {{ 'xxaxx'|trim('x') }} {{ none|trim }} {{ 5|trim }}
{{ tools|tojson }}
{{ x|tojson }} {{ x|tojson(indent=2) }} {{ x|tojson(indent=2, ensure_ascii=True) }} {{ x|tojson(sort_keys=true) }} {{ x|tojson(separators=(',', ':')) }} {{ x|tojson(indent='\t', separators=(', ', ' = ')) }} {{ x.a|tojson(indent=0) }}
{{ 'é\u2028"\\/\b\f\n\r\t\x7f\x01😀'|tojson }} {{ 'é😀\x7f'|tojson(ensure_ascii=true) }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ [1.0, 1e100, 1e-7, -0.0, 123456789012345678]|tojson }} {{ (1, (2,))|tojson }} {{ {}|tojson(indent=2) }} {{ [[], {}]|tojson(indent=2) }} {{ none|tojson }} {{ 'inf'|float|tojson }} {{ 'nan'|float|tojson }}
{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '...', 0) }} {{ 'foobarbazqux'|truncate(8, leeway=0, end='…') }}
{{ words|unique|list }} {{ words|unique(true)|list }} {{ [1, 1.0, true, 2]|unique|list }} {{ users|unique(attribute='age')|map(attribute='name')|list }} {{ 'abca'|unique|join }}
{{ 'a b/c?d=é&~'|urlencode }} {{ {'a b': 'c/d', 'e': 1}|urlencode }} {{ [('x', 'y z')]|urlencode }} {{ 5|urlencode }}
{{ 'The quick brown-fox jumps over the lazy dog--and runs away'|wordwrap(10) }} {{ 'aaaaaaaaaaaaaaaaaaaa b'|wordwrap(6) }} {{ 'aaaaaaaaaaaa b'|wordwrap(6, false) }} {{ 'a b c d\n\ne f'|wordwrap(3, wrapstring='|') }} {{ 'well-known-thing here'|wordwrap(8, true, '/', false) }}
{{ {'class': 'a b', 'id': none, 'n': 5, 'q': '"'}|xmlattr }} {{ {'a': 1}|xmlattr(false) }}
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c'.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ '  a b  c '.rsplit(none, 1) }} {{ ' a b '.rsplit() }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a--b'.split('--') }} {{ 'a b c'.split(' ', maxsplit=1) }} {{ 'abc'.split('x') }} {{ 'aXbXc'.rsplit('X') }}
{{ (s.split(', ')|last).lstrip('W') }} {{ messages[-1].content.split('</think>')[-1].lstrip('\n') }} {{ messages[-1].content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}
{{ multi.splitlines() }} {{ multi.splitlines(true) }} {{ 'a\x0bb\x0cc\x1cd\x85e\u2028f'.splitlines() }} {{ ''.splitlines() }} {{ '\n'.splitlines() }}
{{ '  x '.strip() }}| {{ 'xxabxx'.strip('x') }} {{ 'abcba'.lstrip('ab') }} {{ 'abcba'.rstrip('ab') }} {{ '\u3000x\u00a0'.strip() }} {{ 'éxé'.strip('é') }} {{ ' x '.strip(none) }}|
{{ s.startswith('Hell') }} {{ s.startswith(('x', 'He')) }} {{ s.endswith('d') }} {{ s.endswith(('x', 'y')) }} {{ s.startswith('ell', 1) }} {{ s.startswith('lo', 3, 5) }} {{ s.endswith('lo', 0, 5) }} {{ ''.startswith('') }} {{ ''.startswith('', 1) }} {{ 'abc'.startswith('', 4) }} {{ 'abc'.startswith('', 3) }}
{{ 'hello world'.title() }} {{ "they're bill's".title() }} {{ 'hELLO'.capitalize() }} {{ 'ǆabc'.capitalize() }} {{ s.upper() }} {{ s.lower() }} {{ 'ß'.casefold() }} {{ s.swapcase() }} {{ 'ßa'.swapcase() }} {{ 'ΑΣΑ ΑΣ'.lower() }} {{ "ΑΣ'Α ΑΣ'".lower() }} {{ 'ΣΑΣ'.title() }}
{{ s.find('o') }} {{ s.find('zz') }} {{ s.rfind('o') }} {{ s.index('W') }} {{ s.count('l') }} {{ 'aaaa'.count('aa') }} {{ 'abc'.count('') }} {{ 'abc'.find('', 3) }} {{ 'abc'.find('', 4) }} {{ u.find('Ü') }} {{ u.rfind('ï') }} {{ s.find('o', 5) }} {{ s.rfind('o', 0, 5) }} {{ s.find('l', -4) }} {{ 'abc'.rfind('') }} {{ s.rindex('l') }} {{ 'aXbX'.find('X', none, 2) }}
{{ ', '.join(words) }} {{ ''.join(['a', 'b']) }} {{ 'ab'.zfill(5) }} {{ '-5'.zfill(4) }} {{ 'ab'.ljust(4, '.') }} {{ 'ab'.rjust(4) }} {{ 'ab'.center(5, '*') }} {{ 'a\tb'.expandtabs(4) }} {{ 'éa'.center(7, '→') }}
{{ '12'.isdigit() }} {{ '²'.isdigit() }} {{ '½'.isnumeric() }} {{ '٣'.isdecimal() }} {{ 'ab'.isalpha() }} {{ 'é'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' \t'.isspace() }} {{ ''.isspace() }} {{ 'AB'.isupper() }} {{ 'A1'.isupper() }} {{ 'ab'.islower() }} {{ 'Ab Cd'.istitle() }} {{ 'a_b1'.isidentifier() }} {{ '1a'.isidentifier() }} {{ 'a\n'.isprintable() }} {{ 'é'.isascii() }} {{ 'a'.isascii() }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }}
{{ nums.index(2) }} {{ nums.count(1) }} {{ (1, 2, 1).count(1) }} {{ x.copy() == x }} {{ dict.fromkeys('ab', 1) }} {{ range(5).index(3) }} {{ range(5).start }} {{ (5).bit_length() }} {{ (2.0).is_integer() }} {{ 5 .real }}
{{ dict(a=1, b='x') }} {{ dict({'a': 1}, b=2) }} {{ dict([('k', 'v')]) }} {{ dict() }} {{ namespace({'a': 1}, b=2).b }}
{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}{% set j = joiner('; ') %}{% for w in words %}{{ j() }}{{ w }}{% endfor %}
{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S %j %A %B %a %-d %-m %I %p %y %% %U %w %e|%D|%F|%T|%z|%Z|%f') }} {{ strftime_now('é') }}
{{ [x.a, x.c]|tojson }} {{ {'k': x.a, 'm': s, 'q': [s ~ '!', u]}|tojson }} {{ [s, u, html] }} {{ {s: u} }} {{ messages[2] }}
{{ nul|length }} {{ nul }} {{ [nul] }} {{ nul|tojson }} {{ nul.split('\x00') }}
{{ big }} {{ big + 1 }} {{ big * 1.0 }} {{ big == 9007199254740992.0 }} {{ big > 9007199254740992.0 }} {{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }}
{{ "a'b" }} {{ ["a'b", 'a"b', 'a\'b"c', 'a\nb', 'é\x00\u200b\ud7ff', 'a\\b'] }}
{{ loop }}|{{ caller }}|{{ varargs }}|{{ undefined_thing.__class__ if 0 }}|{{ s.__class__ }}|{{ [].append }}|{{ x.update }}|{{ x._private }}|
{{ zz is defined and zz.foo }} {{ (zz or {}).get('a', 'dflt') }} {{ zz|default({})|length }} {{ (messages|first).role }} {{ (messages|last)['content']|trim }}
{%- for m in messages %}{% if m.content is string %}{{ m.content|trim }}{% elif m.content is iterable %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% else %}<img>{% endif %}{% endfor %}{% elif m.content is none %}NONE{% endif %}
{% endfor -%}
{% for tc in messages[2].tool_calls %}{{ tc.function.name }}({% for k, v in tc.function.arguments|items %}{{ k }}={{ v|tojson }}{{ ', ' if not loop.last }}{% endfor %}){% endfor %}
{% set a = [1, 2] %}{% set a = a + [3] %}{{ a }}{% set d = {'a': 1} %}{% set d = dict(d, b=2) %}{{ d }}{{ d.items()|list }}
{% set ns = namespace(out='') %}{% for m in messages %}{% set ns.out = ns.out ~ m.role[0] %}{% endfor %}{{ ns.out }}
{% set a = s ~ u %}{% set b = a ~ '1' %}{% set c = a ~ '22' %}{% set d = b ~ s %}{% set e2 = b + 'z' %}{{ a }}|{{ b }}|{{ c }}|{{ d }}|{{ e2 }}|{{ b|length }}|{{ d|length }}|{{ a ~ (a ~ 'q') }}|{{ b + (b + u) + b }}|{{ b ~ b ~ (b ~ '!') }}|{{ a }}|{{ b }}
{% set ns = namespace(out='', all='') %}{% for w in words * 9 %}{% set ns.all = ns.all + w + u %}{% set ns.out = ns.all ~ ns.out %}{% set ns.all = ns.all ~ loop.index ~ html %}{% endfor %}{{ ns.all }}|{{ ns.out|length }}|{{ ns.all|length }}|{{ ns.out[-40:] }}
{{ (1, 2, 3) }}{{ (1) }}{{ () }}{{ 1, 2 }}{{ [1, 2,] }}{{ {'a': 1,} }}{{ {1: {2: 3}} }}
{{ n }} {{n}} {{-n}} {{ n -}} {{ {'a': {'b': n}}.a.b }} {{ {'x': 1}['x'] }} {{ [[1, 2], [3]][0][1] }} {{ ('a')['upper']() }} {{ {'a': 1}|length }}
{{ 'abc'|upper|lower|title|replace('A', 'x') }} {{ -1|abs }} {{ (-1)|abs }} {{ 2 + 3|string|length }} {{ 'a' ~ 'b'|upper }} {{ not n is odd }} {{ n is not odd }} {{ 'a' in 'abc' and 'z' not in 'abc' }} {{ 1 == 1 and 2 }} {{ n is odd and n is not even }}
{{ f|int }} {{ f|round|int }} {{ '%.1f' % f }} {{ f ~ '' }} {{ 1e5|int }} {{ 10 / 4 }} {{ 10 // 4 }} {{ (10 / 5)|int }} {{ 3.0 }} {{ 3.10 }} {{ 1e22 }} {{ 1e21 + 1 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}
{{ {'a': 1, 'b': 2, 'a': 3} }} {{ {'x': none}['x'] is none }} {{ {true: 'b', 1: 'i', 1.0: 'f'} }} {{ {(1, 2): 'tuple'}[(1, 2)] }} {{ {none: 1}[none] }}
{{ [3, 1, 2]|sort|join(',') }} {{ [{'k': 2}, {'k': 1}]|sort(attribute='k') }} {{ ['b', 'a']|sort|first }} {{ [true, false]|sort }} {{ [(2, 'a'), (1, 'b')]|sort }} {{ [[2], [1, 5], [1]]|sort }}
{{ [1, 2, 3][1] }} {{ [1, 2, 3][true] }} {{ 'abc'[1.5] }}| {{ [1]['x'] }}| {{ {'a': 1}[['x']] }}| {{ n.foo }}| {{ none.foo }}| {{ true.real }}
{% set _ = 1 %}{{ _ }}{% set été = 2 %}{{ été }}{{ class if 0 }}{% set class = 3 %}{{ class }}{% set None_ = 1 %}
{{ foo.bar if foo is defined else 'nofoo' }} {{ x.c.z if x.c is defined and x.c.z }} {{ x.q.z if x.q is defined else '-' }}
{{ "{{ not rendered }}" }} {{ '{% x %}' }} {{ '}}' }} {{ "%}" }} {{ '#}' }} {# {{ x }} {% y %} #}
{%if true%}tight{%endif%}{{'a'}}{%for i in [1]%}{{i}}{%endfor%}{%-if true-%} t {%-endif-%}
{% for k, v in {'a': 1, 'b': 2}|dictsort %}{{ k }}{{ v }}{% endfor %}{% for k, v in [('a', 1)] if v %}{{ loop.index }}{{ k }}{% endfor %}
{% for item in [1, 2, 3] %}{% if loop.first %}[{% endif %}{{ item }}{% if not loop.last %}, {% else %}]{% endif %}{% endfor %}
{% for i in range(3) %}{% set x = i %}{% if loop.index0 == 1 %}{{ x }}{% endif %}{% endfor %}{{ x.b }}
{% macro t(n, d=0) %}{{ '  ' * d }}{{ n.v }}
{% for c in n.c %}{{ t(c, d + 1) }}{% endfor %}{% endmacro %}{{ t(tree[0]) }}
{% macro render_type(p) -%}
{%- if p.type == 'object' -%}{ {%- for k, v in p.properties.items() %} {{ k }}: {{ render_type(v) }}{{ ',' if not loop.last }}{% endfor %} }
{%- elif p.enum is defined -%}{{ p.enum|map('tojson')|join(' | ') }}
{%- else -%}{{ p.type }}{% endif %}
{%- endmacro %}{{ render_type(tools[0].function.parameters) }}
{% set content = messages[1].content|trim %}{% set parts = content.split(' ') %}{{ parts|length }}{{ parts[-1] }}{{ parts|join('_') }}
{% for m in messages if m.role != 'system' %}{{ loop.index0 }}{{ m.role }}{{ ';' if loop.nextitem is defined }}{% endfor %}
{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else 'none' }}<{{ m.role }} {% endfor %}
{{ bos_token }}{{ eos_token }}{% if add_generation_prompt %}gen{% endif %}{{ pad_token }}|{{ documents|length }}{% for d in documents %}{{ d.title }}{{ d['text'] }}{% endfor %}
{{ users|map(attribute='name')|map('lower')|list|sort|join(' ') }} {{ users|map(attribute='name')|select('in', ['Bo', 'al'])|join }} {{ users|selectattr('city', 'mapping')|map(attribute='city')|map(attribute='n')|join }}
{% set ns = namespace(a=[1]) %}{% set ns.a = ns.a + [2] %}{{ ns.a|length }}{{ ns.a[-1] }}{% set ns.b = {'k': ns.a} %}{{ ns.b.k }}{{ ns.b['k'][0] }}
{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{{ system }}{{ rest|length }}
{% for x in [1] %}{% for x in [2] %}{{ x }}{% endfor %}{{ x }}{% endfor %}{{ x.b }}
{% set q %}{% for i in [1, 2] %}{{ i }}{% if i == 1 %}{% continue %}{% endif %}!{% endfor %}{% endset %}{{ q|length }}{{ q }}
{% call(a, b='dd') namespace %}{% endcall %}
{{ raise_exception('no!') if 0 else 'fine' }} {{ 'x' if true else raise_exception('bad') }}
{{ [1, 2]|map('nofilter')|list if 0 else 'lazy' }} {{ none|selectattr('x')|list }} {{ 0|map('upper')|list }} {% set lazy = 5|unique %}ok {{ none|map(attribute='x')|list }}
{% if 0 %}{{ 5|nosuchfilter }}{{ 5 is nosuchtest }}{% endif %}{{ 'soft' if 1 else 5|nosuchfilter }}
{% if nums|select('gt', 100) %}generators are true{% endif %}{% if nums|select('gt', 100)|list %}x{% else %} lists count{% endif %}
{% set g = nums|select('odd') %}{{ g|list }}{{ g|list }}{{ g|first }}|{% set g2 = nums|map('abs') %}{{ g2|first }}{{ g2|first }}{{ g2|list }}
{{ ((((((((((1)))))))))) }}{{ [[[[[[[[1]]]]]]]] }}{{ not not not not true }}{{ - - - 1 }}
{% set x = namespace(v=1) %}{% macro bump() %}{% set x.v = x.v + 1 %}{% endmacro %}{{ bump() }}{{ bump() }}{{ x.v }}
{% set t = [] %}{% for i in nums %}{% set t = t + [i] %}{% endfor %}{{ t }}
{{ messages|map(attribute='role')|unique|list }} {{ messages|groupby('role')|map('first')|list }} {{ messages|selectattr('tool_calls', 'defined')|list|length }} {{ (messages|selectattr('role', 'equalto', 'user')|list)[-1].content|length }}
{{ 'é' * 3 }}{{ 'ab' < 'abc' }}{{ 'é' > 'z' }}{{ '😀' > 'é' }}{{ ['b', 'a'] > ['a'] }}{{ 'Z' < 'a' }}{{ '' < 'a' }}
{{ s|replace('World', '') }}|{{ s|replace('l', 'L')|replace('L', 'l', 1) }}|{{ s[7:]|lower }}|{{ s.split(', ')[1]|first|lower }}
""".strip("\n")


def constructs():
    """The templates: a line that does not start or end inside a tag is one; the block between "line1" and "tabs", and
    what a newline inside a tag continues, belong together."""
    out, current = [], ""
    keep = False
    for line in CONSTRUCTS.split("\n"):
        keep = keep or line == "line1"
        current += line + "\n"
        if line == "tabs":
            keep = False
        opened = current.count("{%") - current.count("%}") + current.count("{% macro") - current.count("endmacro") \
            + current.count("{%- for m in messages") - current.count("{% endfor -%}")
        if keep or opened > 0 or current.rstrip("\n").endswith("\\"):
            continue
        out += pieces(current[:-1])
        current = ""
    return out


def pieces(source):
    """A long row of {{ }} {{ }} as several templates."""
    if "{%" in source or "{#" in source or source.count("}} {{") < 5:
        return [source]
    parts = source.split("}} {{")
    groups = [parts[i:i + 4] for i in range(0, len(parts), 4)]
    texts = ["}} {{".join(g) for g in groups]
    return [("" if i == 0 else "{{") + t + ("" if i == len(texts) - 1 else "}}") for i, t in enumerate(texts)]
