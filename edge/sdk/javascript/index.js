// verifyd: starts identity verifications, reads them, and receives their results.

/** The version of this package. */
export const version = "@VERSION@";

const node = "node:crypto"; // where Node 18 has WebCrypto; a bundler is not to look for it
const webcrypto = globalThis.crypto ?? (await import(node)).webcrypto;

const maxAnswerBytes = 1 << 20;
const maxCallbackBytes = 64 << 10;
const startTries = 6;
const startPause = 250;
const maxStartPause = 5000;
const defaultTimeout = 45_000;
const toleranceSeconds = 5 * 60;

/** The service answered, and refused. */
export class Refused extends Error {
  constructor(status, problem, retryAfter) {
    const code = typeof problem.code === "string" ? problem.code : "";
    const request = problem.request_id ? ` (request ${problem.request_id})` : "";
    super(`verifyd answered ${status}${code && ` ${code}`}${problem.detail ? `: ${problem.detail}` : ""}${request}`);
    this.name = "Refused";
    this.status = status;
    this.code = code;
    this.detail = problem.detail ?? "";
    this.fields = (Array.isArray(problem.errors) ? problem.errors : []).map((e) => ({
      name: e?.field ?? "", code: e?.code ?? "", detail: e?.detail ?? "",
    }));
    this.requestId = problem.request_id ?? "";
    this.retryAfter = retryAfter;
    this.triesLeft = Number.isInteger(problem.tries_left) ? problem.tries_left : undefined;
  }
}

/** No answer came, or none that was one. What was asked for may have been done. */
export class NoAnswer extends Error {
  constructor(why, cause) {
    super(`verifyd gave no answer: ${why}`, cause === undefined ? undefined : { cause });
    this.name = "NoAnswer";
  }
}

/** Calls the service with one API key. */
export class Client {
  #base;
  #key;
  #fetch;
  #timeout;
  #pause;

  constructor(baseUrl, apiKey, options = {}) {
    this.#base = parseBase(baseUrl);
    if (typeof apiKey !== "string" || !/^[\x21-\x7e]+$/.test(apiKey)) {
      throw new TypeError("the API key is empty or holds spaces; it is one word that begins with vfy_ or vfytest_");
    }
    this.#key = apiKey;
    this.#fetch = options.fetch ?? globalThis.fetch;
    this.#timeout = options.timeout ?? defaultTimeout;
    this.#pause = options.pause ?? ((ms) => new Promise((done) => setTimeout(done, ms)));
  }

  /** Starts a session. */
  async start(verification, options = {}) {
    const headers = { "Idempotency-Key": verification.idempotencyKey ?? webcrypto.randomUUID() };
    const body = JSON.stringify({
      platform: verification.platform,
      platform_user_id: verification.platformUserId,
      guild_id: verification.guildId,
      callback_url: verification.callbackUrl,
      binding: verification.binding,
      reference: verification.reference,
      locale: verification.locale,
      display_name: verification.displayName,
      group_name: verification.groupName,
    });
    for (let left = startTries - 1, wait = startPause; ; left--, wait *= 2) {
      try {
        const answer = await this.#call("POST", "/verify/init", { headers, body, ...options });
        if (!answer.verify_url || !answer.session) {
          throw new NoAnswer("the answer has no verify_url or no session");
        }
        return new Started(answer, await idOf(answer.session));
      } catch (error) {
        if (left === 0 || !mayPass(error) || options.signal?.aborted) throw error;
        await this.#pause(Math.max(wait, Math.min((error.retryAfter ?? 0) * 1000, maxStartPause)));
      }
    }
  }

  /** Reads a session by its token or its id. */
  async read(session, options) {
    return sessionOf(await this.#call("GET", pathOf(session), options));
  }

  /** Reads a session until it is no longer pending, or the signal ends it. */
  async wait(session, options = {}) {
    for (;;) {
      const next = Date.now() + 1000;
      const read = sessionOf(await this.#call("GET", `${pathOf(session)}?wait=30`, options));
      if (read.state !== "pending") return read;
      await this.#pause(Math.max(0, next - Date.now()));
      options.signal?.throwIfAborted();
    }
  }

  /** Lists sessions, newest first: one page, and the cursor of the next. */
  async list(filter = {}, options) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({
      platform_user_id: filter.platformUserId, state: filter.state, delivery: filter.delivery,
      since: instant(filter.since), until: instant(filter.until), limit: filter.limit, cursor: filter.cursor,
      q: filter.q, platform: filter.platform, group: filter.group, key: filter.key, mode: filter.mode,
      network: filter.network, reason: filter.reason, binding: filter.binding, from: filter.from, to: filter.to,
    })) {
      if (value !== undefined) query.set(name, String(value));
    }
    const text = query.toString();
    const page = await this.#call("GET", `/sessions${text && `?${text}`}`, options);
    if (!Array.isArray(page.sessions)) throw new NoAnswer("the answer has no sessions");
    return { sessions: page.sessions.map(sessionOf), next: page.next || undefined };
  }

