<?php

declare(strict_types=1);

/**
 * verifyd @VERSION@ for PHP 8.1 and later: starts identity verifications, reads them, and receives their results.
 *
 *     require 'verifyd.php';
 *     $client = new Verifyd\Client('https://verify.example.com', getenv('VERIFYD_API_KEY'));
 *     $started = $client->start(platform: 'discord', platformUserId: 'sailor_42',
 *         callbackUrl: 'https://bot.example.com/verified.php');
 *     // send the user to $started->verifyUrl; log $started->id(), never $started->session
 *
 * and behind the callback_url:
 *
 *     $receiver = new Verifyd\Receiver([getenv('VERIFYD_SIGNING_SECRET')], function (Verifyd\Result $result): void {
 *         setVerified($result->platformUserId, $result->verified);
 *     });
 *     $receiver->respond();
 *
 * start sends an idempotency key, its own where you give none, and tries up to six times while no answer comes, or
 * a 502, 503 or 504, for as long as Retry-After asks, at most 5 seconds. Nothing else is repeated.
 */

namespace Verifyd;

const VERSION = '@VERSION@';

/** What a Client throws. */
abstract class VerifydException extends \RuntimeException
{
}

/** The service answered, and refused. */
final class Refused extends VerifydException
{
    /** A code of the service's interface, such as rate_limited; empty where the answer had none. */
    public readonly string $problem;
    public readonly string $detail;
    /** @var list<array{name: string, code: string, detail: string}> the members that are not right */
    public readonly array $fields;
    public readonly string $requestId;
    /** How many more codes are accepted, for wrong_code; 0: the session has failed. Otherwise null. */
    public readonly ?int $triesLeft;

    /** @param array<string, mixed> $problem */
    public function __construct(public readonly int $status, array $problem, public readonly int $retryAfter)
    {
        $this->problem = (string) ($problem['code'] ?? '');
        $this->detail = (string) ($problem['detail'] ?? '');
        $this->fields = array_map(fn ($e): array => [
            'name' => (string) ($e['field'] ?? ''), 'code' => (string) ($e['code'] ?? ''),
            'detail' => (string) ($e['detail'] ?? ''),
        ], is_array($problem['errors'] ?? null) ? array_values($problem['errors']) : []);
        $this->requestId = (string) ($problem['request_id'] ?? '');
        $tries = $problem['tries_left'] ?? null;
        $this->triesLeft = is_int($tries) ? $tries : null;
        parent::__construct(trim("verifyd answered $status $this->problem")
            . ($this->detail === '' ? '' : ": $this->detail")
            . ($this->requestId === '' ? '' : " (request $this->requestId)"));
    }
}

/** No answer came, or none that was one. What was asked for may have been done. */
final class NoAnswer extends VerifydException
{
    public function __construct(string $why)
    {
        parent::__construct("verifyd gave no answer: $why");
    }
}

/** A session that has begun. */
final class Started
{
    public function __construct(
        /** Where to send the user. */
        public readonly string $verifyUrl,
        /** The session's token: who holds it may sign in, so it belongs into no log. */
        #[\SensitiveParameter] public readonly string $session,
        public readonly \DateTimeImmutable $expiresAt,
    ) {
    }

    /** The session's id, under which it may be logged. */
    public function id(): string
    {
        $id = '';
        $held = $bits = 0;
        foreach (unpack('C20', hash('sha256', $this->session, true)) as $byte) {
            $held = ($held << 8 | $byte) & 0xfff;
            for ($bits += 8; $bits >= 5; $bits -= 5) {
                $id .= 'abcdefghijklmnopqrstuvwxyz234567'[$held >> ($bits - 5) & 31];
            }
        }
        return $id;
    }

    /** @return array<string, mixed> what var_dump shows: not what lets somebody in */
    public function __debugInfo(): array
    {
        return ['id' => $this->id(), 'expiresAt' => $this->expiresAt];
    }
}

