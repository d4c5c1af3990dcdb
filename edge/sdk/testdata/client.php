<?php

// Does what standard input says, a JSON list of calls, and prints what became of each.
require 'verifyd.php';

use Verifyd\{Client, NoAnswer, Refused};

$order = json_decode(stream_get_contents(STDIN), true);
$client = new Client($order['base'], $order['key']);
$instant = fn (?string $text): ?string => $text === null ? null
    : (new DateTimeImmutable($text))->format('Y-m-d\TH:i:s.v\Z');
$shown = fn (array $s): array => [
    'id' => $s['id'], 'state' => $s['state'], 'verified' => $s['verified'], 'test' => $s['test'],
    'user' => $s['platform_user_id'], 'delivery' => $s['delivery']['state'],
    'attempts' => array_map(fn ($a) => $a['status'], $s['delivery']['attempts']),
    'completed' => $instant($s['completed_at'] ?? null),
];
$ids = fn (iterable $sessions): array => array_map(fn ($s) => $s['id'], [...$sessions]);
$does = [
    'start' => function (array $a) use ($client): array {
        $s = $client->start(
            platform: $a['platform'], platformUserId: $a['user'], callbackUrl: $a['callback'],
            guildId: $a['guild'] ?? '', idempotencyKey: $a['key'] ?? null, binding: $a['binding'] ?? null,
            reference: $a['reference'] ?? '', locale: $a['locale'] ?? null,
            displayName: $a['called'] ?? '', groupName: $a['group'] ?? '',
        );
        return [
            'url' => $s->verifyUrl, 'session' => $s->session, 'id' => $s->id(),
            'expires' => $s->expiresAt->format('Y-m-d\TH:i:s.v\Z'), 'shown' => print_r($s, true),
        ];
    },
    'read' => fn (array $a): array => $shown($client->read($a['session'])),
    'whole' => fn (array $a): array => $client->read($a['session']),
    'wait' => fn (array $a): array => $shown($client->wait($a['session'])),
    'cancel' => fn (array $a): array => $shown($client->cancel($a['session'])),
    'confirm' => fn (array $a): array => $shown(
        $client->confirm($a['session'], platformUserId: $a['user'], code: $a['code'])
    ),
    'resend' => fn (array $a): array => $shown($client->resend($a['session'])),
    'list' => function (array $a) use ($client, $ids): array {
        $page = $client->list([
            'platform_user_id' => $a['user'], 'state' => $a['state'], 'delivery' => $a['delivery'] ?? null,
            'since' => $a['since'] ?? null, 'until' => $a['until'] ?? null, 'limit' => $a['limit'],
            'cursor' => $a['cursor'] ?? null, 'q' => $a['q'] ?? null, 'platform' => $a['platform'] ?? null,
            'group' => $a['group'] ?? null, 'key' => $a['key'] ?? null, 'mode' => $a['mode'] ?? null,
            'network' => $a['network'] ?? null, 'reason' => $a['reason'] ?? null,
            'binding' => $a['binding'] ?? null, 'from' => $a['from'] ?? null, 'to' => $a['to'] ?? null,
        ]);
        return ['ids' => $ids($page['sessions']), 'next' => $page['next']];
    },
    'pages' => fn (array $a): array => ['ids' => $ids((function () use ($client) {
        foreach ($client->pages() as $s) {
            yield $s;
        }
    })())],
];
$ends = [];
foreach ($order['calls'] as $call) {
    try {
        $ends[] = ['ok' => $does[$call['call']]($call)];
    } catch (Refused $e) {
        $ends[] = ['refused' => [
            'status' => $e->status, 'code' => $e->problem, 'fields' => array_column($e->fields, 'name'),
            'retry' => $e->retryAfter, 'tries' => $e->triesLeft,
        ]];
    } catch (NoAnswer) {
        $ends[] = ['noAnswer' => true];
    }
}
echo json_encode(['ends' => $ends, 'client' => print_r($client, true)]);
