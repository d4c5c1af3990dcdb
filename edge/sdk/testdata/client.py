"""Does what standard input says, a JSON list of calls, and prints what became of each."""
import dataclasses
import json
import sys

import verifyd

order = json.load(sys.stdin)
client = verifyd.Client(order["base"], order["key"])


def instant(at):
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z" if at else None


def shown(s):
    return {
        "id": s.id, "state": s.state, "verified": s.verified, "test": s.test, "user": s.platform_user_id,
        "delivery": s.delivery.state, "attempts": [a.status for a in s.delivery.attempts],
        "completed": instant(s.completed_at),
    }


def start(a):
    s = client.start(
        platform=a["platform"], platform_user_id=a["user"], guild_id=a.get("guild", ""), callback_url=a["callback"],
        binding=a.get("binding"), idempotency_key=a.get("key"),
        reference=a.get("reference") or "", locale=a.get("locale"),
        display_name=a.get("called") or "", group_name=a.get("group") or "",
    )
    return {"url": s.verify_url, "session": s.session, "id": s.id, "expires": instant(s.expires_at), "shown": repr(s)}


def list_(a):
    found, following = client.list(
        platform_user_id=a.get("user"), state=a.get("state"), delivery=a.get("delivery"), since=a.get("since"),
        until=a.get("until"), limit=a.get("limit"), cursor=a.get("cursor"), q=a.get("q"),
        platform=a.get("platform"), group=a.get("group"), key=a.get("key"), mode=a.get("mode"),
        network=a.get("network"), reason=a.get("reason"), binding=a.get("binding"), from_=a.get("from"),
        to=a.get("to"),
    )
    return {"ids": [s.id for s in found], "next": following}


does = {
    "start": start, "list": list_, "pages": lambda a: {"ids": [s.id for s in client.pages()]},
    "whole": lambda a: dataclasses.asdict(client.read(a["session"])),
    "read": lambda a: shown(client.read(a["session"])), "wait": lambda a: shown(client.wait(a["session"])),
    "cancel": lambda a: shown(client.cancel(a["session"])), "resend": lambda a: shown(client.resend(a["session"])),
    "confirm": lambda a: shown(client.confirm(a["session"], platform_user_id=a["user"], code=a["code"])),
}
ends = []
for call in order["calls"]:
    try:
        ends.append({"ok": does[call["call"]](call)})
    except verifyd.Refused as e:
        ends.append({"refused": {
            "status": e.status, "code": e.code, "fields": [f.name for f in e.fields], "retry": int(e.retry_after),
            "tries": e.tries_left,
        }})
    except verifyd.NoAnswer:
        ends.append({"noAnswer": True})
print(json.dumps({"ends": ends, "client": repr(client)}, default=instant))