  /** Goes through all pages of a list. */
  async *pages(filter = {}, options) {
    for (let cursor = filter.cursor; ; ) {
      const page = await this.list({ ...filter, cursor }, options);
      yield* page.sessions;
      if ((cursor = page.next) === undefined) return;
    }
  }

  /** Takes a pending session back. */
  async cancel(session, options) {
    return sessionOf(await this.#call("POST", `${pathOf(session)}/cancel`, options));
  }

  /** Confirms a session with the code that its user gave. A repeat is harmless. */
  async confirm(session, confirmation, options) {
    const body = JSON.stringify({ platform_user_id: confirmation.platformUserId, code: confirmation.code });
    return sessionOf(await this.#call("POST", `${pathOf(session)}/confirm`, { body, ...options }));
  }

  /** Has the callback of a session sent once more, after its delivery has ended. */
  async resend(session, options) {
    return sessionOf(await this.#call("POST", `${pathOf(session)}/resend`, options));
  }

  async #call(method, path, { headers = {}, body, signal } = {}) {
    const ends = new AbortController();
    const stop = () => ends.abort(signal.reason);
    const timer = setTimeout(() => ends.abort(new Error("the time is over")), this.#timeout);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
    try {
      const response = await this.#fetch.call(globalThis, this.#base + path, {
        method, body, signal: ends.signal, redirect: "manual",
        headers: {
          Authorization: `Bearer ${this.#key}`, Accept: "application/json, application/problem+json",
          "User-Agent": `verifyd-javascript/${version}`, ...(body ? { "Content-Type": "application/json" } : {}),
          ...headers,
        },
      });
      const text = new TextDecoder().decode(await bytesOf(response.body, maxAnswerBytes));
      if (!response.ok) {
        throw new Refused(response.status, objectOf(text) ?? {}, secondsOf(response.headers.get("retry-after")));
      }
      const answer = objectOf(text);
      if (!answer) throw new NoAnswer(`status ${response.status}, but not the JSON that was expected`);
      return answer;
    } catch (error) {
      if (error instanceof Refused || error instanceof NoAnswer) throw error;
      if (signal?.aborted) throw signal.reason;
      throw new NoAnswer(error.cause?.message ?? error.message, error);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
  }
}

class Started {
  #session;

  constructor(answer, id) {
    this.verifyUrl = answer.verify_url;
    this.expiresAt = new Date(answer.expires_at);
    this.id = id;
    this.#session = answer.session;
    // who holds the link may sign in: it is not shown with the rest
    Object.defineProperty(this, "verifyUrl", { enumerable: false });
  }

  get session() {
    return this.#session;
  }
}

/** Remembers in one process which callbacks were handled, bounded by time and number. */
export class MemorySeen {
  #for;
  #most;
  #busy = new Set();
  #handled = new Map(); // id → when, oldest first

  constructor(forMs = 72 * 3600_000, most = 100_000) {
    this.#for = forMs;
    this.#most = most;
  }

  begin(id) {
    for (const [old, at] of this.#handled) {
      if (this.#handled.size <= this.#most && Date.now() - at < this.#for) break;
      this.#handled.delete(old);
    }
    if (this.#handled.has(id)) return "handled";
    if (this.#busy.has(id)) return "busy";
    this.#busy.add(id);
    return "new";
  }

  end(id, handled) {
    this.#busy.delete(id);
    if (handled) this.#handled.set(id, Date.now());
  }
}

/** What is behind a callback_url: checks signature and time, and hands over each result once. */
export class Receiver {
  #keys;
  #handle;
  #seen;
  #tests;
  #now;

  constructor(secrets, handle, options = {}) {
    if (!Array.isArray(secrets) || secrets.length === 0) {
      throw new TypeError("no signing secret; give the account's, which begins with whsec_, or its public key, " +
        "which begins with whpk_");
    }
    this.#keys = secrets.map((secret, i) => keyOf(secret, `signing secret ${i + 1} of ${secrets.length}`));
    if (typeof handle !== "function") throw new TypeError("no handler; give the function that takes results");
    this.#handle = handle;
    this.#seen = options.seen ?? new MemorySeen();
    this.#tests = options.tests ?? false;
    this.#now = options.now ?? Date.now;
    this.fetch = this.fetch.bind(this);
    this.node = this.node.bind(this);
  }

  /** Answers a Request of the Fetch API. */
  async fetch(request) {
    const answer = await this.#receive(request.method, (name) => request.headers.get(name), () =>
      bytesOf(request.body, maxCallbackBytes));
    return new Response(`${answer.words}\n`, { status: answer.status, headers: answer.headers });
  }

  /** Answers a request of Node's http, or of Express before a body parser. */
  async node(request, response) {
    const answer = await this.#receive(request.method, (name) => request.headers[name] ?? null, () => {
      if (typeof request.body === "string" || request.body instanceof Uint8Array) {
        return limited(new TextEncoder().encode(request.body), request.body, maxCallbackBytes);
      }
      if (request.body !== undefined && request.readableEnded) {
        throw new Error("the body was parsed before; mount the receiver before body parsers");
      }
      return bytesOf(request, maxCallbackBytes);
    });
    response.writeHead(answer.status, answer.headers);
    response.end(`${answer.words}\n`);
  }

  async #receive(method, header, read) {
    const answer = await this.#judge(method, header, read);
    const headers = { "Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff" };
    if (answer.status === 503) headers["Retry-After"] = "1";
    if (answer.status === 405) headers.Allow = "POST";
    return { ...answer, headers };
  }

  async #judge(method, header, read) {
    if (method !== "POST") return { status: 405, words: "callbacks come by POST" };
    let body;
    try {
      body = await read();
    } catch (error) {
      if (error instanceof TooLarge) {
        return { status: 413, words: `a callback has less than ${maxCallbackBytes} bytes` };
      }
      return { status: 400, words: `the body could not be read: ${error.message}` };
    }
    const id = header("webhook-id");
    const signatures = header("webhook-signature");
    const seconds = header("webhook-timestamp");
    if (!id || !signatures || !/^-?\d{1,15}$/.test(seconds ?? "")) {
      return { status: 401, words: "the headers of a signed callback are missing or malformed" };
    }
    if (Math.abs(this.#now() / 1000 - Number(seconds)) > toleranceSeconds) {
      return { status: 401, words: "the timestamp is more than 5 minutes from this receiver's clock" };
    }
    let signed;
    try {
      signed = await this.#signed(`${id}.${seconds}.`, body, signatures);
    } catch (error) {
      return { status: 500, words: `this runtime cannot check the signature: ${error.message}` };
    }
    if (!signed) {
      return { status: 401, words: "no signature matches: another secret, or a changed body" };
    }
    const doc = objectOf(new TextDecoder().decode(body));
    if (typeof doc?.platform_user_id !== "string" || typeof doc.guild_id !== "string" ||
      typeof doc.verified !== "boolean") {
      return { status: 422, words: "the body is not a verification result" };
    }
    const test = id.startsWith("cbtest_") || header("verifyd-test") === "true";
    if (test && !this.#tests) {
      return { status: 200, words: "a test, and rightly signed; this receiver takes no notice of tests" };
    }
    return this.#take({
      platformUserId: doc.platform_user_id, guildId: doc.guild_id, verified: doc.verified, id, test,
      session: /^cb(test)?_/.test(id) ? id.slice(id.indexOf("_") + 1) : "",
      sentAt: new Date(Number(seconds) * 1000),
    });
  }

  async #signed(head, body, signatures) {
    const start = new TextEncoder().encode(head);
    const message = new Uint8Array(start.length + body.length);
    message.set(start);
    message.set(body, start.length);
    let matches = false;
    for (const signature of signatures.split(" ")) {
      const [kind, text] = signature.split(",", 2);
      for (const { version, algorithm, key } of this.#keys) {
        const bytes = kind === version && base64(text);
        // verify compares in constant time
        if (bytes) matches = (await webcrypto.subtle.verify(algorithm, await key, bytes, message)) || matches;
      }
    }
    return matches;
  }

  async #take(result) {
    let known;
    try {
      known = await this.#seen.begin(result.id);
    } catch {
      return { status: 503, words: "this receiver cannot tell whether it has handled this already" };
    }
    if (known === "handled") return { status: 200, words: "handled already" };
    if (known !== "new") return { status: 503, words: "being handled at this moment" };
    let handled = false;
    try {
      await this.#handle(result);
      handled = true;
    } catch {
      // why is the integrator's own business
    }
    try {
      await this.#seen.end(result.id, handled);
    } catch {
      if (handled) return { status: 503, words: "handled, but this receiver could not remember it" };
    }
    return handled ? { status: 200, words: "handled" } : { status: 500, words: "not handled" };
  }
}

