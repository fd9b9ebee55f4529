#!/usr/bin/env node
// node charge.mjs AMOUNT: charge a card and wait for the outcome, with Node and no package.
// node charge.mjs: settle the payment that a crash left open.
//
// The program prints what the cashier should see. Exit codes:
// 0 paid; 3 not paid; 6 paid, but another amount; 4 an operator has to check the payment;
// 5 AMOUNT was not charged, because an open payment was settled or another charge runs;
// 2 wrong usage; 1 the program failed, and the payment may be open.
import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const socketPath = process.env.POSD_SOCKET ?? "/run/posd/till.sock";
const directory = process.env.TILL_DIR ?? ".";
const [PAID, USAGE, NOT_PAID, SUPERVISOR, ANOTHER_WAS_OPEN, PAID_ANOTHER_AMOUNT] = [0, 2, 3, 4, 5, 6];
const openFile = path.join(directory, "open-payment"); // the payment without an outcome: id, made, request

/** Call posd about this payment. Status 0: no complete reply of posd arrived. */
function call(method, path, body) {
  return new Promise((resolve) => {
    const headers = body === undefined ? {} : { "content-type": "application/json" };
    const lost = () => resolve({ status: 0, body: {} });
    const signal = AbortSignal.timeout(30_000);
    const options = { socketPath, path: `/v1/transactions/${id}${path}`, method, headers, signal };
    const request = http.request(options, async (response) => {
      try {
        const body = JSON.parse(Buffer.concat(await response.toArray()));
        if (body.code || body.display) resolve({ status: response.statusCode, body });
        else lost();
      } catch {
        lost();
      }
    });
    request.on("error", lost);
    request.end(body);
  });
}

let shown = "";
function show(text) {
  if (text !== shown) console.log(text);
  shown = text;
}

/** Write a file to the disk, completely or not at all. */
function store(file, text) {
  const sync = (name, flags, write) => {
    const descriptor = fs.openSync(name, flags);
    write?.(descriptor);
    fs.fsyncSync(descriptor);
    fs.closeSync(descriptor);
  };
  sync(`${file}.new`, "w", (descriptor) => fs.writeFileSync(descriptor, text));
  fs.renameSync(`${file}.new`, file);
  sync(path.dirname(file), "r");
}

/** Print the result and exit. A payment that an operator has to check stays stored. */
function end(words, code) {
  show(words);
  if (code === SUPERVISOR) process.exit(code);
  fs.unlinkSync(openFile); // a till books the result first
  if (notYet) console.log(`${notYet} WAS NOT CHARGED: the payment that was left open was settled instead`);
  process.exit(notYet ? ANOTHER_WAS_OPEN : code);
}

// One run at a time. Node has no file lock; this one is released when this program ends, also by a crash.
const lock = spawnSync("flock", ["-n", "3"], { stdio: [0, 1, 2, fs.openSync(`${openFile}.lock`, "w")] });
if (lock.error) throw lock.error;
if (lock.status === 1) {
  console.log(`${process.argv[2] ? `${process.argv[2]} WAS NOT CHARGED: ` : ""}another charge of this till is running`);
  process.exit(ANOTHER_WAS_OPEN);
}

const leftOpen = fs.existsSync(openFile);
const notYet = leftOpen && process.argv[2]; // used after the open payment is settled
if (!leftOpen && process.argv.length === 3) {
  // Id and request are on disk before the call. The amount is a text: a binary float is not exact.
  const request = { amount: { subtotal_iva0: process.argv[2] } };
  store(openFile, JSON.stringify({ id: randomUUID(), made: new Date().toISOString(), request }));
} else if (!leftOpen) {
  console.error("usage: charge.mjs AMOUNT");
  process.exit(USAGE);
}
const { id, made, request } = JSON.parse(fs.readFileSync(openFile));
const amount = request.amount.subtotal_iva0;
if (leftOpen) console.log(`First, the payment of ${amount} that was left open:`);

let mayBeStarted = leftOpen; // then ask for the outcome; start only if posd says never_started
for (let tries = 0; ; ) {
  const { status, body } = await (mayBeStarted
    ? call("GET", "/outcome?timeout=2") // 2 seconds until the text is shown again
    : call("PUT", "", JSON.stringify(request)));
  // No restore lost a record made after that time. A `made` in the future comes from a wrong clock and proves nothing.
  const newer = made > body.records_missing_until && made <= new Date().toISOString();
  const neverStarted = body.never_started || newer;
  if (mayBeStarted && status === 200) {
    const { next_step, display, result, ticket_number, authorized_amount, tip, failure_reason } = body;
    if (next_step === "done") {
      const count = (number) => Math.round(10000 * Number(number ?? 0)); // exact, unlike a binary float
      const all = authorized_amount === null || count(authorized_amount) - count(tip) === count(amount);
      end(`${display.text}, ticket ${ticket_number ?? ""}`, all ? PAID : PAID_ANOTHER_AMOUNT); // a gift card had less money
    }
    if (next_step === "new_id_ok") end(`${display.text}: ${result} ${failure_reason?.message ?? ""}`, NOT_PAID);
    end(`${display.text} (payment ${id})`, SUPERVISOR);
  } else if (status === 200 || status === 201 || status === 202) {
    mayBeStarted = true;
    show(body.display.text);
  } else if (mayBeStarted && neverStarted) {
    mayBeStarted = false;
  } else {
    const wait = status === 0 || body.next_step === "same_call" || (mayBeStarted && (status === 429 || status >= 500));
    if (neverStarted && (!wait || ++tries === 3)) end(`NOT PAID: ${body.detail}`, NOT_PAID);
    if (!wait) end(`CALL THE SUPERVISOR: ${body.detail} (payment ${id})`, SUPERVISOR);
    mayBeStarted = true;
    show(body.detail ?? "One moment, please"); // posd restarts, or the terminal is busy
    await sleep(1000 * (body.retry_after_seconds ?? 1));
  }
}