/** Calls the service with one API key. Its methods throw Refused and NoAnswer. */
final class Client
{
    private const TRIES = 6;
    private const MAX_PAUSE = 5.0;
    private const MAX_ANSWER = 1 << 20;

    private string $base;

    public function __construct(
        string $baseUrl,
        #[\SensitiveParameter] private readonly string $apiKey,
        private readonly float $timeout = 45.0,
    ) {
        $this->base = self::parseBase($baseUrl);
        if (preg_match('/^[\x21-\x7e]+$/D', $apiKey) !== 1) {
            throw new \InvalidArgumentException(
                'the API key is empty or holds spaces; it is one word that begins with vfy_ or vfytest_'
            );
        }
    }

    /** @return array<string, mixed> what var_dump shows */
    public function __debugInfo(): array
    {
        return ['base' => $this->base];
    }

    /**
     * Starts a session. It tries up to six times, under one idempotency key.
     *
     * @param ?string $binding what is to be proven before the session is verified: 'link', that whoever has
     *     the link controls an identity; 'code', and that the account's owner confirms on the platform, with
     *     a code; 'account', and that the same browser signed in as that platform account; null: what the
     *     account has set
     * @param string $reference your own name for the session, such as an order number: up to 128 bytes,
     *     which no user sees
     * @param ?string $locale the user's language as a BCP 47 tag, such as 'pt-BR'; null: the browser says it
     * @param string $displayName how people know the user on the platform; the page shows it above the id
     * @param string $groupName how people know the group there
     */
    public function start(
        string $platform,
        string $platformUserId,
        string $callbackUrl,
        string $guildId = '',
        ?string $idempotencyKey = null,
        ?string $binding = null,
        string $reference = '',
        ?string $locale = null,
        string $displayName = '',
        string $groupName = '',
    ): Started {
        $body = ['platform' => $platform, 'platform_user_id' => $platformUserId, 'callback_url' => $callbackUrl];
        if ($guildId !== '') {
            $body['guild_id'] = $guildId;
        }
        if ($binding !== null) {
            $body['binding'] = $binding;
        }
        if ($reference !== '') {
            $body['reference'] = $reference;
        }
        if ($locale !== null) {
            $body['locale'] = $locale;
        }
        if ($displayName !== '') {
            $body['display_name'] = $displayName;
        }
        if ($groupName !== '') {
            $body['group_name'] = $groupName;
        }
        $key = $idempotencyKey ?? bin2hex(random_bytes(16));
        for ($left = self::TRIES - 1, $wait = 0.25; ; $left--, $wait *= 2) {
            try {
                $answer = $this->call('POST', '/verify/init', ["Idempotency-Key: $key"], $body);
                if (!is_string($answer['verify_url'] ?? null) || !is_string($answer['session'] ?? null)) {
                    throw new NoAnswer('the answer has no verify_url or no session');
                }
                return new Started(
                    $answer['verify_url'],
                    $answer['session'],
                    new \DateTimeImmutable((string) ($answer['expires_at'] ?? 'now')),
                );
            } catch (VerifydException $e) {
                $passing = $e instanceof NoAnswer || $e instanceof Refused
                    && (in_array($e->status, [502, 503, 504], true) || $e->problem === 'idempotency_in_progress');
                if ($left === 0 || !$passing) {
                    throw $e;
                }
                $asked = $e instanceof Refused ? min((float) $e->retryAfter, self::MAX_PAUSE) : 0.0;
                usleep((int) (max($wait, $asked) * 1e6));
            }
        }
    }

    /** @return array<string, mixed> a session as the service's interface describes it, by its token or its id */
    public function read(string $session): array
    {
        return self::session($this->call('GET', self::path($session)));
    }

    /** @return array<string, mixed> the session once it is no longer pending, or after so many seconds */
    public function wait(string $session, ?int $seconds = null): array
    {
        $late = $seconds === null ? INF : microtime(true) + $seconds;
        for (;;) {
            $next = microtime(true) + 1;
            $held = (int) max(1, min(30, $late - microtime(true)));
            $read = self::session($this->call('GET', self::path($session) . "?wait=$held"));
            if ($read['state'] !== 'pending' || microtime(true) >= $late) {
                return $read;
            }
            usleep((int) max(0, ($next - microtime(true)) * 1e6));
        }
    }

