"""Writes tests/data/templates/golden.jsonl: what jinja2 with transformers' settings gives for every template in
tests/data/templates (own ones, in the manner of the public families) with every conversation below, and for the small
templates of template_constructs.py. test_chat_template.c compares with it, without Python.

    python3 tests/golden/template_golden.py
"""
import json
import os
import pathlib

os.environ["TZ"] = "UTC"
import template_constructs  # noqa: E402
import template_oracle  # noqa: E402

DATA = pathlib.Path(__file__).parent.parent / "data" / "templates"

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Get the weather \u2013 \u00abnow\u00bb",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "City name"}, "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "days": {"type": ["integer", "null"]},
            "opts": {"type": "object", "properties": {"deep": {"type": "array", "items": {"type": "string"}}}}},
            "required": ["city"]}, "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "now", "description": "Time\nof day", "parameters": {"type": "object", "properties": {}}}}]


def call(arguments, id="call12345"):
    return {"id": id, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


CONVERSATIONS = {
    "user": dict(messages=[turn("user", "Hi there!")], add_generation_prompt=True),
    "system": dict(messages=[turn("system", "Be  brief.\n"), turn("user", " Hello ")], add_generation_prompt=True),
    "turns": dict(messages=[turn("user", "A"), turn("assistant", "B"), turn("user", "C"), turn("assistant", "D"), turn("user", "E")],
                  add_generation_prompt=True),
    "system_turns": dict(messages=[turn("system", "S"), turn("user", "A"), turn("assistant", "B"), turn("user", "C")]),
    "ends_with_assistant": dict(messages=[turn("user", "A"), turn("assistant", "B")]),
    "tools": dict(messages=[turn("system", "S"), turn("user", "Weather?")], tools=TOOLS, add_generation_prompt=True),
    "tool_round": dict(messages=[
        turn("user", "Weather?"), turn("assistant", "", tool_calls=[call({"city": "K\u00f6ln", "days": 2})]),
        turn("tool", "{\"t\": 3}", name="get_weather", tool_call_id="call12345"), turn("assistant", "It is 3."),
        turn("user", "Thanks <|im_end|> </s>")], tools=TOOLS, add_generation_prompt=True),
    "tool_strings": dict(messages=[
        turn("user", "Weather?"), turn("assistant", None, tool_calls=[call("{\"city\": \"X\"}"), call("{}", "call54321")]),
        turn("tool", "3", name="get_weather", tool_call_id="call12345"), turn("tool", "4", name="get_weather", tool_call_id="call54321")],
        tools=TOOLS, add_generation_prompt=True),
    "tool_no_content": dict(messages=[
        turn("user", "Weather?"), {"role": "assistant", "tool_calls": [call({"city": "X", "list": [1, 2.5, None, True, "\u00e9"]})]},
        turn("tool", "3", tool_call_id="call12345")], add_generation_prompt=True),
    "thinking_off": dict(messages=[turn("user", "Q"), turn("assistant", "<think>\nreason\n</think>\n\nAnswer"), turn("user", "Q2"),
                                   turn("assistant", "A2", reasoning_content="r2")],
                         add_generation_prompt=True, kwargs={"enable_thinking": False, "thinking_budget": 0}),
    "thinking_on": dict(messages=[turn("user", "Q"), turn("assistant", "A", thinking="r", reasoning_content="r"), turn("user", "Q2")],
                        tools=TOOLS, add_generation_prompt=True,
                        kwargs={"enable_thinking": True, "reasoning_effort": "high", "thinking": True, "thinking_budget": 600}),
    "parts": dict(messages=[turn("user", [{"type": "text", "text": "Look "}, {"type": "image"}, {"type": "text", "text": " there"}]),
                            turn("assistant", [{"type": "text", "text": "ok"}]), turn("user", [{"type": "text", "text": "more"}])],
                  add_generation_prompt=True),
    "unicode": dict(messages=[turn("system", "\u00dcn\u00ef\u2028"), turn("user", "\u65e5\u672c\u8a9e \U0001f600 \"q\" 'a' <b>&"),
                              turn("assistant", "\u043e\u0442\u0432\u0435\u0442"), turn("user", "")], add_generation_prompt=True),
    "empty": dict(messages=[], add_generation_prompt=True),
    "developer": dict(messages=[turn("developer", "D"), turn("user", "U")],
                      documents=[{"title": "T", "text": "Doc text", "content": "c", "doc_id": "1"}], add_generation_prompt=True,
                      kwargs={"date_string": "1 Jan 2026", "citation_mode": "accurate", "builtin_tools": ["code_interpreter", "brave_search"],
                              "model_identity": "M", "controls": {"length": "short"}}),
    "unknown_role": dict(messages=[turn("weird", "x"), turn("user", "U", name="bob")], add_generation_prompt=True),
}
for conversation in CONVERSATIONS.values():
    conversation.update(bos_token="<s>", eos_token="</s>")
CONVERSATIONS["constructs"] = template_constructs.DATA


def main():
    files = {p.stem: p.read_text("utf-8") for p in sorted(DATA.glob("*.jinja"))}
    lines = [{"now": template_oracle.NOW, "conversations": CONVERSATIONS}]
    failed = 0

    def add(case, source, name):
        nonlocal failed
        text, _ = template_oracle.render(source, json.loads(json.dumps(CONVERSATIONS[name])))
        failed += text is None
        lines.append({**case, "with": name, **({"fails": True} if text is None else {"text": text})})

    for stem, source in files.items():
        for name in CONVERSATIONS:
            if name != "constructs":
                add({"file": stem}, source, name)
    for source in template_constructs.constructs():
        add({"source": source}, source, "constructs")
    with open(DATA / "golden.jsonl", "w", encoding="utf-8") as f:
        for line in lines:
            f.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{len(files)} files, {len(template_constructs.constructs())} small templates, {len(lines) - 1} renderings, {failed} of them fail")


if __name__ == "__main__":
    main()
