"""Chat templates as transformers renders them: jinja2 with transformers' settings, from our own few lines.

The settings are those of transformers.utils.chat_template_utils (5.24), with which this was compared on every template of
tests/data/templates. Only jinja2 is needed.
"""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils

NOW = 1767312000  # 2026-01-02 00:00:00 UTC; the tests set TZ=UTC


class Generation(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %}: marks what the assistant says; renders as its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("body_of"), [], [], body).set_lineno(line)

    def body_of(self, caller):
        return caller()


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            check_name(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def check_name(name):
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"underscore-prefixed attribute {name!r} on a namespace")


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(format):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(format)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, dict=Dict(), namespace=Namespace)
    return env


ENV = environment()


def variables(case):
    """What apply_chat_template passes: tools and documents are None when absent."""
    v = {"messages": case.get("messages", []), "tools": case.get("tools"), "documents": case.get("documents"),
         "add_generation_prompt": case.get("add_generation_prompt", False)}
    for token in ("bos_token", "eos_token"):
        if case.get(token) is not None:
            v[token] = case[token]
    v.update(case.get("kwargs") or {})
    return v


def render(source, case, env=ENV):
    """(text, None) or (None, message)."""
    try:
        text = env.from_string(source).render(**variables(case))
        text.encode("utf-8")  # a lone surrogate is an error too
        return text, None
    except RecursionError:
        return None, "RecursionError"
    except Exception as e:  # any error of the template is an error of the render
        return None, f"{type(e).__name__}: {e}"
