<?php
// A till made with openapi-generator for PHP: `php charge.php SOCKET LIB`; LIB is the generated folder of that name.

declare(strict_types=1);

use OpenAPI\Client\Api\TransactionsApi;
use OpenAPI\Client\ApiException;
use OpenAPI\Client\Model\AskedAmount;
use OpenAPI\Client\Model\AskedOperationType;
use OpenAPI\Client\Model\StartRequest;

require 'GuzzleHttp/autoload.php';
[, $socket, $lib] = $argv;
spl_autoload_register(function (string $class) use ($lib): void {
    $file = $lib . '/' . strtr(substr($class, strlen('OpenAPI\\Client\\')), '\\', '/') . '.php';
    if (str_starts_with($class, 'OpenAPI\\Client\\') && is_file($file)) {
        require $file;
    }
});

function uuid(): string
{
    $bytes = random_bytes(16);
    $bytes[6] = chr(ord($bytes[6]) & 0x0f | 0x40);
    $bytes[8] = chr(ord($bytes[8]) & 0x3f | 0x80);
    return vsprintf('%s%s-%s-%s-%s-%s%s%s', str_split(bin2hex($bytes), 4));
}

function refused(callable $call): object
{
    try {
        $call();
    } catch (ApiException $error) {
        return $error->getResponseObject();
    }
    throw new RuntimeException('it was not refused');
}

$api = new TransactionsApi(new GuzzleHttp\Client(['curl' => [CURLOPT_UNIX_SOCKET_PATH => $socket]]));
$api->getConfig()->setHost('http://posd');
$id = uuid();
$reference = uuid();
$charge = [
    'terminal' => 'SN-0001',
    'type' => AskedOperationType::CHARGE,
    'amount' => new AskedAmount(['iva' => '1.20', 'subtotal_iva' => '10.00']),
    'metadata' => (object) ['reference' => $reference],
];
$started = $api->startTransaction($id, new StartRequest($charge));
$outcome = $api->awaitOutcome($id);
$history = $api->getHistory($id)->getHistory();
$listed = $api->listTransactions(metadata: ['metadata.reference' => $reference]);
$tooLate = refused(fn () => $api->abortTransaction($id));
$unknown = refused(fn () => $api->startTransaction(uuid(), new StartRequest(['terminal' => 'SN-NONE'] + $charge)));

echo json_encode([
    'next_step' => $started->getNextStep(),
    'result' => $outcome->getResult(),
    'authorized_amount' => (string) $outcome->getAuthorizedAmount(),
    'first_line' => $history[0]->getKind(),
    'listed' => array_map(fn ($item) => $item->getClientTransactionId() === $id, $listed->getTransactions()),
    'refused' => [$tooLate->getCode(), $unknown->getCode()],
    'fleet' => $unknown->getFleet(),
]), "\n";
