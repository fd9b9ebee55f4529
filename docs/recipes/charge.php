#!/usr/bin/env php
<?php
// php charge.php AMOUNT: charge a card and wait for the outcome, with PHP 8.1 and its curl extension.
// php charge.php: finish the payment that a crash left open.
//
// It says what the cashier should see. Exit code: 0 paid, 3 not paid, 6 paid, but another amount, 4 a person has to look,
// 5 what was left open is finished and AMOUNT was not charged, 2 wrong usage; 1, a fault of this program, says nothing.
declare(strict_types=1);

set_error_handler(fn($level, $text) => throw new RuntimeException($text));
set_exception_handler(function ($fault) {
    fwrite(STDERR, "$fault\n");
    exit(1);
});

$directory = getenv('TILL_DIR') ?: '.';
$open = "$directory/open-payment"; // the payment without an outcome: its id, when the id was made, its request
$socket = getenv('POSD_SOCKET') ?: '/run/posd/till.sock';

/** Call posd; return the status and the body. Status 0: no whole answer came, or none of posd. */
function call(string $method, string $path, ?string $body = null): array
{
    $curl = curl_init("http://posd/v1/transactions/$path");
    curl_setopt_array($curl, [CURLOPT_UNIX_SOCKET_PATH => $GLOBALS['socket'], CURLOPT_RETURNTRANSFER => true]);
    curl_setopt($curl, CURLOPT_CUSTOMREQUEST, $method);
    if ($body !== null) {
        curl_setopt_array($curl, [CURLOPT_POSTFIELDS => $body, CURLOPT_HTTPHEADER => ['Content-Type: application/json']]);
    }
    $answer = curl_exec($curl);
    $reply = $answer === false ? null : json_decode($answer, true);
    return is_array($reply) ? [curl_getinfo($curl, CURLINFO_RESPONSE_CODE), $reply] : [0, []];
}

function show(string $text): void // once, however often it is true
{
    static $shown = '';
    if ($text !== $shown) {
        echo "$text\n";
    }
    $shown = $text;
}

/** Put a file on the disk, whole or not at all. */
function store(string $file, string $text): void
{
    $new = fopen("$file.new", 'w');
    if (fwrite($new, $text) !== strlen($text) || !fsync($new) || !rename("$file.new", $file)) {
        throw new RuntimeException("$file cannot be written");
    }
    exec('sync ' . escapeshellarg(dirname($file)), result_code: $code); // PHP cannot do it for a directory
    if ($code !== 0) {
        throw new RuntimeException('sync has failed');
    }
}

/** Say how it ended, and leave: it is open no more. */
function settled(string $words, int $code): never
{
    show($words);
    unlink($GLOBALS['open']); // a till books the result before
    if ($GLOBALS['not_yet'] !== null) {
        echo "{$GLOBALS['not_yet']} WAS NOT CHARGED: it was the turn of the payment that was left open\n";
        exit(5);
    }
    exit($code);
}

/** Leave; the payment stays noted as open. */
function call_supervisor(string $why): never
{
    echo "CALL THE SUPERVISOR: $why\n";
    exit(4);
}

$left_open = file_exists($open);
$not_yet = $left_open ? $argv[1] ?? null : null; // its turn comes when the one that was left open is settled
if (!$left_open && $argc === 2) {
    // Id and request are on disk before the call, so that the same call can be repeated after any failure.
    // The amount is a text: a binary float would not be exact.
    $hex = str_split(bin2hex(random_bytes(16)), 4);
    $id = vsprintf('%s%s-%s-4%.3s-a%.3s-%s%s%s', $hex); // a UUID of version 4
    $made = (new DateTimeImmutable('now', new DateTimeZone('UTC')))->format('Y-m-d\TH:i:s.v\Z');
    store($open, json_encode(['id' => $id, 'made' => $made, 'request' => ['amount' => ['subtotal_iva0' => $argv[1]]]]));
} elseif (!$left_open) {
    fwrite(STDERR, "usage: charge.php AMOUNT\n");
    exit(2);
}
$stored = json_decode(file_get_contents($open), true, flags: JSON_THROW_ON_ERROR);
['id' => $id, 'request' => $request] = $stored;
$amount = $request['amount']['subtotal_iva0'];
if ($left_open) {
    echo "First, the payment of $amount that was left open:\n";
}

// Start it, or hear that it is known: both are the same call.
for ($attempt = 1; ; $attempt++) {
    [$status, $reply] = call('PUT', $id, json_encode($request));
    if ($status === 200 || $status === 201) {
        break;
    }
    $step = $reply['next_step'] ?? '';
    // Was nothing ever sent under this id? posd knows, or the till, whose id is newer than the records that a restore lost.
    $newer = isset($reply['records_missing_until']) && ($stored['made'] ?? '') > $reply['records_missing_until'];
    $never_started = $newer || ($reply['never_started'] ?? false) === true;
    if ($step === 'new_id_ok' || ($never_started && ($step !== 'same_call' || $attempt >= 3))) {
        settled("NOT PAID: {$reply['detail']}", 3);
    } elseif (isset($reply['code']) && $step !== 'same_call') { // ask_person, or an earlier call may have started it
        call_supervisor($reply['detail']);
    }
    show($reply['detail'] ?? 'One moment, please'); // the same call with the same id is always safe
    sleep($reply['retry_after_seconds'] ?? 1);
}

// Wait for the outcome, over restarts of posd.
show($reply['display']['text']);
do {
    [$status, $reply] = call('GET', "$id/outcome?timeout=2"); // the 2 seconds are for what is shown, they decide nothing
    if ($status === 202) {
        show($reply['display']['text']); // where the next step is ask_person, it sends for the supervisor
    } elseif ($status === 404 || $status === 410) {
        call_supervisor($reply['detail']);
    } elseif ($status !== 200) {
        show('One moment, please. The payment goes on.'); // posd restarts: nothing is lost
        sleep(1);
    }
} while ($status !== 200);

['next_step' => $step, 'display' => ['text' => $text]] = $reply;
if ($step === 'done') {
    $paid = $reply['authorized_amount'] ?? $amount;
    // 6: a gift card had less on it, and the text says so.
    settled("$text, ticket {$reply['ticket_number']}", (float) $paid === (float) $amount ? 0 : 6);
} elseif ($step === 'new_id_ok') {
    settled("$text: {$reply['result']} " . ($reply['failure_reason']['message'] ?? ''), 3);
}
[, $payment] = call('GET', $id);
call_supervisor(implode('; ', array_column($payment['attention'], 'detail')));