    /**
     * One page of sessions, newest first.
     *
     * @param array<string, string|int> $filter platform_user_id, state, delivery, since, until, limit, cursor,
     *     q, platform, group, key, mode, network, reason, binding, from, to
     * @return array{sessions: list<array<string, mixed>>, next: ?string}
     */
    public function list(array $filter = []): array
    {
        $query = http_build_query($filter);
        $page = $this->call('GET', '/sessions' . ($query === '' ? '' : "?$query"));
        if (!is_array($page['sessions'] ?? null)) {
            throw new NoAnswer('the answer has no sessions');
        }
        return ['sessions' => array_map(self::session(...), $page['sessions']), 'next' => $page['next'] ?? null];
    }

    /**
     * All sessions of a list, page by page.
     *
     * @param array<string, string|int> $filter
     * @return \Generator<array<string, mixed>>
     */
    public function pages(array $filter = []): \Generator
    {
        do {
            $page = $this->list($filter);
            foreach ($page['sessions'] as $session) {
                yield $session;
            }
            $filter['cursor'] = $page['next'];
        } while ($page['next'] !== null);
    }

    /** @return array<string, mixed> the canceled session; no callback is sent */
    public function cancel(string $session): array
    {
        return self::session($this->call('POST', self::path($session) . '/cancel'));
    }

    /**
     * Completes a session whose binding is 'code' as verified, with the code that its user gave. Five codes
     * are taken; another one is a Refused with the code wrong_code and triesLeft. It is not repeated by
     * itself; a repeat is harmless: the same code from the same user is one try.
     *
     * @param string $platformUserId what the platform says of who is writing, never what the user writes
     * @param string $code as the user wrote it: in any case, with or without spaces and hyphens
     * @return array<string, mixed> the session, verified
     */
    public function confirm(string $session, string $platformUserId, string $code): array
    {
        $body = ['platform_user_id' => $platformUserId, 'code' => $code];
        return self::session($this->call('POST', self::path($session) . '/confirm', [], $body));
    }

    /** @return array<string, mixed> the session, whose callback is sent once more; a repeat sends another */
    public function resend(string $session): array
    {
        return self::session($this->call('POST', self::path($session) . '/resend'));
    }

    /**
     * @param list<string> $headers
     * @param array<string, mixed>|null $body
     * @return array<string, mixed>
     */
    private function call(string $method, string $path, array $headers = [], ?array $body = null): array
    {
        $headers[] = "Authorization: Bearer $this->apiKey";
        $headers[] = 'Accept: application/json, application/problem+json';
        $content = $body === null ? '' : json_encode($body, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE);
        if ($body !== null) {
            $headers[] = 'Content-Type: application/json';
        }
        $context = stream_context_create(['http' => [
            'method' => $method, 'header' => $headers, 'content' => $content, 'user_agent' => 'verifyd-php/' . VERSION,
            'ignore_errors' => true, 'follow_location' => 0, 'max_redirects' => 1, 'timeout' => $this->timeout,
            'protocol_version' => 1.1,
        ]]);
        error_clear_last();
        $stream = @fopen($this->base . $path, 'rb', false, $context);
        $text = $stream === false ? false : @stream_get_contents($stream, self::MAX_ANSWER);
        $meta = $stream === false ? [] : stream_get_meta_data($stream);
        $head = $meta['wrapper_data'] ?? [];
        if ($meta['timed_out'] ?? false) {
            throw new NoAnswer('the time is over');
        }
        if ($text === false || preg_match('~^HTTP/\S+ (\d{3})~', $head[0] ?? '', $line) !== 1) {
            $why = error_get_last()['message'] ?? 'the connection was closed';
            throw new NoAnswer(str_contains($why, '): ') ? substr($why, strpos($why, '): ') + 3) : $why);
        }
        $status = (int) $line[1];
        $answer = json_decode($text, true);
        if ($status < 200 || $status > 299) {
            $asked = preg_grep('/^retry-after: *\d{1,9}$/i', $head);
            $seconds = $asked ? (int) trim(substr(reset($asked), strlen('retry-after:'))) : 0;
            throw new Refused($status, is_array($answer) ? $answer : [], $seconds);
        }
        if (!is_array($answer) || array_is_list($answer)) {
            throw new NoAnswer("status $status, but not the JSON that was expected");
        }
        return $answer;
    }

