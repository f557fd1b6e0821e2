"""A stand-in for Hugging Face's hub: its API of models and files, over folders.

The answers are those that huggingface_hub reads: the list of a model's files with their sizes, the
tree of a revision, and files with their ETag, in parts if a Range asks for one.
"""

import hashlib
import json
import re
import urllib.parse

from tests import local_server

_API = re.compile(r"/api/models/(\w[^/]*/[^/]+)(?:/(revision|tree)/([^/]+))?")
_FILE = re.compile(r"/(\w[^/]*/[^/]+)/resolve/([^/]+)/(.+)")


def serving(models):
    """Serves {name: folder}, see `local_server.running`.

    `requests` lists the method, the path and the Range of each request. `refused` is
    {name: (status, error code)}; `cut_at` is a list of the bytes of weights at which the next
    answers break off.
    """

    class Handler(local_server.Handler):
        def do_GET(self):
            path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
            asked = self.headers.get("Range", "")
            self.server.requests.append(f"{self.command} {path} {asked}".strip())
            api, file = _API.fullmatch(path), _FILE.fullmatch(path)
            name = (api or file)[1] if api or file else None
            is_refused = name in self.server.refused
            status, code = self.server.refused.get(name, (404, "RepoNotFound"))
            if name in models and api and (not is_refused or code == "GatedRepo"):
                self.send(json.dumps(_api_answer(name, models[name], api[2])).encode())
            elif name in models and file and not is_refused:
                if (models[name] / file[3]).is_file():
                    self._send_file(models[name] / file[3], asked)
                else:
                    self.send(b"{}", 404, X_Error_Code="EntryNotFound")
            else:
                self.send(b"{}", status, X_Error_Code=code)

        do_HEAD = do_GET

        def _send_file(self, path, asked):
            content = path.read_bytes()
            start = int(re.match(r"bytes=(\d+)-", asked)[1]) if asked else 0
            headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "Accept-Ranges": "bytes"}
            headers["X-Repo-Commit"] = commit_of(path.parent)
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            length, end = len(content) - start, len(content)
            if self.server.cut_at and self.command == "GET" and path.stem.endswith("model"):
                end, self.close_connection = self.server.cut_at.pop(0), True
            self.send(content[start:end], 206 if start else 200, length, **headers)

    return local_server.running(Handler, refused={}, cut_at=[])


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
