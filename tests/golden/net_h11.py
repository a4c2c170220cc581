#!/usr/bin/env python3
"""Writes tests/data/net/h11.txt: what h11 makes of some hundred requests, as the authority for net/http1.

Needs h11 (pip install h11); the version used is in the file's first line. Each case is a block of lines:

    case NAME
    raw HEX            the bytes
    verdict accept|reject|incomplete
    method NAME        the rest only for accept
    path HEX           percent-decoded by urllib
    query HEX          absent if there is no '?'
    http10 0|1
    keep_alive 0|1
    expect 0|1         waits for 100 Continue, and there is a body to wait for
    field HEX HEX      lower-case name, value; in order
    body HEX
    rest N             bytes behind the message
"""
import pathlib, random, urllib.parse
import h11
from h11._connection import _keep_alive

CASES = []


def case(name, raw):
    CASES.append((name, raw if isinstance(raw, bytes) else raw.encode("latin-1")))


def judge(raw):
    conn = h11.Connection(h11.SERVER)
    request, body = None, b""
    try:
        conn.receive_data(raw)
        while True:
            event = conn.next_event()
            if type(event) is h11.Request:
                framing = {n: v for n, v in event.headers if n in (b"content-length", b"transfer-encoding")}
                has_body = framing.get(b"content-length", b"0").strip(b"0") or b"transfer-encoding" in framing
                request, expect = event, conn.they_are_waiting_for_100_continue and bool(has_body)
            elif type(event) is h11.Data:
                body += bytes(event.data)
            elif type(event) is h11.EndOfMessage:
                break
            else:
                return ["verdict incomplete"]
    except h11.RemoteProtocolError:
        return ["verdict reject"]
    target = bytes(request.target)
    if not target.startswith(b"/") and b"://" in target:
        target = target.split(b"://", 1)[1]
        cut = min((target.find(c) for c in (b"/", b"?") if c in target), default=len(target))
        target = target[cut:]
        target = target if target.startswith(b"/") else b"/" + target
    path, mark, query = target.partition(b"?")
    out = ["verdict accept", "method " + request.method.decode(), "path " + urllib.parse.unquote_to_bytes(path).hex()]
    out += ["query " + query.hex()] if mark else []
    out += [f"http10 {int(request.http_version == b'1.0')}", f"keep_alive {int(_keep_alive(request))}",
            f"expect {int(expect)}"]
    out += [f"field {n.hex()} {v.hex()}" for n, v in request.headers]
    out += ["body " + body.hex(), f"rest {len(conn.trailing_data[0])}"]
    return out


