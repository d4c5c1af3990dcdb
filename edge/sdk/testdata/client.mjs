// Does what standard input says, a JSON list of calls, and prints what became of each.
import { Client, NoAnswer, Refused } from "verifyd";

const { base, key, calls } = JSON.parse(await new Response(process.stdin).text());
const client = new Client(base, key);
const shown = (s) => ({
  id: s.id, state: s.state, verified: s.verified, test: s.test, user: s.platformUserId,
  delivery: s.delivery.state, attempts: s.delivery.attempts.map((a) => a.status),
  completed: s.completedAt?.toISOString() ?? null,
});
const does = {
  start: async (a) => {
    const s = await client.start({
      platform: a.platform, platformUserId: a.user, guildId: a.guild, callbackUrl: a.callback,
      binding: a.binding, reference: a.reference, locale: a.locale, displayName: a.called, groupName: a.group,
      idempotencyKey: a.key,
    });
    return { url: s.verifyUrl, session: s.session, id: s.id, expires: s.expiresAt.toISOString(), shown: JSON.stringify(s) };
  },
  read: async (a) => shown(await client.read(a.session)),
  whole: (a) => client.read(a.session),
  wait: async (a) => shown(await client.wait(a.session)),
  cancel: async (a) => shown(await client.cancel(a.session)),
  confirm: async (a) => shown(await client.confirm(a.session, { platformUserId: a.user, code: a.code })),
  resend: async (a) => shown(await client.resend(a.session)),
  list: async (a) => {
    const page = await client.list({
      platformUserId: a.user, state: a.state, delivery: a.delivery, since: a.since, until: a.until, limit: a.limit,
      cursor: a.cursor, q: a.q, platform: a.platform, group: a.group, key: a.key, mode: a.mode, network: a.network,
      reason: a.reason, binding: a.binding, from: a.from, to: a.to,
    });
    return { ids: page.sessions.map((s) => s.id), next: page.next ?? null };
  },
  pages: async () => {
    const ids = [];
    for await (const s of client.pages()) ids.push(s.id);
    return { ids };
  },
};
const ends = [];
for (const { call, ...args } of calls) {
  try {
    ends.push({ ok: await does[call](args) });
  } catch (e) {
    if (e instanceof Refused) {
      const fields = e.fields.map((f) => f.name);
      const tries = e.triesLeft ?? null;
      ends.push({ refused: { status: e.status, code: e.code, fields, retry: e.retryAfter, tries } });
    } else if (e instanceof NoAnswer) {
      ends.push({ noAnswer: true });
    } else {
      throw e;
    }
  }
}
console.log(JSON.stringify({ ends, client: String(client) + JSON.stringify(client) }));
