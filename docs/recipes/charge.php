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
$open = "$directory/open-payment"; // the payment that has no outcome yet: its id and its request
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
    store($open, json_encode(['id' => $id, 'request' => ['amount' => ['subtotal_iva0' => $argv[1]]]]));
} elseif (!$left_open) {
    fwrite(STDERR, "usage: charge.php AMOUNT\n");
    exit(2);
}
['id' => $id, 'request' => $request] = json_decode(file_get_contents($open), true, flags: JSON_THROW_ON_ERROR);
$amount = $request['amount']['subtotal_iva0'];
if ($left_open) {
    echo "First, the payment of $amount that was left open:\n";
}

// Start it, or hear that it is known: both are the same call.
while (true) {
    [$status, $payment] = call('PUT', $id, json_encode($request));
    $code = $payment['code'] ?? null;
    if ($status === 200 || $status === 201) {
        break;
    } elseif (in_array($code, ['id_reused', 'pruned', 'storage_unavailable'])) {
        call_supervisor($payment['detail']); // an earlier call may have started it: never another id now
    } elseif ((intdiv($status, 100) === 4 || $status === 501 || $status === 503) && $code && $code !== 'draining') {
        settled("NOT PAID: {$payment['detail']}", 3); // nothing was sent, nothing is recorded
    }
    show('One moment, please'); // no answer, or none of posd: the same call with the same id is always safe
    sleep(1);
}

// Wait for the end, over restarts of posd.
while ($payment['phase'] !== 'final') {
    show($payment['display']['text']); // where the next step is ask_person, it sends for the supervisor
    do {
        call('GET', "$id/outcome?timeout=2"); // returns with the outcome; the 2 seconds are for what is shown
        [$status, $reply] = call('GET', $id);
        if ($status === 404 || $status === 410) {
            call_supervisor("posd does not know the payment $id any more");
        } elseif ($status !== 200) {
            show('One moment, please. The payment goes on.'); // posd restarts: nothing is lost
            sleep(1);
        }
    } while ($status !== 200);
    $payment = $reply;
}

['next_step' => $step, 'display' => ['text' => $text], 'outcome' => $outcome] = $payment;
if ($step === 'done') {
    $paid = $outcome['authorized_amount'] ?? $amount;
    // 6: a gift card had less on it, and the text says so.
    settled("$text, ticket {$outcome['ticket_number']}", (float) $paid === (float) $amount ? 0 : 6);
} elseif ($step === 'new_id_ok') {
    settled("$text: {$outcome['result']} " . ($outcome['failure_reason']['message'] ?? ''), 3);
}
call_supervisor(implode('; ', array_column($payment['attention'], 'detail')));
