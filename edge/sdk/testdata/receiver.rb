# A receiver on a free port; it prints the port, then each result. The server is as much of Rack's as the test needs.
require "json"
require "socket"
require "stringio"
require_relative "verifyd"

$stdout.sync = true
failed = false
receiver = Verifyd::Receiver.new(ARGV[1..]) do |r|
  if r.platform_user_id == "fails once" && !failed
    failed = true
    raise "the database is away"
  end
  puts JSON.generate(user: r.platform_user_id, guild: r.guild_id, verified: r.verified, id: r.id, session: r.session,
                     test: r.test, at: r.sent_at.to_i)
end
server = TCPServer.new("127.0.0.1", 0)
puts server.addr[1]
loop do
  client = server.accept
  line = client.gets or (client.close; next)
  env = { "REQUEST_METHOD" => line.split.first }
  while (field = client.gets) && field != "\r\n"
    name, value = field.chomp.split(": ", 2)
    env["HTTP_#{name.upcase.tr("-", "_")}"] = value
  end
  env["rack.input"] = StringIO.new(client.read(env["HTTP_CONTENT_LENGTH"].to_i) || "")
  status, headers, body = receiver.call(env)
  text = body.join
  client.write("HTTP/1.1 #{status} X\r\n", *headers.map { |n, v| "#{n}: #{v}\r\n" },
               "connection: close\r\ncontent-length: #{text.bytesize}\r\n\r\n", text)
  client.close
end