    private static function path(string $session): string
    {
        if ($session === '') {
            throw new \InvalidArgumentException('no session; give its token or its id');
        }
        return '/sessions/' . rawurlencode($session);
    }

    /**
     * @param array<string, mixed> $doc
     * @return array<string, mixed>
     */
    private static function session(array $doc): array
    {
        if (!is_string($doc['id'] ?? null) || !is_string($doc['state'] ?? null)) {
            throw new NoAnswer('the answer has no id or no state');
        }
        return $doc + [
            'test' => false, 'binding' => '', 'reached' => null, 'step' => '', 'verified' => null,
            'reference' => '', 'locale' => '', 'display_name' => '', 'group_name' => '',
            'delivery' => ['state' => 'none', 'attempts' => [], 'waiting' => null],
        ];
    }

    private static function parseBase(string $text): string
    {
        $right = 'give the address of the service such as https://verify.example.com';
        $url = parse_url($text);
        if ($url === false || !isset($url['scheme'], $url['host'])) {
            throw new \InvalidArgumentException("the base URL is not an absolute URL; $right");
        }
        if (isset($url['user']) || isset($url['query']) || isset($url['fragment'])) {
            throw new \InvalidArgumentException("the base URL holds a user, a query or a fragment; $right");
        }
        $loopback = preg_match('/^(localhost|.*\.localhost|127(\.\d+){3}|\[::1\])$/D', $url['host']) === 1;
        if ($url['scheme'] !== 'https' && !($url['scheme'] === 'http' && $loopback)) {
            throw new \InvalidArgumentException('the base URL is not https, and the API key would be readable on its '
                . "way; http is for localhost only; $right");
        }
        return rtrim($text, '/');
    }
}

/** The outcome of a session, and what its callback says about itself. */
final class Result
{
    public function __construct(
        public readonly string $platformUserId,
        public readonly string $guildId,
        public readonly bool $verified,
        /** webhook-id: two results with the same one are the same result. */
        public readonly string $id,
        /** The session's id; empty in a callback that belongs to none. */
        public readonly string $session,
        public readonly \DateTimeImmutable $sentAt,
        /** It says nothing about a person. */
        public readonly bool $test,
    ) {
    }
}

/** Remembers which callbacks were handled. Several machines behind one address share one of their own. */
interface Seen
{
    /** Takes an id: 'new', 'busy' or 'handled'. Only with 'new' is the result handled, and end called. */
    public function begin(string $id): string;

    /** Gives an id back: handled for good, or to be begun again. */
    public function end(string $id, bool $handled): void;
}

/** Remembers in a folder, which all processes of one machine share: a file for each callback. */
final class FolderSeen implements Seen
{
    /** A process that took longer than this has died. */
    private const BUSY = 60;

    public function __construct(private readonly string $folder, private readonly int $seconds = 72 * 3600)
    {
        if (!is_dir($folder) && !@mkdir($folder, 0700, true) && !is_dir($folder)) {
            throw new \InvalidArgumentException("the folder $folder cannot be made");
        }
    }

    public function begin(string $id): string
    {
        if (random_int(0, 99) === 0) {
            $this->forget();
        }
        $file = $this->file($id);
        if (($made = @fopen($file, 'x')) !== false) {
            fclose($made);
            return 'new';
        }
        clearstatcache(true, $file);
        if (@filesize($file) > 0) {
            return 'handled';
        }
        if (is_file($file) && time() - (int) @filemtime($file) < self::BUSY) {
            return 'busy';
        }
        @unlink($file);
        $made = @fopen($file, 'x'); // of two who find a dead one's file, one
        if ($made === false) {
            return 'busy';
        }
        fclose($made);
        return 'new';
    }

