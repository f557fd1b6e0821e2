"""A stand-in for Hugging Face's hub: its API of models and files, over folders.

The answers are those that huggingface_hub reads: the list of a model's files with their sizes, the
tree of a revision, and files with their ETag, in parts if a Range asks for one.
"""

import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

_API = re.compile(r"/api/models/(\w[^/]*/[^/]+)(?:/(revision|tree)/([^/]+))?")
_FILE = re.compile(r"/(\w[^/]*/[^/]+)/resolve/([^/]+)/(.+)")


@contextlib.contextmanager
def serving(models):
    """Serves {name: folder} and gives the server, with `url` and these attributes.

    `requests` lists the method, the path and the Range of each request. `refused` is
    {name: (status, error code)}; `cut_at` is a list of the bytes of model.safetensors at which
    the next answers break off.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self._answer(with_body=False)

        def do_GET(self):
            self._answer(with_body=True)

        def _answer(self, with_body):
            path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
            asked = self.headers.get("Range", "")
            self.server.requests.append(f"{self.command} {path} {asked}".strip())
            api, file = _API.fullmatch(path), _FILE.fullmatch(path)
            name = (api or file)[1] if api or file else None
            status, code = self.server.refused.get(name, (404, "RepoNotFound"))
            of_files_alone = code == "GatedRepo"
            if name in models and not (name in self.server.refused and not of_files_alone):
                if api:
                    return self._send(json.dumps(_api_answer(name, models[name], api[2])).encode())
                found = models[name] / file[3]
                if of_files_alone and name in self.server.refused:
                    pass
                elif found.is_file():
                    return self._send_file(found, asked, with_body)
                else:
                    status, code = 404, "EntryNotFound"
            return self._send(b"{}", status, {"X-Error-Code": code})

        def _send_file(self, path, asked, with_body):
            content = path.read_bytes()
            start = int(re.match(r"bytes=(\d+)-", asked)[1]) if asked else 0
            headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
            headers |= {"X-Repo-Commit": commit_of(path.parent), "Accept-Ranges": "bytes"}
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            if self.server.cut_at and with_body and path.name == "model.safetensors":
                length = len(content) - start
                content = content[: self.server.cut_at.pop(0)]
                self._send(content[start:], 206 if start else 200, headers, length=length)
                self.close_connection = True
                return
            self._send(content[start:], 206 if start else 200, headers, with_body)

        def _send(self, content, status=200, headers=(), with_body=True, length=None):
            self.send_response(status)
            for name, value in dict(headers).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content) if length is None else length))
            self.end_headers()
            if with_body and self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.requests, server.refused, server.cut_at = [], {}, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=[0.02])
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def commit_of(folder):
    """Returns the commit of a model, 40 hexadecimal digits, which depend on its files' names."""
    names = sorted(path.name for path in folder.iterdir())
    return hashlib.sha1("\n".join(names).encode()).hexdigest()


def _api_answer(name, folder, kind):
    files = [(path.name, path.stat().st_size) for path in sorted(folder.iterdir())]
    if kind == "tree":
        return [{"type": "file", "path": n, "size": size, "oid": n} for n, size in files]
    return {
        "id": name, "modelId": name, "sha": commit_of(folder), "private": False, "gated": False,
        "disabled": False, "downloads": 1, "likes": 1, "tags": ["license:apache-2.0"],
        "cardData": {"license": "apache-2.0"},
        "siblings": [{"rfilename": n, "size": size, "blobId": n} for n, size in files],
    }  # fmt: skip
