// Uses everything that the package declares, as its users would. It is compiled, never run.
import {
  Client, MemorySeen, NoAnswer, Receiver, Refused, version, type Attempt, type Binding, type CallOptions,
  type ClientOptions, type Confirmation, type Filter, type ReceiverOptions, type Result, type Seen,
  type Session, type Started, type State, type Verification, type Waiting,
} from "verifyd";

const clientOptions: ClientOptions = { fetch: globalThis.fetch, timeout: 5_000 };
const client = new Client("https://verify.example.com", "vfy_x", clientOptions);
const call: CallOptions = { signal: new AbortController().signal };
const verification: Verification = {
  platform: "discord", platformUserId: "sailor_42", guildId: "g", callbackUrl: "https://h.example/v",
  binding: "code", idempotencyKey: "mine", reference: "order 4711", locale: "pt-BR",
  displayName: "Captain Ahab", groupName: "Pequod",
};
const confirmation: Confirmation = { platformUserId: "sailor_42", code: "k7m-2qx" };

export async function calls(): Promise<string> {
  const started: Started = await client.start(verification, call);
  const link: string = started.verifyUrl + started.session + started.id + started.expiresAt.toISOString();
  await client.start({ platform: "p", platformUserId: "u", callbackUrl: "https://h.example/v" });
  const session: Session = await client.read(started.session, call);
  const waited: Session = await client.wait(started.id);
  const canceled: Session = await client.cancel(started.id, call);
  const confirmed: Session = await client.confirm(started.id, confirmation, call);
  await client.confirm(started.session, { platformUserId: "u", code: "k7m2qx" });
  const resent: Session = await client.resend(started.id, call);
  const filter: Filter = {
    platformUserId: "u", state: "failed", delivery: "unknown", since: new Date(), until: "2026-11-21T00:00:00Z",
    limit: 10, cursor: "c", q: "sailor", platform: "p", group: "g", key: "Bot", mode: "live", network: "default",
    reason: "declined", binding: "code", from: "2026-11-20", to: "2026-11-21",
  };
  const page = await client.list(filter, call);
  const next: string | undefined = page.next;
  for await (const each of client.pages({ state: waited.state }, call)) page.sessions.push(each);
  return [link, next, tell(session), canceled.id, confirmed.id, resent.id].join();
}

function tell(session: Session): string {
  const state: State = session.state;
  const verified: boolean | null = session.verified;
  const words: string[] = [
    session.id, session.platform, session.platformUserId, session.guildId, session.reason, session.rule,
    session.reference, session.locale, session.displayName, session.groupName,
    String(session.test), String(verified), state, session.delivery.state,
  ];
  const binding: Binding = session.binding;
  if (session.reached !== "") { // what was reached is a binding
    const reached: Binding = session.reached;
    words.push(binding, reached);
  }
  switch (session.step) { // all steps are known
    case "": case "identity": case "confirm": words.push(session.step); break;
    default: { const none: never = session.step; return none; }
  }
  for (const at of [session.createdAt, session.expiresAt, session.completedAt]) words.push(at?.toISOString() ?? "");
  const attempts: Attempt[] = session.delivery.attempts;
  for (const a of attempts) {
    words.push(a.verdict, a.class, a.number.toFixed(), a.status.toFixed());
    words.push(a.claimedAt?.toISOString() ?? "", a.endedAt?.toISOString() ?? "");
  }
  const waiting: Waiting | null = session.delivery.waiting;
  if (waiting) {
    words.push(waiting.class, waiting.detail, waiting.tries.toFixed());
    words.push(waiting.triedAt?.toISOString() ?? "", waiting.nextAttemptAt?.toISOString() ?? "");
  }
  switch (state) { // all states are known
    case "pending": case "verified": case "failed": case "canceled": case "expired": return words.join();
    default: { const none: never = state; return none; }
  }
}

export function judge(error: unknown): string {
  if (error instanceof Refused) {
    const [field] = error.fields;
    const tries: number | undefined = error.triesLeft;
    const numbers = `${error.status} ${error.retryAfter.toFixed()} ${tries?.toFixed() ?? "none"}`;
    const text = `${numbers} ${error.code} ${error.detail} ${error.requestId}`;
    return field ? text + field.name + field.code + field.detail : text;
  }
  return error instanceof NoAnswer ? error.message : version;
}

class OwnSeen implements Seen {
  async begin(id: string): Promise<"new" | "busy" | "handled"> { return id ? "new" : "busy"; }
  async end(id: string, handled: boolean): Promise<void> { void [id, handled]; }
}

const memory = new MemorySeen(1_000, 10);
const known: "new" | "busy" | "handled" = memory.begin("id");
memory.end("id", known === "new");
const options: ReceiverOptions = { seen: memory, tests: true, now: () => Date.now() };
const receiver = new Receiver(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], async (result: Result) => {
  const words = result.platformUserId + result.guildId + result.id + result.session + result.sentAt.toISOString();
  return result.verified && !result.test ? words : undefined;
}, options);
new Receiver([], () => undefined, { seen: new OwnSeen() });
export const answer: Promise<Response> = receiver.fetch(new Request("https://h.example/v"));
export const done: Promise<void> = receiver.node({}, {});

// What is wrong is found: a line after such a comment that is right fails the compilation.
// @ts-expect-error the callback URL is missing
void client.start({ platform: "p", platformUserId: "u" });
// @ts-expect-error the member's name in the HTTP interface
void client.start({ platform: "p", platform_user_id: "u", callbackUrl: "https://h.example/v" });
// @ts-expect-error no such binding
void client.start({ ...verification, binding: "name" });
// @ts-expect-error who gave the code is missing
void client.confirm("a", { code: "k7m-2qx" });
// @ts-expect-error no such state
void client.list({ state: "done" });
// @ts-expect-error no such delivery state
void client.list({ delivery: "sent" });
// @ts-expect-error a session is named by text
void client.read(7);
// @ts-expect-error a client has a key
new Client("https://verify.example.com");
// @ts-expect-error secrets are a list
new Receiver("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", () => undefined);
// @ts-expect-error a memory has both methods
new Receiver([], () => undefined, { seen: { begin: () => "new" as const } });
export const wrong = async (refused: Refused): Promise<void> => {
  // @ts-expect-error a refusal that says nothing of tries
  const tries: number = refused.triesLeft;
  const session = await client.read("a");
  // @ts-expect-error no outcome yet is null
  const verified: boolean = session.verified;
  // @ts-expect-error nothing may have been reached
  const reached: Binding = session.reached;
  // @ts-expect-error an instant that there may not be
  session.completedAt.toISOString();
  const started = await client.start(verification);
  // @ts-expect-error what was started does not change
  started.session = String(verified) + reached + tries;
};