function parseBase(text) {
  const right = "give the address of the service such as https://verify.example.com";
  let url;
  try {
    url = new URL(text);
  } catch {
    throw new TypeError(`the base URL is not an absolute URL; ${right}`);
  }
  if (url.username || url.password || url.search || url.hash) {
    throw new TypeError(`the base URL holds a user, a query or a fragment; ${right}`);
  }
  const loopback = /^(localhost|.*\.localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
  if (url.protocol !== "https:" && !(url.protocol === "http:" && loopback)) {
    throw new TypeError("the base URL is not https, and the API key would be readable on its way; http is for " +
      `localhost only; ${right}`);
  }
  return url.href.replace(/\/+$/, "");
}

function pathOf(session) {
  if (typeof session !== "string" || session === "") throw new TypeError("no session; give its token or its id");
  return `/sessions/${encodeURIComponent(session)}`;
}

function mayPass(error) {
  if (error instanceof NoAnswer) return true;
  return error instanceof Refused &&
    ([502, 503, 504].includes(error.status) || error.code === "idempotency_in_progress");
}

const date = (text) => (text ? new Date(text) : null);

function waitingOf(doc) {
  if (!doc) return null;
  return {
    tries: doc.tries ?? 0, class: doc.class ?? "", detail: doc.detail ?? "",
    triedAt: date(doc.tried_at), nextAttemptAt: date(doc.next_attempt_at),
  };
}

function sessionOf(doc) {
  if (typeof doc?.id !== "string" || typeof doc.state !== "string") {
    throw new NoAnswer("the answer has no id or no state");
  }
  return {
    id: doc.id, test: doc.test ?? false, platform: doc.platform ?? "",
    platformUserId: doc.platform_user_id ?? "", guildId: doc.guild_id ?? "",
    binding: doc.binding ?? "", reached: doc.reached ?? "", state: doc.state, step: doc.step ?? "",
    verified: doc.verified ?? null, reason: doc.reason ?? "", rule: doc.rule ?? "",
    reference: doc.reference ?? "", locale: doc.locale ?? "",
    displayName: doc.display_name ?? "", groupName: doc.group_name ?? "",
    createdAt: date(doc.created_at), expiresAt: date(doc.expires_at), completedAt: date(doc.completed_at),
    delivery: {
      state: doc.delivery?.state ?? "none",
      attempts: (doc.delivery?.attempts ?? []).map((a) => ({
        number: a.number, verdict: a.verdict ?? "", class: a.class ?? "", status: a.status ?? 0,
        claimedAt: date(a.claimed_at), endedAt: date(a.ended_at),
      })),
      waiting: waitingOf(doc.delivery?.waiting),
    },
  };
}

/** The id of a session, under which it may be logged: of its token's SHA-256 the first 20 bytes, in base32. */
async function idOf(token) {
  const sum = new Uint8Array(await webcrypto.subtle.digest("SHA-256", new TextEncoder().encode(token)));
  const letters = "abcdefghijklmnopqrstuvwxyz234567";
  let id = "";
  for (let i = 0, bits = 0, held = 0; i < 20; i++) {
    held = (held << 8) | sum[i];
    for (bits += 8; bits >= 5; bits -= 5) id += letters[(held >> (bits - 5)) & 31];
    held &= (1 << bits) - 1;
  }
  return id;
}

function instant(value) {
  return value instanceof Date ? value.toISOString() : value;
}

function secondsOf(text) {
  return /^\d{1,9}$/.test(text ?? "") ? Number(text) : 0;
}

function objectOf(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function base64(text) {
  try {
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}

function keyOf(secret, which) {
  if (typeof secret === "string" && secret.startsWith("whpk_")) return publicKeyOf(secret, which);
  const bytes = typeof secret === "string" && secret.startsWith("whsec_") && base64(secret.slice("whsec_".length));
  if (!bytes || bytes.length < 24) {
    throw new TypeError(`${which} is not whsec_ and base64 of at least 24 bytes; copy it from the dashboard`);
  }
  const key = webcrypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
  return { version: "v1", algorithm: "HMAC", key };
}

function publicKeyOf(text, which) {
  const bytes = base64(text.slice("whpk_".length));
  if (bytes?.length !== 32) {
    throw new TypeError(`${which} is not whpk_ and 32 bytes of base64; copy it from the dashboard`);
  }
  const key = webcrypto.subtle.importKey("raw", bytes, { name: "Ed25519" }, false, ["verify"]);
  key.catch(() => {}); // a runtime without Ed25519: it is answered when a callback comes
  return { version: "v1a", algorithm: "Ed25519", key };
}

class TooLarge extends Error {}

function limited(encoded, original, most) {
  const bytes = typeof original === "string" ? encoded : original;
  if (bytes.length > most) throw new TooLarge();
  return bytes;
}

async function bytesOf(stream, most) {
  const parts = [];
  let length = 0;
  for await (const part of partsOf(stream)) {
    length += part.length;
    if (length > most) throw new TooLarge("the answer is too large");
    parts.push(part);
  }
  const all = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

async function* partsOf(stream) {
  if (!stream) return;
  if (!stream.getReader) {
    yield* stream; // Node's
    return;
  }
  const reader = stream.getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
  } finally {
    await reader.cancel().catch(() => {});
  }
}