    public function end(string $id, bool $handled): void
    {
        $done = $handled ? file_put_contents($this->file($id), "handled\n") : unlink($this->file($id));
        if ($done === false) {
            throw new \RuntimeException("the folder $this->folder cannot be written to");
        }
    }

    private function file(string $id): string
    {
        return "$this->folder/" . hash('sha256', $id);
    }

    private function forget(): void
    {
        foreach (glob("$this->folder/*") ?: [] as $file) {
            if (time() - (int) @filemtime($file) > $this->seconds) {
                @unlink($file);
            }
        }
    }
}

/** What is behind a callback_url: checks signature and time, and hands over each result once. */
final class Receiver
{
    private const MAX_CALLBACK = 64 << 10;
    private const TOLERANCE = 5 * 60;

    /** @var list<string> of signing secrets */
    private array $keys = [];
    /** @var list<string> */
    private array $publicKeys = [];
    private \Closure $handle;
    private Seen $seen;

    /**
     * @param list<string> $secrets the account's signing secret, whsec_…, or its public key, whpk_…, for which PHP's
     *     extension sodium is needed: one or, while they rotate, two; one match is enough
     * @param callable(Result): mixed $handle where it throws, the callback is answered with 500 and handed over again
     *     when it is sent again
     * @param Seen|null $seen default: a folder below the system's temporary one, named after the first secret
     * @param bool $tests hand over results of test keys, too
     */
    public function __construct(
        #[\SensitiveParameter] array $secrets,
        callable $handle,
        ?Seen $seen = null,
        private readonly bool $tests = false,
    ) {
        foreach (array_values($secrets) as $i => $secret) {
            if (str_starts_with($secret, 'whpk_')) {
                $this->publicKeys[] = self::publicKey($secret);
                continue;
            }
            $key = str_starts_with($secret, 'whsec_') ? base64_decode(substr($secret, 6), true) : false;
            if ($key === false || strlen($key) < 24) {
                throw new \InvalidArgumentException(sprintf('signing secret %d of %d is not whsec_ and base64 of at '
                    . 'least 24 bytes; copy it from the dashboard', $i + 1, count($secrets)));
            }
            $this->keys[] = $key;
        }
        if ($this->keys === [] && $this->publicKeys === []) {
            throw new \InvalidArgumentException("no signing secret; give the account's, which begins with whsec_, or "
                . 'its public key, which begins with whpk_');
        }
        $this->handle = $handle(...);
        $first = [...$this->keys, ...$this->publicKeys][0];
        $this->seen = $seen
            ?? new FolderSeen(sys_get_temp_dir() . '/verifyd-' . substr(hash('sha256', $first), 0, 16));
    }

    private static function publicKey(string $text): string
    {
        if (!function_exists('sodium_crypto_sign_verify_detached')) {
            throw new \InvalidArgumentException("a public key needs PHP's extension sodium; give the signing secret");
        }
        $key = base64_decode(substr($text, 5), true);
        if ($key === false || strlen($key) !== SODIUM_CRYPTO_SIGN_PUBLICKEYBYTES) {
            throw new \InvalidArgumentException('a public key is not whpk_ and 32 bytes of base64; copy it from the '
                . 'dashboard');
        }
        return $key;
    }

    /** @return array<string, mixed> what var_dump shows */
    public function __debugInfo(): array
    {
        return ['secrets' => count($this->keys), 'publicKeys' => count($this->publicKeys)];
    }

