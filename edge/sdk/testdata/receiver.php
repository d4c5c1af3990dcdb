<?php

// A receiver for PHP's own server; it writes each result to standard error.
require 'verifyd.php';

$receiver = new Verifyd\Receiver(explode(' ', getenv('SECRETS')), function (Verifyd\Result $r): void {
    if ($r->platformUserId === 'fails once' && !file_exists('failed')) {
        touch('failed');
        throw new RuntimeException('the database is away');
    }
    file_put_contents('php://stderr', json_encode([
        'user' => $r->platformUserId, 'guild' => $r->guildId, 'verified' => $r->verified, 'id' => $r->id,
        'session' => $r->session, 'test' => $r->test, 'at' => $r->sentAt->getTimestamp(),
    ]) . "\n");
}, new Verifyd\FolderSeen(__DIR__ . '/seen'));
$receiver->respond();
