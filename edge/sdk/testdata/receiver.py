"""A receiver on a free port, by the interface that the first argument names; it prints the port, then each result."""
import asyncio
import http.server
import json
import sys
import wsgiref.simple_server

import verifyd

failed = []


def handle(r):
    if r.platform_user_id == "fails once" and not failed:
        failed.append(r)
        raise RuntimeError("the database is away")
    print(json.dumps({
        "user": r.platform_user_id, "guild": r.guild_id, "verified": r.verified, "id": r.id, "session": r.session,
        "test": r.test, "at": r.sent_at.timestamp(),
    }), flush=True)


receiver = verifyd.Receiver(sys.argv[2:], handle)


class Asgi(http.server.BaseHTTPRequestHandler):
    """Calls an ASGI application as a server does."""

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        events = [{"type": "http.request", "body": body[:10], "more_body": True},
                  {"type": "http.request", "body": body[10:], "more_body": False}]

        async def receive():
            return events.pop(0)

        async def send(event):
            if event["type"] == "http.response.start":
                self.send_response(event["status"])
                for name, value in event["headers"]:
                    self.send_header(name.decode(), value.decode())
                self.end_headers()
            else:
                self.wfile.write(event["body"])

        headers = [(n.lower().encode(), v.encode("latin-1")) for n, v in self.headers.items()]
        scope = {"type": "http", "method": self.command, "path": self.path, "headers": headers}
        asyncio.run(receiver.asgi(scope, receive, send))

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


if sys.argv[1] == "wsgi":
    server = wsgiref.simple_server.make_server("127.0.0.1", 0, receiver.wsgi, handler_class=Quiet)
else:
    server = http.server.HTTPServer(("127.0.0.1", 0), Asgi)
print(server.server_port, flush=True)
server.serve_forever()