def crafted():
    host = "Host: a.example:80\r\n"
    for m in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "get", "G-E!T", "GE T", "",
              "G\tT", "G(T", "G\xe9T"):
        case(f"method {m!a}", f"{m} / HTTP/1.1\r\n{host}\r\n")
    for t in ("/", "/v1/models", "/a?b=c&d", "/?", "/a??b", "/a%20b", "/a%2Fb", "/%e4%b8%80", "/a%2", "/a%zz", "/%00", "/%0a",
              "/a%7fb", "/../a", "/a/..", "/a/.", "/a/%2e%2e/b", "/a/%2E./b", "/a%2f..%2fb", "/...", "/.a", "/a..b", "//a",
              "/a//b", "/;a=b,c", "/a:@$!*'()+", "/a\"b", "/a<b>", "/a|b", "/a\\b", "/a`b", "/{a}", "/^", "/[a]", "/a#b",
              "/a?b#c", "/a?[b]|{c}\"\\", "/a\x01b", "/a\x7fb", "/\xe9", "/a?\xe9", "*", "a", "", "?a", "http://h/",
              "http://h", "http://h?x=1", "http://h:80/p?q", "HTTPS://h.example/p%20q", "http://[::1]:8/a", "http:///a",
              "http://u@h/a", "http://h/../a", "http:/h/a", "ftp://h/a", "http://h#f", "http://h\\a/b", "http://a b/", "h:80",
              "/a" * 400):
        for m in ("GET", "OPTIONS") if t == "*" else ("GET",):
            case(f"target {m} {t[:24]!a} {len(t)}", f"{m} {t} HTTP/1.1\r\n{host}\r\n")
    for v in ("HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "HTTP/3", "HTTP/11", "HTTP/1.10", "HTTP/1.", "http/1.1",
              "HTTP/1,1", "HTTP/1.1 ", " HTTP/1.1", "HTTPS/1.1", "", "HTTP/1.1x", "HTTP/1.\xb9"):
        case(f"version {v!a}", f"GET / {v}\r\n{host}\r\n")
    case("http/0.9", "GET /\r\n\r\n")
    case("preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    case("TLS hello", bytes.fromhex("16030100a5010000a10303") + bytes(32))
    for pad in ("\r\n", "\n", "\r\n\r\n", " ", "\r"):
        case(f"before the request {pad!a}", f"{pad}GET / HTTP/1.1\r\n{host}\r\n")
    for eol in ("\n", "\r", "\r\r\n", "\n\r", "\x0b", "\x85", "\0\r\n"):
        case(f"end of request line {eol!a}", f"GET / HTTP/1.1{eol}{host}\r\n")
        case(f"end of field {eol!a}", f"GET / HTTP/1.1\r\nHost: a{eol}X: y\r\n\r\n")
        case(f"end of head {eol!a}", f"GET / HTTP/1.1\r\n{host}{eol}")
    for f in ("X: y", "X:y", "X:\ty\t ", "X:", "X: ", "X:  y  z ", "X : y", "X\t: y", " X: y", "\tX: y", ": y", "X", "X y: z", "X(): y",
              "X\0: y", "X: a\0b", "X: a\x01b", "X: a\x7fb", "X: a\x0bb", "X: a\xe9b", "X\xe9: y", "X: a\tb", "X:: y", "!#$%&'*+-.^_`|~: y",
              "X: y\r\n z", "X: y\r\n\tz", "X: y\r\n \r\nZ: w", "X: a\rb", "X: a\nb", "X: y\r\nX: z", "\"X\": y", "X: " + "a" * 300,
              "Cookie: a=b; c=d", "X: \x0c y", "X: \xa0y"):
        case(f"field {f[:20]!a} {len(f)}", f"GET / HTTP/1.1\r\n{host}{f}\r\n\r\n")
    for n in (62, 63, 64, 100, 300):
        case(f"{n} more fields", f"GET / HTTP/1.1\r\n{host}" + "".join(f"X{i}: y\r\n" for i in range(n)) + "\r\n")
    for h in ("", "Host:\r\n", "Host: a\r\nHost: a\r\n", "Host: a\r\nHost: b\r\n", "HOST: A.Example\r\n", "Host: a b\r\n", "Host: a/b\r\n",
              "Host: u@a\r\n", "Host: [::1]:80\r\n", "Host: [::1\r\n", "Host: a:b\r\n", "Host: a:80:80\r\n", "Host: a,b\r\n", "Host: a?b\r\n",
              "Host: a\\b\r\n", "Host: -\r\n", "Host: 1.2.3.4:65535\r\n", "Host: a:\r\n", "Host: a_b\r\n", "Host: %41\r\n",
              "Host: a#b\r\n", "Host : a\r\n"):
        for v in ("1.1", "1.0"):
            case(f"host {h!a} {v}", f"GET / HTTP/{v}\r\n{h}\r\n")
    case("absolute target without Host", "GET http://h/ HTTP/1.1\r\n\r\n")
    case("absolute target, other Host", f"GET http://h/x HTTP/1.1\r\n{host}\r\n")
    for c in ("close", "Close", "keep-alive", "keep-alive, close", "x,close", "closed", "x-close", "", ",,close,", "close\r\nConnection: keep-alive",
              "upgrade\r\nUpgrade: websocket"):
        for v in ("1.1", "1.0"):
            case(f"connection {c!a} {v}", f"GET / HTTP/{v}\r\n{host}Connection: {c}\r\n\r\n")
    for e in ("100-continue", "100-Continue", "100-continue, x", "200-ok", "", "100-continue\r\nExpect: 100-continue"):
        for body in ("Content-Length: 3\r\n", "", "Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n"):
            tail = {"Content-Length: 3\r\n": "abc", "Transfer-Encoding: chunked\r\n": "0\r\n\r\n"}.get(body, "")
            case(f"expect {e!a} {body!a}", f"POST / HTTP/1.1\r\n{host}Expect: {e}\r\n{body}\r\n{tail}")
    case("expect in 1.0", f"POST / HTTP/1.0\r\n{host}Expect: 100-continue\r\nContent-Length: 1\r\n\r\na")

    for l in ("3", "0", "03", "+3", "-3", "3 ", " 3", "3,3", "3, 3", "3;3", "0x3", "3.0", "3e0", "three", "", "99999999999999999999", "1" * 30,
              "18446744073709551619", "18446744073709551616", "9223372036854775807", "3\r\nContent-Length: 3", "3\r\nContent-Length: 4", "\xb3", "3\t",
              "3 3", "0\r\nContent-Length: 3", "2", "4"):
        case(f"content-length {l!a}", f"POST / HTTP/1.1\r\n{host}Content-Length: {l}\r\n\r\nabc")
    case("pipelined", f"POST / HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n{host}\r\n")
    case("GET with body", f"GET / HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\nabc")
    for t in ("chunked", "Chunked", " chunked ", "identity", "gzip, chunked", "chunked, chunked", "chunked, identity", "xchunked", "chunked;a=b", "",
              "\x0bchunked", "chunked\x00", "chunked\r\nTransfer-Encoding: chunked", "identity\r\nTransfer-Encoding: chunked",
              "chunked\r\nTransfer-Encoding: identity", "chunked\r\nContent-Length: 3", "\r\n chunked", "\"chunked\"", "chunked,", ",chunked"):
        for v in ("1.1", "1.0"):
            case(f"transfer-encoding {t!a} {v}", f"POST / HTTP/{v}\r\n{host}Transfer-Encoding: {t}\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    case("CL before TE", f"POST / HTTP/1.1\r\n{host}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    case("TE name with space", f"POST / HTTP/1.1\r\n{host}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n")
    case("TE name with underscore", f"POST / HTTP/1.1\r\n{host}Transfer_Encoding: chunked\r\n\r\n0\r\n\r\n")
    for c in ("0\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n", "A\r\n0123456789\r\n0\r\n\r\n", "a\r\n0123456789\r\n0\r\n\r\n", "003\r\nabc\r\n000\r\n\r\n",
              "3;x=y\r\nabc\r\n0\r\n\r\n", "3;x=\"a;b\"\r\nabc\r\n0;z\r\n\r\n", "3 ;x\r\nabc\r\n0\r\n\r\n", "3 \r\nabc\r\n0\r\n\r\n",
              " 3\r\nabc\r\n0\r\n\r\n", "3;\r\nabc\r\n0\r\n\r\n", "3;a\nb\r\nabc\r\n0\r\n\r\n", "3;a\rb\r\nabc\r\n0\r\n\r\n", "3\nabc\r\n0\r\n\r\n",
              "3\r\nabc\n0\r\n\r\n", "3\r\nabc\r0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "3\r\nab\r\n0\r\n\r\n", "3\r\nabc0\r\n\r\n", "3\r\nabcXX0\r\n\r\n",
              "+3\r\nabc\r\n0\r\n\r\n", "-3\r\nabc\r\n0\r\n\r\n", "0x3\r\nabc\r\n0\r\n\r\n", "g\r\n", "\r\nabc", "3,\r\nabc\r\n0\r\n\r\n",
              "8000000000000000\r\nabc", "ffffffffffffffff\r\nabc", "10000000000000000\r\nabc", "fffffffffffffffff\r\n", "100000000000000000003\r\nabc",
              "00000000000000000003\r\nabc\r\n0\r\n\r\n", "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\nGET", "0\r\nX: y\r\n\r\n", "0\r\nX: y\r\nZ: w\r\n\r\n",
              "0\r\nX : y\r\n\r\n", "0\r\nX\r\n\r\n", "0\r\n y\r\n\r\n", "0\r\nX: y\r\n z\r\n\r\n", "0\r\nX: y\n\r\n", "0\r\nX: a\0b\r\n\r\n",
              "0\r\nContent-Length: 3\r\n\r\n", "0\r\nTransfer-Encoding: chunked\r\n\r\n", "0\r\nHost: a\r\n\r\n", "0\r\n" + "X: y\r\n" * 64 + "\r\n",
              "0\r\n" + "X: y\r\n" * 65 + "\r\n", "0\r\nX: " + "a" * 300 + "\r\n\r\n", "0\r\n\n", "0\r\n\r", "0\n\n", "3;" + "x" * 300 + "\r\nabc\r\n0\r\n\r\n",
              "3;\x80\r\nabc\r\n0\r\n\r\n", "3;\x01\r\nabc\r\n0\r\n\r\n", "3\x00\r\nabc\r\n0\r\n\r\n"):
        case(f"chunks {c[:30]!a} {len(c)}", f"POST / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n{c}")


def mutated(n, seed):
    """Small changes to good requests, where two readers are likely to differ."""
    rng = random.Random(seed)
    good = [b"GET /v1/models?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
            b"POST /v1/chat HTTP/1.1\r\nHost: a:8000\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\nhello",
            b"POST /a%20b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;e=f\r\nabc\r\n0\r\nT: u\r\n\r\n",
            b"PUT http://h/p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"]
    odd = [b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b";", b",", b"\0", b"\x0b", b"\x7f", b"\x80", b"0", b"1", b"a", b"%", b"/", b"?", b"#", b"\r\n\r\n"]
    for i in range(n):
        raw = rng.choice(good)
        for _ in range(rng.choice((1, 1, 2))):
            at, what = rng.randrange(len(raw)), rng.randrange(4)
            if what == 0:
                raw = raw[:at] + raw[at + 1:]
            elif what == 1:
                raw = raw[:at] + rng.choice(odd) + raw[at:]
            elif what == 2:
                raw = raw[:at] + rng.choice(odd) + raw[at + 1:]
            else:
                lines = raw.split(b"\r\n")
                j = rng.randrange(len(lines))
                raw = b"\r\n".join(lines[:j] + [lines[j]] + lines[j:])
        case(f"mutated {i}", raw)


crafted()
mutated(600, 1)
lines = [f"# h11 {h11.__version__}, {len(CASES)} cases, written by tests/golden/net_h11.py"]
for name, raw in CASES:
    lines += ["case " + name, "raw " + raw.hex()] + judge(raw)
out = pathlib.Path(__file__).resolve().parent.parent / "data" / "net" / "h11.txt"
out.write_text("\n".join(lines) + "\n")
print(lines[0], {v: sum(l == "verdict " + v for l in lines) for v in ("accept", "reject", "incomplete")}, out.stat().st_size, "bytes")
