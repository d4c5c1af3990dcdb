"""Starts identity verifications with verifyd, reads them, and receives their results."""

from __future__ import annotations

import asyncio
import base64
import collections
import dataclasses
import hashlib
import hmac
import http.client
import ipaddress
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from datetime import datetime, timezone
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Protocol, Sequence, Union

__version__ = "@VERSION@"
__all__ = [
    "Attempt", "Client", "Delivery", "Field", "MemorySeen", "NoAnswer", "Receiver", "Refused", "Result", "Seen",
    "Session", "Started", "VerifydError", "Waiting",
]

_MAX_ANSWER = 1 << 20
_MAX_CALLBACK = 64 << 10
_START_TRIES = 6
_START_PAUSE = 0.25
_MAX_START_PAUSE = 5.0
_TOLERANCE = 5 * 60


class VerifydError(Exception):
    """What a Client raises."""


@dataclasses.dataclass(frozen=True)
class Field:
    """A member of a request that is not right."""

    name: str
    code: str
    detail: str


class Refused(VerifydError):
    """The service answered, and refused."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float) -> None:
        self.status = status
        #: a code of the service's interface, such as "rate_limited"; empty where the answer had none
        self.code = str(problem.get("code") or "")
        self.detail = str(problem.get("detail") or "")
        self.fields = tuple(
            Field(str(f.get("field", "")), str(f.get("code", "")), str(f.get("detail", "")))
            for f in problem.get("errors") or () if isinstance(f, dict)
        )
        self.request_id = str(problem.get("request_id") or "")
        #: what Retry-After asked for, in seconds; 0 where it did not
        self.retry_after = retry_after
        tries = problem.get("tries_left")
        #: how many more codes are accepted, for "wrong_code"; 0: the session has failed. Otherwise None
        self.tries_left: Optional[int] = tries if isinstance(tries, int) else None
        text = f"verifyd answered {status}" + (f" {self.code}" if self.code else "")
        text += f": {self.detail}" if self.detail else ""
        super().__init__(text + (f" (request {self.request_id})" if self.request_id else ""))


class NoAnswer(VerifydError):
    """No answer came, or none that was one. What was asked for may have been done."""

    def __init__(self, why: str) -> None:
        super().__init__(f"verifyd gave no answer: {why}")


@dataclasses.dataclass(frozen=True)
class Started:
    """A session that has begun."""

    #: where to send the user
    verify_url: str = dataclasses.field(repr=False)
    #: the session's token: who holds it may sign in, so it belongs into no log
    session: str = dataclasses.field(repr=False)
    expires_at: datetime

    @property
    def id(self) -> str:
        """The session's id, under which it may be logged."""
        return base64.b32encode(hashlib.sha256(self.session.encode()).digest()[:20]).decode().lower()


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt at the callback."""

    number: int
    verdict: str  #: empty while it is in progress
    error_class: str  #: what went wrong; empty if nothing did
    status: int  #: the receiver's HTTP status; 0 if none was read
    claimed_at: Optional[datetime]
    ended_at: Optional[datetime]


@dataclasses.dataclass(frozen=True)
class Waiting:
    """Why a callback that is due was not sent yet."""

    tries: int  #: at the next attempt; 0 if the last one was sent and is followed by another
    error_class: str  #: what went wrong last, in one word
    detail: str  #: in a sentence; may be empty
    tried_at: Optional[datetime]
    next_attempt_at: Optional[datetime]


@dataclasses.dataclass(frozen=True)
class Delivery:
    """Where the callback stands."""

    state: str  #: none, due, claimed, delivered, rejected, unknown or undeliverable
    attempts: Sequence[Attempt]
    waiting: Optional[Waiting] = None  #: None: it is not due, was not tried yet, or that is not known


@dataclasses.dataclass(frozen=True)
class Session:
    """Everything that can be read about a session."""

    id: str
    test: bool  #: started with a test key: it says nothing about a person
    platform: str
    platform_user_id: str
    guild_id: str
    binding: str  #: what it asks to be proven: link, code or account
    reached: str  #: what was proven; empty if nothing was
    state: str  #: pending, verified, failed, canceled or expired
    #: what a pending session waits for: identity after the platform account was proven, confirm until the
    #: user's code is given; empty: the sign-in, or nothing more
    step: str
    verified: Optional[bool]  #: None unless the state is verified or failed
    reason: str
    rule: str
    created_at: Optional[datetime]
    expires_at: Optional[datetime]
    completed_at: Optional[datetime]
    delivery: Delivery
    reference: str = ""  #: as given, as are the next three
    locale: str = ""
    display_name: str = ""
    group_name: str = ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follows none: the API key would go along."""


