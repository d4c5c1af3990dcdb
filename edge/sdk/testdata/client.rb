# Does what standard input says, a JSON list of calls, and prints what became of each.
require "json"
require_relative "verifyd"

order = JSON.parse($stdin.read)
client = Verifyd::Client.new(order["base"], order["key"])
shown = lambda do |s|
  {
    id: s["id"], state: s["state"], verified: s["verified"], test: s["test"], user: s["platform_user_id"],
    delivery: s["delivery"]["state"], attempts: s["delivery"]["attempts"].map { |a| a["status"] },
    completed: s["completed_at"] && Time.iso8601(s["completed_at"]).utc.iso8601(3)
  }
end
does = {
  "start" => lambda do |a|
    s = client.start(platform: a["platform"], platform_user_id: a["user"], guild_id: a["guild"],
                     callback_url: a["callback"], binding: a["binding"], idempotency_key: a["key"],
                     reference: a["reference"], locale: a["locale"],
                     display_name: a["called"], group_name: a["group"])
    { url: s.verify_url, session: s.session, id: s.id, expires: s.expires_at.utc.iso8601(3), shown: s.inspect }
  end,
  "read" => ->(a) { shown.call(client.read(a["session"])) },
  "whole" => ->(a) { client.read(a["session"]) },
  "wait" => ->(a) { shown.call(client.wait(a["session"])) },
  "cancel" => ->(a) { shown.call(client.cancel(a["session"])) },
  "confirm" => lambda do |a|
    shown.call(client.confirm(a["session"], platform_user_id: a["user"], code: a["code"]))
  end,
  "resend" => ->(a) { shown.call(client.resend(a["session"])) },
  "list" => lambda do |a|
    found, following = client.list(platform_user_id: a["user"], state: a["state"], delivery: a["delivery"],
                                   since: a["since"], until: a["until"], limit: a["limit"], cursor: a["cursor"],
                                   q: a["q"], platform: a["platform"], group: a["group"], key: a["key"],
                                   mode: a["mode"], network: a["network"], reason: a["reason"],
                                   binding: a["binding"], from: a["from"], to: a["to"])
    { ids: found.map { |s| s["id"] }, next: following }
  end,
  "pages" => ->(_) { { ids: client.pages.map { |s| s["id"] } } }
}
ends = order["calls"].map do |call|
  { ok: does.fetch(call["call"]).call(call) }
rescue Verifyd::Refused => e
  fields = e.fields.map { |f| f["name"] }
  { refused: { status: e.status, code: e.code, fields: fields, retry: e.retry_after, tries: e.tries_left } }
rescue Verifyd::NoAnswer
  { noAnswer: true }
end
puts JSON.generate(ends: ends, client: client.inspect)
