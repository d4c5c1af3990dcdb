// A receiver on a free port, by the interface that the first argument names; it prints the port, then each result.
import http from "node:http";
import { Receiver } from "verifyd";

let failed = false;
const receiver = new Receiver(process.argv.slice(3), async (r) => {
  if (r.platformUserId === "fails once" && !failed) {
    failed = true;
    throw new Error("the database is away");
  }
  console.log(JSON.stringify({
    user: r.platformUserId, guild: r.guildId, verified: r.verified, id: r.id, session: r.session, test: r.test,
    at: r.sentAt.getTime() / 1000,
  }));
});
const answers = {
  node: receiver.node,
  fetch: async (q, w) => {
    const hasBody = q.method !== "GET" && q.method !== "HEAD";
    const answer = await receiver.fetch(new Request("http://receiver.test" + q.url, {
      method: q.method, headers: Object.entries(q.headers), body: hasBody ? q : undefined, duplex: "half",
    }));
    w.writeHead(answer.status, Object.fromEntries(answer.headers));
    w.end(await answer.text());
  },
};
const server = http.createServer(answers[process.argv[2]]);
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