class Client:
    """Calls the service with one API key. It may be used by several threads at once.

    Its methods raise Refused and NoAnswer; a repeat of all but resend is harmless.
    """

    def __init__(self, base_url: str, api_key: str, *, timeout: float = 45.0) -> None:
        self._base = _parse_base(base_url)
        if not isinstance(api_key, str) or not re.fullmatch(r"[\x21-\x7e]+", api_key):
            raise ValueError(
                "the API key is empty or holds spaces; it is one word that begins with vfy_ or vfytest_"
            )
        self._key = api_key
        self._timeout = timeout
        self._open = urllib.request.build_opener(_NoRedirect).open
        self._pause: Callable[[float], None] = time.sleep

    def __repr__(self) -> str:
        return f"Client({self._base!r})"

    def start(
        self, *, platform: str, platform_user_id: str, callback_url: str, guild_id: str = "",
        binding: Optional[str] = None, idempotency_key: Optional[str] = None, reference: str = "",
        locale: Optional[str] = None, display_name: str = "", group_name: str = "",
    ) -> Started:
        """Starts a session. It tries up to six times, under one idempotency key.

        The ids are your own words, and come back exactly as given. callback_url is the absolute https URL of the
        receiver. An idempotency_key of your own makes a repeat of yours harmless for ten minutes.

        binding is what is to be proven before the session is verified: "link", that whoever has the link
        controls an identity; "code", and that the account's owner confirms on the platform, with a code;
        "account", and that the same browser signed in as that platform account; None: what the account has
        set.

        reference is your own name for the session, such as an order number: up to 128 bytes, which no user
        sees. locale is the user's language as a BCP 47 tag, such as "pt-BR"; None: the browser says it.

        display_name and group_name are how people know the user and the group on the platform; the page shows
        them above the ids.
        """
        body = {"platform": platform, "platform_user_id": platform_user_id, "callback_url": callback_url}
        if guild_id:
            body["guild_id"] = guild_id
        if binding is not None:
            body["binding"] = binding
        if reference:
            body["reference"] = reference
        if locale is not None:
            body["locale"] = locale
        if display_name:
            body["display_name"] = display_name
        if group_name:
            body["group_name"] = group_name
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        wait = _START_PAUSE
        for left in range(_START_TRIES - 1, -1, -1):
            try:
                answer = self._call("POST", "/verify/init", headers, body)
                if not answer.get("verify_url") or not answer.get("session"):
                    raise NoAnswer("the answer has no verify_url or no session")
                expires = _instant(answer.get("expires_at")) or datetime.now(timezone.utc)
                return Started(answer["verify_url"], answer["session"], expires)
            except VerifydError as error:
                if left == 0 or not _may_pass(error):
                    raise
                asked = error.retry_after if isinstance(error, Refused) else 0.0
            self._pause(max(wait, min(asked, _MAX_START_PAUSE)))
            wait *= 2
        raise AssertionError("not reached")

    def read(self, session: str) -> Session:
        """Reads a session by its token or its id."""
        return _session(self._call("GET", _path(session)))

    def wait(self, session: str, timeout: Optional[float] = None) -> Session:
        """Reads a session until it is no longer pending, or for so many seconds."""
        late = None if timeout is None else time.monotonic() + timeout
        while True:
            following = time.monotonic() + 1.0
            held = 30 if late is None else max(0, min(30, int(late - time.monotonic())))
            read = _session(self._call("GET", f"{_path(session)}?wait={held}" if held else _path(session)))
            now = time.monotonic()
            if read.state != "pending" or late is not None and now >= late:
                return read
            self._pause(max(0.0, (following if late is None else min(following, late)) - now))

    def list(
        self, *, platform_user_id: Optional[str] = None, state: Optional[str] = None,
        delivery: Optional[str] = None, since: Union[datetime, str, None] = None,
        until: Union[datetime, str, None] = None, limit: Optional[int] = None, cursor: Optional[str] = None,
        q: Optional[str] = None, platform: Optional[str] = None, group: Optional[str] = None,
        key: Optional[str] = None, mode: Optional[str] = None, network: Optional[str] = None,
        reason: Optional[str] = None, binding: Optional[str] = None, from_: Optional[str] = None,
        to: Optional[str] = None,
    ) -> tuple[Sequence[Session], Optional[str]]:
        """Lists sessions, newest first: one page, and the cursor of the next or None.

        q is what you know of a session: its id, its token, a webhook-id, or how its user, group,
        reference or key's name begins.
        from_ and to are days in UTC, as in 2026-11-21.
        """
        asked = {
            "platform_user_id": platform_user_id, "state": state, "delivery": delivery, "since": _text(since),
            "until": _text(until), "limit": limit, "cursor": cursor, "q": q, "platform": platform,
            "group": group, "key": key, "mode": mode, "network": network, "reason": reason, "binding": binding,
            "from": from_, "to": to,
        }
        query = urllib.parse.urlencode({name: value for name, value in asked.items() if value is not None})
        page = self._call("GET", "/sessions" + (f"?{query}" if query else ""))
        if not isinstance(page.get("sessions"), list):
            raise NoAnswer("the answer has no sessions")
        return tuple(_session(s) for s in page["sessions"]), page.get("next") or None

    def pages(self, **asked: Any) -> Iterator[Session]:
        """Goes through all pages of a list."""
        while True:
            found, asked["cursor"] = self.list(**asked)
            yield from found
            if asked["cursor"] is None:
                return

    def cancel(self, session: str) -> Session:
        """Cancels a pending session; no callback is sent."""
        return _session(self._call("POST", f"{_path(session)}/cancel"))

    def confirm(self, session: str, *, platform_user_id: str, code: str) -> Session:
        """Completes a session whose binding is "code" as verified, with the code that its user gave.

        platform_user_id is what the platform says of who is writing, never what the user writes; code is as
        the user wrote it: in any case, with or without spaces and hyphens. Five codes are accepted; another one
        is a Refused with the code "wrong_code" and tries_left. It is not repeated by itself; a repeat is
        harmless: the same code from the same user is one try.
        """
        body = {"platform_user_id": platform_user_id, "code": code}
        return _session(self._call("POST", f"{_path(session)}/confirm", body=body))

    def resend(self, session: str) -> Session:
        """Has the callback sent once more, after its delivery has ended. A repeat sends another."""
        return _session(self._call("POST", f"{_path(session)}/resend"))

    def _call(
        self, method: str, path: str, headers: Optional[Mapping[str, str]] = None, body: Any = None
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data=data, method=method)
        # unredirected: urllib keeps them out of what a proxy is told
        request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        request.add_header("Accept", "application/json, application/problem+json")
        request.add_header("User-Agent", f"verifyd-python/{__version__}")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            with self._open(request, timeout=self._timeout) as response:
                answer = _object(response.read(_MAX_ANSWER))
                status = response.status
        except urllib.error.HTTPError as error:
            with error:
                problem = _object(error.read(_MAX_ANSWER)) or {}
                raise Refused(error.code, problem, _seconds(error.headers.get("Retry-After"))) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise NoAnswer(str(reason) or type(reason).__name__) from error
        if answer is None:
            raise NoAnswer(f"status {status}, but not the JSON that was expected")
        return answer


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of a session, and what its callback says about itself."""

    platform_user_id: str
    guild_id: str
    verified: bool
    id: str  #: webhook-id: two results with the same one are the same result
    session: str  #: the session's id; empty in a callback that belongs to none
    sent_at: datetime
    test: bool  #: it says nothing about a person


class Seen(Protocol):
    """Remembers which callbacks were handled. Several processes behind one address share one of their own."""

    def begin(self, id: str) -> str:
        """Takes an id: "new", "busy" or "handled". Only with "new" is the result handled, and end called."""

    def end(self, id: str, handled: bool) -> None:
        """Gives an id back: handled for good, or to be begun again."""


class MemorySeen:
    """Remembers in one process, bounded by time and number."""

    def __init__(self, seconds: float = 72 * 3600, most: int = 100_000) -> None:
        self._seconds, self._most = seconds, most
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._handled: collections.OrderedDict[str, float] = collections.OrderedDict()

    def begin(self, id: str) -> str:
        with self._lock:
            self._forget()
            if id in self._handled:
                return "handled"
            if id in self._busy:
                return "busy"
            self._busy.add(id)
            return "new"

    def end(self, id: str, handled: bool) -> None:
        with self._lock:
            self._busy.discard(id)
            if handled:
                self._handled[id] = time.monotonic()
                self._forget()

    def _forget(self) -> None:
        while self._handled:
            at = next(iter(self._handled.values()))
            if len(self._handled) <= self._most and time.monotonic() - at < self._seconds:
                return
            self._handled.popitem(last=False)


class Receiver:
    """What is behind a callback_url: checks signature and time, and hands over each result once.

    secrets are those that callbacks may be signed with, one or, while they rotate, both; public keys are not taken,
    since the standard library does not check ed25519. handle takes a Result; where it raises, the callback is
    answered with 500 and handed over again when it is sent again. With tests, results of test keys are handed over
    too.
    """

    def __init__(
        self, secrets: Sequence[str], handle: Callable[[Result], Any], *, seen: Optional[Seen] = None,
        tests: bool = False, now: Callable[[], float] = time.time,
    ) -> None:
        if isinstance(secrets, str) or not secrets:
            raise ValueError("no signing secret; give a list of the account's, which begin with whsec_")
        if not callable(handle):
            raise ValueError("no handler; give the function that takes results")
        self._keys = [_secret(s, i + 1, len(secrets)) for i, s in enumerate(secrets)]
        self._handle, self._tests, self._now = handle, tests, now
        self._seen: Seen = seen if seen is not None else MemorySeen()

    def __repr__(self) -> str:
        return f"Receiver({len(self._keys)} secrets)"

    def receive(self, method: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """Takes one request, for frameworks that are neither: returns status and text. Header names are in lower case."""
        if method != "POST":
            return 405, "callbacks come by POST"
        if len(body) > _MAX_CALLBACK:
            return 413, f"a callback has less than {_MAX_CALLBACK} bytes"
        id, signatures = headers.get("webhook-id", ""), headers.get("webhook-signature", "")
        seconds = headers.get("webhook-timestamp", "")
        if not id or not signatures or not re.fullmatch(r"-?[0-9]{1,15}", seconds):
            return 401, "the headers of a signed callback are missing or malformed"
        if abs(self._now() - int(seconds)) > _TOLERANCE:
            return 401, "the timestamp is more than 5 minutes from this receiver's clock"
        if not self._signed(f"{id}.{seconds}.".encode() + body, signatures):
            return 401, "no signature matches: another secret, or a changed body"
        doc = _object(body) or {}
        user, guild, verified = doc.get("platform_user_id"), doc.get("guild_id"), doc.get("verified")
        if not isinstance(user, str) or not isinstance(guild, str) or not isinstance(verified, bool):
            return 422, "the body is not a verification result"
        test = id.startswith("cbtest_") or headers.get("verifyd-test") == "true"
        if test and not self._tests:
            return 200, "a test, and rightly signed; this receiver takes no notice of tests"
        kind, _, session = id.partition("_")
        return self._take(Result(
            user, guild, verified, id, session if kind in ("cb", "cbtest") else "",
            datetime.fromtimestamp(int(seconds), timezone.utc), test,
        ))

    def wsgi(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Is a WSGI application (PEP 3333)."""
        headers = {
            name[len("HTTP_"):].replace("_", "-").lower(): value
            for name, value in environ.items() if name.startswith("HTTP_")
        }
        try:
            length = int(environ.get("CONTENT_LENGTH") or 0)
            body = environ["wsgi.input"].read(min(length, _MAX_CALLBACK + 1)) if length > 0 else b""
        except (OSError, ValueError):
            return _respond(start_response, 400, "the body could not be read")
        return _respond(start_response, *self.receive(environ["REQUEST_METHOD"], headers, body))

    async def asgi(self, scope: Mapping[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        """Is an ASGI application. handle runs in a thread."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        body, more = b"", True
        while more and len(body) <= _MAX_CALLBACK:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            body, more = body + event.get("body", b""), event.get("more_body", False)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        loop = asyncio.get_running_loop()
        status, words = await loop.run_in_executor(None, self.receive, scope["method"], headers, body)
        await send({
            "type": "http.response.start", "status": status,
            "headers": [(n.lower().encode(), v.encode()) for n, v in _headers(status)],
        })
        await send({"type": "http.response.body", "body": f"{words}\n".encode()})

    def _signed(self, message: bytes, signatures: str) -> bool:
        matches = False
        for signature in signatures.split(" "):
            kind, _, text = signature.partition(",")
            if kind != "v1":
                continue
            for key in self._keys:
                right = base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()).decode()
                matches = hmac.compare_digest(right.encode(), text.encode()) or matches
        return matches

    def _take(self, result: Result) -> tuple[int, str]:
        try:
            known = self._seen.begin(result.id)
        except Exception:
            return 503, "this receiver cannot tell whether it has handled this already"
        if known == "handled":
            return 200, "handled already"
        if known != "new":
            return 503, "being handled at this moment"
        handled = False
        try:
            self._handle(result)
            handled = True
        except Exception:  # why is the integrator's own business
            pass
        finally:
            try:
                self._seen.end(result.id, handled)
            except Exception:
                if handled:
                    return 503, "handled, but this receiver could not remember it"
        return (200, "handled") if handled else (500, "not handled")


def _parse_base(text: str) -> str:
    right = "give the address of the service such as https://verify.example.com"
    try:
        url = urllib.parse.urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError:
        host = None
    if not host or url.scheme not in ("http", "https"):
        raise ValueError(f"the base URL is not an absolute URL; {right}")
    if url.username is not None or url.query or url.fragment:
        raise ValueError(f"the base URL holds a user, a query or a fragment; {right}")
    if url.scheme != "https" and not _is_loopback(host):
        raise ValueError(
            "the base URL is not https, and the API key would be readable on its way; http is for localhost only; "
            + right
        )
    return text.rstrip("/")


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _path(session: str) -> str:
    if not session:
        raise ValueError("no session; give its token or its id")
    return "/sessions/" + urllib.parse.quote(session, safe="")


def _may_pass(error: VerifydError) -> bool:
    if isinstance(error, Refused):
        return error.status in (502, 503, 504) or error.code == "idempotency_in_progress"
    return isinstance(error, NoAnswer)


def _session(doc: Mapping[str, Any]) -> Session:
    if not isinstance(doc, dict) or not doc.get("id") or not doc.get("state"):
        raise NoAnswer("the answer has no id or no state")
    delivery = doc.get("delivery") or {}
    return Session(
        id=doc["id"], test=bool(doc.get("test")), platform=doc.get("platform") or "",
        platform_user_id=doc.get("platform_user_id") or "", guild_id=doc.get("guild_id") or "",
        binding=doc.get("binding") or "", reached=doc.get("reached") or "", state=doc["state"],
        step=doc.get("step") or "", verified=doc.get("verified"), reason=doc.get("reason") or "",
        rule=doc.get("rule") or "", created_at=_instant(doc.get("created_at")),
        expires_at=_instant(doc.get("expires_at")), completed_at=_instant(doc.get("completed_at")),
        delivery=Delivery(delivery.get("state") or "none", tuple(
            Attempt(
                a.get("number") or 0, a.get("verdict") or "", a.get("class") or "", a.get("status") or 0,
                _instant(a.get("claimed_at")), _instant(a.get("ended_at")),
            )
            for a in delivery.get("attempts") or ()
        ), _waiting(delivery.get("waiting"))),
        reference=doc.get("reference") or "", locale=doc.get("locale") or "",
        display_name=doc.get("display_name") or "", group_name=doc.get("group_name") or "",
    )


def _waiting(doc: Optional[Mapping[str, Any]]) -> Optional[Waiting]:
    if not doc:
        return None
    return Waiting(
        doc.get("tries") or 0, doc.get("class") or "", doc.get("detail") or "",
        _instant(doc.get("tried_at")), _instant(doc.get("next_attempt_at")),
    )


def _instant(text: Optional[str]) -> Optional[datetime]:
    if not text:
        return None
    try:
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.replace("Z", "+00:00")))
    except ValueError:
        raise NoAnswer("the answer holds an instant that is none") from None


def _text(at: Union[datetime, str, None]) -> Optional[str]:
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if isinstance(at, datetime) else at


def _seconds(text: Optional[str]) -> float:
    return float(text) if text and re.fullmatch(r"[0-9]{1,9}", text) else 0.0


def _object(data: bytes) -> Optional[dict[str, Any]]:
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _secret(text: str, place: int, of: int) -> bytes:
    if isinstance(text, str) and text.startswith("whpk_"):
        raise ValueError("Python's standard library does not check ed25519; give the signing secret, whsec_")
    try:
        key = base64.b64decode(text[len("whsec_"):], validate=True) if text.startswith("whsec_") else b""
    except (ValueError, AttributeError):
        key = b""
    if len(key) < 24:
        raise ValueError(f"signing secret {place} of {of} is not whsec_ and base64 of at least 24 bytes; copy it from "
                         "the dashboard")
    return key


def _headers(status: int) -> list[tuple[str, str]]:
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]
    if status == 405:
        headers.append(("Allow", "POST"))
    if status == 503:
        headers.append(("Retry-After", "1"))
    return headers


def _respond(start_response: Callable[..., Any], status: int, words: str) -> Iterable[bytes]:
    body = f"{words}\n".encode()
    reason = http.client.responses.get(status, "")
    start_response(f"{status} {reason}", _headers(status) + [("Content-Length", str(len(body)))])
    return [body]


async def _lifespan(receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    while True:
        event = await receive()
        await send({"type": event["type"] + ".complete"})
        if event["type"] == "lifespan.shutdown":
            return
