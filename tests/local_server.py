"""A server of HTTP on this machine, for as long as a test needs it."""

import contextlib
import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers by `send`, and keeps its log to itself."""

    protocol_version = "HTTP/1.1"

    def send(self, content, status=200, length=None, **headers):
        """Sends bytes; `length` is what the answer says of itself, where it breaks off."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def running(handler, **attributes):
    """Gives a server of a class of handlers, with `url`, a list `requests`, and more attributes."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        vars(server).update({"daemon_threads": True, "requests": [], "url": url} | attributes)
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
