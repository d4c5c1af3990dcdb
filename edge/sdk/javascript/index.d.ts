/** The version of this package. */
export const version: string;

/**
 * What is proven: "link", that whoever has the link controls an identity; "code", and that the account's
 * owner confirms on the platform, with a code; "account", and that the same browser signed in as that
 * platform account.
 */
export type Binding = "link" | "code" | "account";

/** What a session is started with. The ids are your own words, and come back exactly as given. */
export interface Verification {
  platform: string;
  platformUserId: string;
  guildId?: string;
  /** Absolute https URL of the receiver. */
  callbackUrl: string;
  /** What is to be proven before the session is verified. Default: what the account has set. */
  binding?: Binding;
  /** Your own name for the session, such as an order number: up to 128 bytes, which no user sees. */
  reference?: string;
  /** The user's language as a BCP 47 tag, such as "pt-BR". Default: the browser says it. */
  locale?: string;
  /** How people know the user on the platform; the page shows it above the id. */
  displayName?: string;
  /** How people know the group there. */
  groupName?: string;
  /** Makes a repeat of your own harmless: 1 to 255 visible ASCII characters. Default: one that is made for the call. */
  idempotencyKey?: string;
}

export interface Started {
  /** Where to send the user. */
  readonly verifyUrl: string;
  /** The session's token: who holds it may sign in, so it belongs into no log. */
  readonly session: string;
  /** The session's id, under which it may be logged. */
  readonly id: string;
  readonly expiresAt: Date;
}

/** A code, and who gave it. */
export interface Confirmation {
  /** What the platform says of who is writing, never what the user writes. */
  platformUserId: string;
  /** As the user wrote it: in any case, with or without spaces and hyphens. */
  code: string;
}

export type State = "pending" | "verified" | "failed" | "canceled" | "expired";

export interface Attempt {
  number: number;
  /** Empty while it is in progress. */
  verdict: string;
  /** What went wrong; empty if nothing did. */
  class: string;
  /** The receiver's HTTP status; 0 if none was read. */
  status: number;
  claimedAt: Date | null;
  endedAt: Date | null;
}

/** Why a callback that is due was not sent yet. */
export interface Waiting {
  /** How often the next attempt was tried so far; 0 if the last one was sent and is followed by another. */
  tries: number;
  /** What went wrong last, in one word; detail: in a sentence, may be empty. */
  class: string;
  detail: string;
  triedAt: Date | null;
  nextAttemptAt: Date | null;
}

export interface Session {
  id: string;
  /** Started with a test key: it says nothing about a person. */
  test: boolean;
  platform: string;
  platformUserId: string;
  guildId: string;
  /** What it asks to be proven. */
  binding: Binding;
  /** What was proven; empty if nothing was. */
  reached: Binding | "";
  state: State;
  /**
   * What a pending session waits for: "identity" after the platform account was proven, "confirm" until the
   * user's code is given; empty: the sign-in, or nothing more.
   */
  step: "" | "identity" | "confirm";
  /** null unless the state is verified or failed. */
  verified: boolean | null;
  reason: string;
  rule: string;
  /** As given, as are the next three. */
  reference: string;
  locale: string;
  displayName: string;
  groupName: string;
  createdAt: Date | null;
  expiresAt: Date | null;
  completedAt: Date | null;
  delivery: {
    state: "none" | "due" | "claimed" | "delivered" | "rejected" | "unknown" | "undeliverable";
    attempts: Attempt[];
    /** Why it is due still; null: it is not due, was not tried yet, or that is not known. */
    waiting: Waiting | null;
  };
}

export interface Filter {
  platformUserId?: string;
  state?: State;
  delivery?: Session["delivery"]["state"];
  since?: Date | string;
  until?: Date | string;
  /** What you know of a session: its id, its token, a webhook-id, or how its user, group, reference or key's name begins. */
  q?: string;
  platform?: string;
  group?: string;
  /** The id or the name of an API key. */
  key?: string;
  mode?: "live" | "test";
  network?: string;
  reason?: string;
  binding?: Binding;
  /** The first and the last day, in UTC, as in 2026-11-21. */
  from?: string;
  to?: string;
  /** Of one page, up to 100. */
  limit?: number;
  cursor?: string;
}

