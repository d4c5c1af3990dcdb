# frozen_string_literal: true

# verifyd @VERSION@ for Ruby 3.0 and later: starts identity verifications, reads them, and receives their results.
#
#     require_relative "verifyd"
#     client = Verifyd::Client.new("https://verify.example.com", ENV.fetch("VERIFYD_API_KEY"))
#     started = client.start(platform: "discord", platform_user_id: "sailor_42",
#                            callback_url: "https://bot.example.com/verified")
#     # send the user to started.verify_url; log started.id, never started.session
#
# and in config.ru, behind the callback_url:
#
#     run Verifyd::Receiver.new([ENV.fetch("VERIFYD_SIGNING_SECRET")]) { |result|
#       Member.set_verified(result.platform_user_id, result.verified)
#     }
#
# start sends an idempotency key, its own where you give none, and tries up to six times while no answer comes, or a
# 502, 503 or 504, for as long as Retry-After asks, at most 5 seconds. Nothing else is repeated.

require "digest"
require "json"
require "net/http"
require "openssl"
require "securerandom"
require "time"
require "uri"

module Verifyd
  VERSION = "@VERSION@"

  # What a Client raises.
  class Error < StandardError; end

  # The service answered, and refused.
  class Refused < Error
    # code is one of the service's interface, such as "rate_limited", and empty where the answer had none;
    # fields are hashes with name, code and detail; retry_after is in seconds, 0 if none was sent;
    # tries_left is how many more codes are accepted, for "wrong_code"; 0: the session has failed. Otherwise nil.
    attr_reader :status, :code, :detail, :fields, :request_id, :retry_after, :tries_left

    def initialize(status, problem, retry_after)
      @status = status
      @code, @detail, @request_id = %w[code detail request_id].map { |name| problem[name].to_s }
      errors = problem["errors"].is_a?(Array) ? problem["errors"] : []
      @fields = errors.map { |e| { "name" => e["field"].to_s, "code" => e["code"].to_s, "detail" => e["detail"].to_s } }
      @retry_after = retry_after
      @tries_left = problem["tries_left"] if problem["tries_left"].is_a?(Integer)
      text = "verifyd answered #{[status, @code].join(" ").strip}"
      text += ": #{@detail}" unless @detail.empty?
      text += " (request #{@request_id})" unless @request_id.empty?
      super(text)
    end
  end

  # No answer came, or none that was one. What was asked for may have been done.
  class NoAnswer < Error
    def initialize(why)
      super("verifyd gave no answer: #{why}")
    end
  end

  # A session that has begun. verify_url is where to send the user; who holds session, its token, may sign in, so it
  # belongs into no log.
  class Started
    attr_reader :verify_url, :session, :expires_at

    def initialize(verify_url, session, expires_at)
      @verify_url, @session, @expires_at = verify_url, session, expires_at
    end

    # The session's id, under which it may be logged.
    def id
      bits = Digest::SHA256.digest(session)[0, 20].unpack1("B*")
      bits.scan(/.{5}/).map { |five| "abcdefghijklmnopqrstuvwxyz234567"[five.to_i(2)] }.join
    end

    def inspect
      "#<Verifyd::Started #{id}, expires at #{expires_at.iso8601}>"
    end
  end

  # Calls the service with one API key. Its methods raise Refused and NoAnswer; sessions are hashes, as the service's
  # interface describes them. It may be used by several threads at once.
  class Client
    TRIES = 6
    MAX_PAUSE = 5
    MAX_ANSWER = 1 << 20
    private_constant :TRIES, :MAX_PAUSE, :MAX_ANSWER

    def initialize(base_url, api_key, timeout: 45)
      @base = parse_base(base_url)
      unless api_key.is_a?(String) && api_key.match?(/\A[\x21-\x7e]+\z/)
        raise ArgumentError, "the API key is empty or holds spaces; it is one word that begins with vfy_ or vfytest_"
      end
      @key = api_key
      @timeout = timeout
    end

    def inspect
      "#<Verifyd::Client #{@base}>"
    end

    # Starts a session. It tries up to six times, under one idempotency key. binding is what is to be proven
    # before the session is verified: "link", that whoever has the link controls an identity; "code", and that
    # the account's owner confirms on the platform, with a code; "account", and that the same browser signed
    # in as that platform account; nil: what the account has set. reference is your own word
    # for the session, which no user sees; locale is the user's language as a BCP 47 tag, such as "pt-BR".
    # display_name and group_name are how people know the user and the group on the platform; the page shows
    # them above the ids.
    def start(platform:, platform_user_id:, callback_url:, guild_id: nil, binding: nil, idempotency_key: nil,
              reference: nil, locale: nil, display_name: nil, group_name: nil)
      body = { platform: platform, platform_user_id: platform_user_id, callback_url: callback_url }
      body[:guild_id] = guild_id unless guild_id.nil? || guild_id.empty?
      body[:binding] = binding unless binding.nil?
      body[:reference] = reference unless reference.nil? || reference.empty?
      body[:locale] = locale unless locale.nil?
      body[:display_name] = display_name unless display_name.nil? || display_name.empty?
      body[:group_name] = group_name unless group_name.nil? || group_name.empty?
      headers = { "Idempotency-Key" => idempotency_key || SecureRandom.uuid }
      wait = 0.25
      (TRIES - 1).downto(0) do |left|
        answer = call("POST", "/verify/init", headers, body)
        unless answer["verify_url"] && answer["session"]
          raise NoAnswer, "the answer has no verify_url or no session"
        end
        return Started.new(answer["verify_url"], answer["session"], Time.iso8601(answer["expires_at"]))
      rescue Error => e
        raise if left.zero? || !may_pass?(e)

        sleep([wait, [e.is_a?(Refused) ? e.retry_after : 0, MAX_PAUSE].min].max)
        wait *= 2
      end
    end

    # Reads a session by its token or its id.
    def read(session)
      session_of(call("GET", path_of(session)))
    end

    # Reads a session until it is no longer pending, or for so many seconds.
    def wait(session, seconds = nil)
      late = seconds && now + seconds
      loop do
        following = now + 1
        held = late ? [[30, (late - now).to_i].min, 1].max : 30
        read = session_of(call("GET", "#{path_of(session)}?wait=#{held}"))
        return read if read["state"] != "pending" || late && now >= late

        sleep([following - now, 0].max)
      end
    end

    # One page of sessions, newest first, and the cursor of the next or nil. The filter's members are
    # platform_user_id, state, delivery, since, until, limit, cursor, q, platform, group, key, mode, network,
    # reason, binding, from and to.
    def list(**filter)
      query = URI.encode_www_form(filter.compact.transform_values { |v| v.is_a?(Time) ? v.utc.iso8601(3) : v })
      page = call("GET", "/sessions#{"?#{query}" unless query.empty?}")
      raise NoAnswer, "the answer has no sessions" unless page["sessions"].is_a?(Array)

      [page["sessions"].map { |s| session_of(s) }, page["next"]]
    end

    # All sessions of a list, page by page.
    def pages(**filter)
      return enum_for(:pages, **filter) unless block_given?

      loop do
        found, filter[:cursor] = list(**filter)
        found.each { |s| yield s }
        break if filter[:cursor].nil?
      end
    end

    # Cancels a pending session; no callback is sent.
    def cancel(session)
      session_of(call("POST", "#{path_of(session)}/cancel"))
    end

    # Completes a session whose binding is "code" as verified, with the code that its user gave.
    # platform_user_id is what the platform says of who is writing, never what the user writes; code is as the
    # user wrote it: in any case, with or without spaces and hyphens. Five codes are accepted; another one is a
    # Refused with the code "wrong_code" and tries_left. It is not repeated by itself; a repeat is harmless:
    # the same code from the same user is one try.
    def confirm(session, platform_user_id:, code:)
      body = { platform_user_id: platform_user_id, code: code }
      session_of(call("POST", "#{path_of(session)}/confirm", {}, body))
    end

    # Has the callback sent once more, after its delivery has ended. A repeat sends another.
    def resend(session)
      session_of(call("POST", "#{path_of(session)}/resend"))
    end

    private

    def call(method, path, headers = {}, body = nil)
      request = Net::HTTPGenericRequest.new(method, !body.nil?, true, URI(@base + path).request_uri)
      request["Authorization"] = "Bearer #{@key}"
      request["Accept"] = "application/json, application/problem+json"
      request["User-Agent"] = "verifyd-ruby/#{VERSION}"
      headers.each { |name, value| request[name] = value }
      if body
        request["Content-Type"] = "application/json"
        request.body = JSON.generate(body)
      end
      status, text, retry_after = exchange(request)
      answer = object_of(text)
      unless status.between?(200, 299)
        raise Refused.new(status, answer || {}, retry_after.to_s.match?(/\A\d{1,9}\z/) ? retry_after.to_i : 0)
      end
      answer or raise NoAnswer, "status #{status}, but not the JSON that was expected"
    end

    def exchange(request)
      at = URI(@base)
      http = Net::HTTP.new(at.host, at.port)
      http.use_ssl = at.scheme == "https"
      http.open_timeout = http.read_timeout = http.write_timeout = @timeout
      http.max_retries = 0 # net/http repeats some requests by itself
      http.start do |open|
        open.request(request) do |response|
          text = +""
          response.read_body do |part|
            text << part
            raise NoAnswer, "the answer is too large" if text.bytesize > MAX_ANSWER
          end
          return [response.code.to_i, text, response["Retry-After"]]
        end
      end
    rescue SystemCallError, SocketError, IOError, Timeout::Error, OpenSSL::SSL::SSLError, Net::ProtocolError,
           Net::HTTPBadResponse, Net::HTTPHeaderSyntaxError => e
      raise NoAnswer, e.message
    end

    def path_of(session)
      raise ArgumentError, "no session; give its token or its id" if session.to_s.empty?

      "/sessions/#{URI.encode_www_form_component(session).gsub("+", "%20")}"
    end

    def may_pass?(error)
      error.is_a?(NoAnswer) ||
        error.is_a?(Refused) && ([502, 503, 504].include?(error.status) || error.code == "idempotency_in_progress")
    end

    def session_of(doc)
      unless doc.is_a?(Hash) && doc["id"].is_a?(String) && doc["state"].is_a?(String)
        raise NoAnswer, "the answer has no id or no state"
      end
      {
        "test" => false, "binding" => "", "reached" => nil, "step" => "", "verified" => nil,
        "reference" => "", "locale" => "", "display_name" => "", "group_name" => "",
        "delivery" => { "state" => "none", "attempts" => [], "waiting" => nil }
      }.merge(doc)
    end

    def object_of(text)
      doc = JSON.parse(text)
      doc if doc.is_a?(Hash)
    rescue JSON::ParserError
      nil
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def parse_base(text)
      right = "give the address of the service such as https://verify.example.com"
      url = begin
        URI(text)
      rescue URI::InvalidURIError
        nil
      end
      raise ArgumentError, "the base URL is not an absolute URL; #{right}" unless url.is_a?(URI::HTTP) && url.host
      if url.userinfo || url.query || url.fragment
        raise ArgumentError, "the base URL holds a user, a query or a fragment; #{right}"
      end
      loopback = url.host.match?(/\A(localhost|.*\.localhost|127(\.\d+){3}|\[::1\])\z/)
      unless url.scheme == "https" || loopback
        raise ArgumentError, "the base URL is not https, and the API key would be readable on its way; http is for " \
                             "localhost only; #{right}"
      end
      text.sub(%r{/+\z}, "")
    end
  end

  # The outcome of a session, and what its callback says about itself: id is the webhook-id, which is the same for the
  # same result; session is the session's id, and empty in a callback that belongs to none; test is true where it says
  # nothing about a person.
  Result = Struct.new(:platform_user_id, :guild_id, :verified, :id, :session, :sent_at, :test, keyword_init: true)

  # Remembers in one process which callbacks were handled. Several processes behind one address share one of their
  # own: anything with begin(id), which returns :new, :busy or :handled, and end(id, handled).
  class MemorySeen
    def initialize(seconds: 72 * 3600, most: 100_000)
      @seconds, @most = seconds, most
      @lock = Mutex.new
      @busy = {}
      @handled = {} # in the order in which they came
    end

    def begin(id)
      @lock.synchronize do
        forget
        next :handled if @handled.key?(id)
        next :busy if @busy.key?(id)

        @busy[id] = true
        :new
      end
    end

    def end(id, handled)
      @lock.synchronize do
        @busy.delete(id)
        @handled[id] = now if handled
        forget
      end
    end

    private

    def forget
      until @handled.empty?
        id, at = @handled.first
        break if @handled.size <= @most && now - at < @seconds

        @handled.delete(id)
      end
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end

  # What is behind a callback_url, as a Rack application: checks signature and time, and hands over each result once.
  # secrets are the account's signing secret, whsec_…, or its public key, whpk_…, which needs Ruby 3.1: one or, while
  # they rotate, two; one match is enough. Where the block raises, the callback is answered with 500 and handed
  # over again when it is sent again. With tests, results of test keys are handed over too.
  class Receiver
    MAX_CALLBACK = 64 << 10
    TOLERANCE = 5 * 60
    private_constant :MAX_CALLBACK, :TOLERANCE

    def initialize(secrets, seen: MemorySeen.new, tests: false, &handle)
      if Array(secrets).empty?
        raise ArgumentError, "no signing secret; give the account's, which begins with whsec_, or its public key, " \
                             "which begins with whpk_"
      end
      raise ArgumentError, "no handler; give a block that takes results" unless handle

      @keys = secrets.each_with_index.map { |secret, i| key_of(secret, i + 1, secrets.size) }
      @seen, @tests, @handle = seen, tests, handle
    end

    def inspect
      "#<Verifyd::Receiver #{@keys.size} secrets>"
    end

    # Answers a request of Rack.
    def call(env)
      headers = env.select { |name, _| name.start_with?("HTTP_") }
                   .to_h { |name, value| [name.delete_prefix("HTTP_").tr("_", "-").downcase, value] }
      body = env["rack.input"]&.read(MAX_CALLBACK + 1) || ""
      status, words = receive(env["REQUEST_METHOD"], headers, body)
      answer = { "content-type" => "text/plain; charset=utf-8", "x-content-type-options" => "nosniff" }
      answer["allow"] = "POST" if status == 405
      answer["retry-after"] = "1" if status == 503
      [status, answer, ["#{words}\n"]]
    end

    # Takes one request, for frameworks without Rack: returns status and text. Names of headers are in lower case.
    def receive(method, headers, body)
      return [405, "callbacks come by POST"] unless method == "POST"
      return [413, "a callback has less than #{MAX_CALLBACK} bytes"] if body.bytesize > MAX_CALLBACK

      id, seconds, signatures = %w[webhook-id webhook-timestamp webhook-signature].map { |name| headers[name].to_s }
      if id.empty? || signatures.empty? || !seconds.match?(/\A-?\d{1,15}\z/)
        return [401, "the headers of a signed callback are missing or malformed"]
      end
      if (Time.now.to_f - seconds.to_i).abs > TOLERANCE
        return [401, "the timestamp is more than 5 minutes from this receiver's clock"]
      end
      unless signed?("#{id}.#{seconds}.".b + body.b, signatures)
        return [401, "no signature matches: another secret, or a changed body"]
      end
      judge(id, seconds, headers, body)
    end

    private

    def judge(id, seconds, headers, body)
      doc = begin
        JSON.parse(body.dup.force_encoding(Encoding::UTF_8))
      rescue JSON::ParserError, EncodingError
        nil
      end
      user, guild, verified = doc.values_at("platform_user_id", "guild_id", "verified") if doc.is_a?(Hash)
      unless user.is_a?(String) && guild.is_a?(String) && [true, false].include?(verified)
        return [422, "the body is not a verification result"]
      end
      test = id.start_with?("cbtest_") || headers["verifyd-test"] == "true"
      return [200, "a test, and rightly signed; this receiver takes no notice of tests"] if test && !@tests

      take(Result.new(platform_user_id: user, guild_id: guild, verified: verified, id: id,
                      session: id[/\Acb(?:test)?_(.*)\z/m, 1].to_s, sent_at: Time.at(seconds.to_i).utc, test: test))
    end

    def take(result)
      known = begin
        @seen.begin(result.id)
      rescue StandardError
        return [503, "this receiver cannot tell whether it has handled this already"]
      end
      return [200, "handled already"] if known == :handled
      return [503, "being handled at this moment"] if known != :new

      handled = begin
        @handle.call(result)
        true
      rescue StandardError
        false # why is the integrator's own business
      end
      begin
        @seen.end(result.id, handled)
      rescue StandardError
        return [503, "handled, but this receiver could not remember it"] if handled
      end
      handled ? [200, "handled"] : [500, "not handled"]
    end

    def signed?(message, signatures)
      matches = false
      signatures.split(" ").each do |signature|
        kind, text = signature.split(",", 2)
        @keys.each do |version, key|
          next unless kind == version && text

          same = version == "v1" ? secret_signed?(key, message, text) : key_signed?(key, message, text)
          matches ||= same
        end
      end
      matches
    end

    def secret_signed?(key, message, text)
      right = [OpenSSL::HMAC.digest("SHA256", key, message)].pack("m0")
      right.bytesize == text.bytesize && OpenSSL.fixed_length_secure_compare(right, text)
    end

    def key_signed?(key, message, text)
      key.verify(nil, text.unpack1("m0"), message)
    rescue ArgumentError, OpenSSL::PKey::PKeyError
      false # no base64, or not the length of a signature
    end

    # What stands before the 32 bytes of a public key in its DER form (RFC 8410 §4).
    ED25519 = ["302a300506032b6570032100"].pack("H*").freeze
    private_constant :ED25519

    def public_key_of(text, place, of)
      key = text.delete_prefix("whpk_").unpack1("m0")
      raise ArgumentError unless key.bytesize == 32

      ["v1a", OpenSSL::PKey.read(ED25519 + key)]
    rescue ArgumentError, OpenSSL::PKey::PKeyError
      raise ArgumentError, "public key #{place} of #{of} is not whpk_ and 32 bytes of base64; copy it from the dashboard"
    end

    def key_of(secret, place, of)
      return public_key_of(secret, place, of) if secret.is_a?(String) && secret.start_with?("whpk_")

      key = secret.is_a?(String) && secret.start_with?("whsec_") && secret.delete_prefix("whsec_").unpack1("m0")
      raise ArgumentError unless key && key.bytesize >= 24

      ["v1", key]
    rescue ArgumentError
      raise ArgumentError, "signing secret #{place} of #{of} is not whsec_ and base64 of at least 24 bytes; copy it " \
        "from the dashboard"
    end
  end
end
