"""Uses everything that the package exports, as its users would. It is type checked, never run."""
from datetime import datetime, timezone
from typing import Iterator, List, Optional, Sequence, Tuple

import verifyd
from verifyd import (
    Attempt, Client, Delivery, Field, MemorySeen, NoAnswer, Receiver, Refused, Result, Seen, Session, Started,
    VerifydError, Waiting,
)

client = Client("https://verify.example.com", "vfy_x", timeout=5.0)


def calls() -> str:
    started: Started = client.start(
        platform="discord", platform_user_id="sailor_42", callback_url="https://h.example/v", guild_id="g",
        binding="code", idempotency_key="mine", reference="order 4711", locale="pt-BR",
        display_name="Captain Ahab", group_name="Pequod",
    )
    link: str = started.verify_url + started.session + started.id + started.expires_at.isoformat()
    session: Session = client.read(started.session)
    waited: Session = client.wait(started.id, 10.0)
    canceled: Session = client.cancel(started.id)
    confirmed: Session = client.confirm(started.id, platform_user_id="sailor_42", code="k7m-2qx")
    resent: Session = client.resend(started.id)
    page: Tuple[Sequence[Session], Optional[str]] = client.list(
        platform_user_id="u", state="failed", delivery="unknown", since=datetime.now(timezone.utc),
        until="2026-11-21T00:00:00Z", limit=10, cursor="c", q="sailor", platform="p", group="g", key="Bot",
        mode="live", network="default", reason="declined", binding="code", from_="2026-11-20", to="2026-11-21",
    )
    every: Iterator[Session] = client.pages(state=waited.state)
    told = tell(session) + tell(canceled) + tell(confirmed) + tell(resent)
    return link + told + str(page[1]) + "".join(s.id for s in every)


def tell(session: Session) -> str:
    words: List[str] = [
        session.id, session.platform, session.platform_user_id, session.guild_id, session.state, session.reason,
        session.rule, str(session.test), session.binding, session.reached, session.step,
        session.reference, session.locale, session.display_name, session.group_name,
    ]
    verified: Optional[bool] = session.verified
    times: List[Optional[datetime]] = [session.created_at, session.expires_at, session.completed_at]
    delivery: Delivery = session.delivery
    for a in delivery.attempts:
        attempt: Attempt = a
        words += [attempt.verdict, attempt.error_class, str(attempt.number + attempt.status), delivery.state]
        times += [attempt.claimed_at, attempt.ended_at]
    waiting: Optional[Waiting] = delivery.waiting
    if waiting:
        words += [waiting.error_class, waiting.detail, str(waiting.tries)]
        times += [waiting.tried_at, waiting.next_attempt_at]
    return "".join(words) + str(verified) + "".join(at.isoformat() for at in times if at)


def judge(error: VerifydError) -> str:
    if isinstance(error, Refused):
        tries: Optional[int] = error.tries_left
        fields: Tuple[Field, ...] = error.fields
        text = f"{error.status:d} {error.code} {error.detail} {error.request_id} {error.retry_after:f}"
        return text + str(tries) + "".join(f.name + f.code + f.detail for f in fields)
    return str(NoAnswer("away")) + verifyd.__version__


class OwnSeen:
    def begin(self, id: str) -> str:
        return "new" if id else "busy"

    def end(self, id: str, handled: bool) -> None:
        """Nothing."""


def handle(result: Result) -> None:
    print(result.platform_user_id + result.guild_id + result.id + result.session + result.sent_at.isoformat())
    print(result.verified and not result.test)


memory: Seen = MemorySeen(1_000, 10)
receiver = Receiver(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], handle, seen=memory, tests=True, now=lambda: 0.0)
own = Receiver(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], handle, seen=OwnSeen())
answer: Tuple[int, str] = receiver.receive("POST", {"webhook-id": "cb_a"}, b"{}")
applications = [receiver.wsgi, receiver.asgi]

# What is wrong is found: such a comment on a line that is right is one too many, and fails the check.
client.start(platform="p", platform_user_id="u")  # type: ignore[call-arg]
client.start(platform="p", platform_user_id=7, callback_url="https://h.example/v")  # type: ignore[arg-type]
client.confirm("a", code="k7m-2qx")  # type: ignore[call-arg]
client.confirm("a", "sailor_42", "k7m-2qx")  # type: ignore[misc]
client.list(status="failed")  # type: ignore[call-arg]
client.read(7)  # type: ignore[arg-type]
Client("https://verify.example.com")  # type: ignore[call-arg]
Receiver(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], handle, seen=object())  # type: ignore[arg-type]
client.read("a").completed_at.isoformat()  # type: ignore[union-attr]
outcome: bool = client.read("a").verified  # type: ignore[assignment]
client.read("a").state = "verified"  # type: ignore[misc]