export interface CallOptions {
  signal?: AbortSignal;
}

export interface ClientOptions {
  fetch?: typeof fetch;
  /** Of one request, in milliseconds; default 45,000. */
  timeout?: number;
}

/** Calls the service with one API key. Its errors are Refused, NoAnswer, and the signal's reason. */
export class Client {
  constructor(baseUrl: string, apiKey: string, options?: ClientOptions);
  /** Starts a session. It tries up to six times, under one idempotency key. */
  start(verification: Verification, options?: CallOptions): Promise<Started>;
  /** Reads a session by its token or its id. */
  read(session: string, options?: CallOptions): Promise<Session>;
  /** Reads a session until it is no longer pending. */
  wait(session: string, options?: CallOptions): Promise<Session>;
  /** One page of sessions, newest first. */
  list(filter?: Filter, options?: CallOptions): Promise<{ sessions: Session[]; next?: string }>;
  /** All sessions of a list, page by page. */
  pages(filter?: Filter, options?: CallOptions): AsyncGenerator<Session, void, undefined>;
  /** Cancels a pending session; no callback is sent. */
  cancel(session: string, options?: CallOptions): Promise<Session>;
  /**
   * Completes a session whose binding is "code" as verified, with the code that its user gave on the
   * platform. Five codes are accepted; another one is a Refused with the code "wrong_code" and triesLeft. It is
   * not repeated by itself; a repeat is harmless: the same code from the same user is one try.
   */
  confirm(session: string, confirmation: Confirmation, options?: CallOptions): Promise<Session>;
  /** Has the callback sent once more, after its delivery has ended. */
  resend(session: string, options?: CallOptions): Promise<Session>;
}

/** The service answered, and refused. */
export class Refused extends Error {
  readonly status: number;
  /** A code of the service's interface, such as "rate_limited"; empty where the answer had none. */
  readonly code: string;
  readonly detail: string;
  readonly fields: { name: string; code: string; detail: string }[];
  readonly requestId: string;
  /** What Retry-After asked for, in seconds; 0 where it did not. */
  readonly retryAfter: number;
  /** How many more codes are accepted, for "wrong_code"; 0: the session has failed. Otherwise undefined. */
  readonly triesLeft: number | undefined;
}

/** No answer came. What was asked for may have been done. */
export class NoAnswer extends Error {}

/** The outcome of a session, and what its callback says about itself. */
export interface Result {
  platformUserId: string;
  guildId: string;
  verified: boolean;
  /** webhook-id: two results with the same one are the same result. */
  id: string;
  /** The session's id; empty in a callback that belongs to none. */
  session: string;
  sentAt: Date;
  /** It says nothing about a person. */
  test: boolean;
}

/** Remembers which callbacks were handled. Several processes behind one address share one of their own. */
export interface Seen {
  begin(id: string): "new" | "busy" | "handled" | Promise<"new" | "busy" | "handled">;
  end(id: string, handled: boolean): void | Promise<void>;
}

/** Remembers in one process, for 72 hours and up to 100,000 callbacks unless told otherwise. */
export class MemorySeen implements Seen {
  constructor(forMs?: number, most?: number);
  begin(id: string): "new" | "busy" | "handled";
  end(id: string, handled: boolean): void;
}

export interface ReceiverOptions {
  seen?: Seen;
  /** Hand over test callbacks too, with result.test set. */
  tests?: boolean;
  /** Milliseconds since 1970, for tests. */
  now?: () => number;
}

/** What is behind a callback_url: checks signature and time, and hands over each result once. */
export class Receiver {
  /**
   * secrets are the account's signing secret, `whsec_…`, or its public key, `whpk_…`: one or, while they rotate, two.
   * One match is enough.
   */
  constructor(secrets: string[], handle: (result: Result) => unknown, options?: ReceiverOptions);
  /** Answers a Request of the Fetch API: Deno, Bun, Workers. */
  fetch(request: Request): Promise<Response>;
  /** Answers a request of Node's http, or of Express before a body parser. */
  node(request: unknown, response: unknown): Promise<void>;
}
