#!/usr/bin/env php
<?php
// php charge.php AMOUNT: charge a card and wait for the outcome, with PHP 8.1 and its curl extension.
// php charge.php: settle the payment that a crash left open.
//
// The program prints what the cashier should see. Exit codes:
// 0 paid; 3 not paid; 6 paid, but another amount; 4 an operator has to check the payment;
// 5 AMOUNT was not charged, because an open payment was settled or another charge runs;
// 2 wrong usage; 1 the program failed, and the payment may be open.
declare(strict_types=1);

set_error_handler(fn($level, $text) => throw new RuntimeException($text));
set_exception_handler(function ($fault) {
    fwrite(STDERR, "$fault\n");
    exit(1);
});

$directory = getenv('TILL_DIR') ?: '.';
$open = "$directory/open-payment"; // the payment without an outcome: its id, when the id was made, its request
$socket = getenv('POSD_SOCKET') ?: '/run/posd/till.sock';

$lock = fopen("$open.lock", 'c'); // one run at a time; the lock is released when this program ends, also by a crash
if (!flock($lock, LOCK_EX | LOCK_NB)) {
    echo isset($argv[1]) ? "$argv[1] WAS NOT CHARGED: " : '', "another charge of this till is running\n";
    exit(5);
}

/** Call posd about this payment; return status and body. Status 0: no complete reply of posd arrived. */
function call(string $method, string $path, ?string $body = null): array
{
    $curl = curl_init("http://posd/v1/transactions/{$GLOBALS['id']}$path");
    curl_setopt_array($curl, [CURLOPT_UNIX_SOCKET_PATH => $GLOBALS['socket'], CURLOPT_RETURNTRANSFER => true]);
    curl_setopt_array($curl, [CURLOPT_CUSTOMREQUEST => $method, CURLOPT_TIMEOUT => 30]);
    if ($body !== null) {
        curl_setopt_array($curl, [CURLOPT_POSTFIELDS => $body, CURLOPT_HTTPHEADER => ['Content-Type: application/json']]);
    }
    $answer = curl_exec($curl);
    $reply = $answer === false ? null : json_decode($answer, true);
    return isset($reply['code']) || isset($reply['display']) ? [curl_getinfo($curl, CURLINFO_RESPONSE_CODE), $reply] : [0, []];
}

function now(): string
{
    return (new DateTimeImmutable('now', new DateTimeZone('UTC')))->format('Y-m-d\TH:i:s.v\Z');
}

function show(string $text): void // each text once
{
    static $shown = '';
    if ($text !== $shown) {
        echo "$text\n";
    }
    $shown = $text;
}

/** Write a file to the disk, completely or not at all. */
function store(string $file, string $text): void
{
    $new = fopen("$file.new", 'w');
    if (fwrite($new, $text) !== strlen($text) || !fsync($new) || !rename("$file.new", $file)) {
        throw new RuntimeException("$file cannot be written");
    }
    exec('sync ' . escapeshellarg(dirname($file)), result_code: $code); // PHP cannot sync a directory
    if ($code !== 0) {
        throw new RuntimeException('sync has failed');
    }
}

/** Print the result and exit. A payment that an operator has to check stays stored. */
function finish(string $words, int $code): never
{
    show($words);
    if ($code === 4) {
        exit($code);
    }
    unlink($GLOBALS['open']); // a till books the result first
    if ($GLOBALS['not_yet'] !== null) {
        echo "{$GLOBALS['not_yet']} WAS NOT CHARGED: the payment that was left open was settled instead\n";
        exit(5);
    }
    exit($code);
}

$left_open = file_exists($open);
$not_yet = $left_open ? $argv[1] ?? null : null; // used after the open payment is settled
if (!$left_open && $argc === 2) {
    // Id and request are on disk before the call. The amount is a text: a binary float is not exact.
    $hex = str_split(bin2hex(random_bytes(16)), 4);
    $id = vsprintf('%s%s-%s-4%.3s-a%.3s-%s%s%s', $hex); // a UUID of version 4
    $made = now();
    store($open, json_encode(['id' => $id, 'made' => $made, 'request' => ['amount' => ['subtotal_iva0' => $argv[1]]]]));
} elseif (!$left_open) {
    fwrite(STDERR, "usage: charge.php AMOUNT\n");
    exit(2);
}
['id' => $id, 'made' => $made, 'request' => $request] = json_decode(file_get_contents($open), true);
$amount = $request['amount']['subtotal_iva0'];
if ($left_open) {
    echo "First, the payment of $amount that was left open:\n";
}

$may_be_started = $left_open; // then ask for the outcome; start only if posd says never_started
for ($tries = 0; ; ) {
    [$status, $reply] = $may_be_started
        ? call('GET', '/outcome?timeout=2') // 2 seconds until the text is shown again
        : call('PUT', '', json_encode($request));
    [$text, $detail, $step] = [$reply['display']['text'] ?? '', $reply['detail'] ?? '', $reply['next_step'] ?? ''];
    $lost_until = $reply['records_missing_until'] ?? '~';
    // No restore lost a record made after that time. A `made` in the future comes from a wrong clock and proves nothing.
    $newer = strcmp($made, $lost_until) > 0 && strcmp($made, now()) <= 0;
    $never_started = ($reply['never_started'] ?? false) || $newer;
    if ($may_be_started && $status === 200) {
        if ($step === 'done') {
            [$paid, $tip, $asked] = array_map(fn($number) => round(10000 * (float) $number), // exact, unlike a binary float
                [$reply['authorized_amount'], $reply['tip'] ?? 0, $amount]);
            $all = $reply['authorized_amount'] === null || $paid - $tip === $asked; // else a gift card had less money
            finish("$text, ticket {$reply['ticket_number']}", $all ? 0 : 6);
        } elseif ($step === 'new_id_ok') {
            finish("$text: {$reply['result']} " . ($reply['failure_reason']['message'] ?? ''), 3);
        }
        finish("$text (payment $id)", 4);
    } elseif (in_array($status, [200, 201, 202])) {
        $may_be_started = true;
        show($text);
    } elseif ($may_be_started && $never_started) {
        $may_be_started = false;
    } else {
        $wait = $status === 0 || $step === 'same_call' || $may_be_started && ($status === 429 || $status >= 500);
        if ($never_started && (!$wait || ++$tries === 3)) {
            finish("NOT PAID: $detail", 3);
        } elseif (!$wait) {
            finish("CALL THE SUPERVISOR: $detail (payment $id)", 4);
        }
        $may_be_started = true;
        show($detail ?: 'One moment, please'); // posd restarts, or the terminal is busy
        sleep($reply['retry_after_seconds'] ?? 1);
    }
}
