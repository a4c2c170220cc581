"""A small model hub on loopback: model info with blobs, resolve with redirects and ranges, tokens, and faults on demand."""

import hashlib
import http.server
import json
import re
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """repos: {"org/name": {path: bytes}}. Files of large_bytes and more are "LFS": their SHA-256 is given, and they come from
    another host name (a redirect). faults: {path: [fault, ...]}, one used up a request: "cut" (half of what was asked for), a
    status, "endless" (an error without an end), "wrong" (other bytes), "long", "no-range"."""

    def __init__(self, repos, token=None, large_bytes=1000):
        self.repos, self.token, self.large_bytes = repos, token, large_bytes
        self.faults, self.log, self.stored_tokens = {}, [], []
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(self)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        # curl takes "localhost" for another host than "127.0.0.1": what it sends there is seen
        self.store = f"http://localhost:{self.server.server_port}/store"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def sent(self, handler, status, body=b"", **headers):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def info(self, repo):
        def entry(path, data):
            one = {"rfilename": path, "size": len(data), "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
            if len(data) >= self.large_bytes:
                one["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            return one

        return {"id": repo, "sha": COMMIT, "private": False, "downloads": 0, "likes": 0, "tags": [],
                "siblings": [entry(path, data) for path, data in self.repos[repo].items()]}

    def answer(self, handler):
        path = urllib.parse.unquote(handler.path.partition("?")[0])
        auth = handler.headers.get("Authorization")
        self.log.append((path, handler.headers.get("Range")))
        if path.startswith("/store/"):
            self.stored_tokens.append(auth)
            return self.file(handler, path.removeprefix("/store"))
        if self.token and auth != f"Bearer {self.token}":
            return self.sent(handler, 401, b'{"error": "Invalid username or password."}')
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            repo, revision = found[1], found[2] or "main"
            if (fault := self.next_fault(repo)) is not None:
                if fault == "endless":
                    return self.endless(handler)
                return self.sent(handler, fault) if isinstance(fault, int) else self.sent(handler, 200, fault)
            if repo not in self.repos or revision not in ("main", "v1", COMMIT):
                return self.sent(handler, 404, b"{}")
            return self.sent(handler, 200, json.dumps(self.info(repo)).encode(), Content_Type="application/json")
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            repo, revision, name = found.groups()
            data = self.repos.get(repo, {}).get(name)
            if data is None or revision not in ("main", COMMIT):
                return self.sent(handler, 404)
            if len(data) >= self.large_bytes:
                return self.sent(handler, 302, Location=f"{self.store}/{repo}/resolve/{revision}/{urllib.parse.quote(name)}")
            return self.file(handler, path)
        return self.sent(handler, 404)

    def endless(self, handler):
        """An error whose body has no end: until the client goes, or 64 MiB."""
        handler.close_connection = True
        handler.send_response(404)
        handler.end_headers()
        try:
            for _ in range(64):
                handler.wfile.write(bytes(1 << 20))
        except OSError:
            pass

    def next_fault(self, path):
        faults = self.faults.get(path)
        return faults.pop(0) if faults else None

    def file(self, handler, path):
        repo, _, rest = path[1:].partition("/resolve/")
        name = rest.partition("/")[2]
        data, fault = self.repos[repo][name], self.next_fault(name)
        if isinstance(fault, int):
            return self.sent(handler, fault)
        if fault == "wrong":
            data = bytes(b ^ 1 for b in data)
        if fault == "long":
            data += b"more"
        asked = handler.headers.get("Range")
        headers, status = {}, 200
        if asked and fault != "no-range":
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
            first, last = int(found[1]), min(int(found[2] or len(data)), len(data) - 1)
            if first >= len(data):
                return self.sent(handler, 416, Content_Range=f"bytes */{len(data)}")
            headers = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
            data, status = data[first : last + 1], 206
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[: len(data) // 2] if fault == "cut" else data)
        handler.wfile.flush()
        if fault == "cut":
            handler.close_connection = True
