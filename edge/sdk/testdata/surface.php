<?php

// Prints what the file offers: its calls with their parameters, and the members of its types.
require 'verifyd.php';

$members = fn (string $class): array => array_fill_keys(array_map(
    fn (ReflectionProperty $p): string => $p->name,
    (new ReflectionClass($class))->getProperties(ReflectionProperty::IS_PUBLIC),
), '');
$calls = [];
foreach ((new ReflectionClass(Verifyd\Client::class))->getMethods(ReflectionMethod::IS_PUBLIC) as $call) {
    if (!str_starts_with($call->name, '__')) {
        $calls[$call->name] = array_map(fn (ReflectionParameter $p): string => $p->name, $call->getParameters());
    }
}
$refused = new Verifyd\Refused(400, ['errors' => [['field' => 'f']]], 0);
echo json_encode(['calls' => $calls, 'types' => [
    'Started' => $members(Verifyd\Started::class) + ['id' => ''],
    'Result' => $members(Verifyd\Result::class),
    'Refused' => ['fields' => [array_fill_keys(array_keys($refused->fields[0]), '')]] + $members($refused::class),
]]);