    /** Answers the request that PHP is serving. */
    public function respond(): void
    {
        $headers = [];
        foreach ($_SERVER as $name => $value) {
            if (str_starts_with((string) $name, 'HTTP_')) {
                $headers[strtolower(strtr(substr($name, 5), '_', '-'))] = (string) $value;
            }
        }
        $body = file_get_contents('php://input', false, null, 0, self::MAX_CALLBACK + 1);
        [$status, $words] = $body === false
            ? [400, 'the body could not be read']
            : $this->receive($_SERVER['REQUEST_METHOD'] ?? '', $headers, $body);
        http_response_code($status);
        header('Content-Type: text/plain; charset=utf-8');
        header('X-Content-Type-Options: nosniff');
        if ($status === 405) {
            header('Allow: POST');
        }
        if ($status === 503) {
            header('Retry-After: 1');
        }
        echo "$words\n";
    }

    /**
     * Takes one request, for frameworks.
     *
     * @param array<string, string> $headers with names in lower case
     * @return array{int, string} status and text
     */
    public function receive(string $method, array $headers, string $body): array
    {
        if ($method !== 'POST') {
            return [405, 'callbacks come by POST'];
        }
        if (strlen($body) > self::MAX_CALLBACK) {
            return [413, 'a callback has less than ' . self::MAX_CALLBACK . ' bytes'];
        }
        $id = $headers['webhook-id'] ?? '';
        $seconds = $headers['webhook-timestamp'] ?? '';
        $signatures = $headers['webhook-signature'] ?? '';
        if ($id === '' || $signatures === '' || preg_match('/^-?\d{1,15}$/D', $seconds) !== 1) {
            return [401, 'the headers of a signed callback are missing or malformed'];
        }
        if (abs(time() - (int) $seconds) > self::TOLERANCE) {
            return [401, "the timestamp is more than 5 minutes from this receiver's clock"];
        }
        if (!$this->signed("$id.$seconds.$body", $signatures)) {
            return [401, 'no signature matches: another secret, or a changed body'];
        }
        $doc = json_decode($body, true);
        if (!is_array($doc) || !is_string($doc['platform_user_id'] ?? null) || !is_string($doc['guild_id'] ?? null)
            || !is_bool($doc['verified'] ?? null)) {
            return [422, 'the body is not a verification result'];
        }
        $test = str_starts_with($id, 'cbtest_') || ($headers['verifyd-test'] ?? '') === 'true';
        if ($test && !$this->tests) {
            return [200, 'a test, and rightly signed; this receiver takes no notice of tests'];
        }
        return $this->take(new Result(
            $doc['platform_user_id'],
            $doc['guild_id'],
            $doc['verified'],
            $id,
            preg_match('/^cb(?:test)?_(.*)$/Ds', $id, $m) === 1 ? $m[1] : '',
            new \DateTimeImmutable("@$seconds"),
            $test,
        ));
    }

    private function signed(string $message, string $signatures): bool
    {
        $matches = false;
        foreach (explode(' ', $signatures) as $signature) {
            [$kind, $text] = explode(',', $signature, 2) + [1 => ''];
            foreach ($kind === 'v1' ? $this->keys : [] as $key) {
                $right = base64_encode(hash_hmac('sha256', $message, $key, true));
                $matches = hash_equals($right, $text) || $matches;
            }
            $bytes = $kind === 'v1a' ? (string) base64_decode($text, true) : '';
            foreach (strlen($bytes) === 64 ? $this->publicKeys : [] as $key) {
                $matches = sodium_crypto_sign_verify_detached($bytes, $message, $key) || $matches;
            }
        }
        return $matches;
    }

    /** @return array{int, string} */
    private function take(Result $result): array
    {
        try {
            $known = $this->seen->begin($result->id);
        } catch (\Throwable) {
            return [503, 'this receiver cannot tell whether it has handled this already'];
        }
        if ($known === 'handled') {
            return [200, 'handled already'];
        }
        if ($known !== 'new') {
            return [503, 'being handled at this moment'];
        }
        try {
            ($this->handle)($result);
            $handled = true;
        } catch (\Throwable) {
            $handled = false; // why is the integrator's own business
        }
        try {
            $this->seen->end($result->id, $handled);
        } catch (\Throwable) {
            if ($handled) {
                return [503, 'handled, but this receiver could not remember it'];
            }
        }
        return $handled ? [200, 'handled'] : [500, 'not handled'];
    }
}
