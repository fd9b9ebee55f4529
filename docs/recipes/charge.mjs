#!/usr/bin/env node
// node charge.mjs AMOUNT: charge a card and wait for the outcome, with nothing but Node.
// node charge.mjs: finish the payment that a crash left open.
//
// It says what the cashier should see. Exit code: 0 paid, 3 not paid, 6 paid, but another amount, 4 a person has to look,
// 5 what was left open is finished and AMOUNT was not charged, 2 wrong usage; 1, a fault of this program, says nothing.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const socketPath = process.env.POSD_SOCKET ?? "/run/posd/till.sock";
const directory = process.env.TILL_DIR ?? ".";
const [PAID, USAGE, NOT_PAID, SUPERVISOR, ANOTHER_WAS_OPEN, PAID_ANOTHER_AMOUNT] = [0, 2, 3, 4, 5, 6];
const openFile = path.join(directory, "open-payment"); // the payment without an outcome: id, made, request

/** Call posd; resolve with {status, body}, reject where no whole answer came. */
function call(method, path, body) {
  return new Promise((resolve, reject) => {
    const headers = body === undefined ? {} : { "content-type": "application/json" };
    const request = http.request({ socketPath, path: `/v1${path}`, method, headers }, (response) => {
      const chunks = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () => {
        try {
          resolve({ status: response.statusCode, body: JSON.parse(Buffer.concat(chunks)) });
        } catch (error) {
          reject(error);
        }
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

let shown = "";
function show(text) {
  if (text !== shown) console.log(text);
  shown = text;
}

/** Put a file on the disk, whole or not at all. */
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

/** Say how it ended, and leave: it is open no more. */
function settled(words, code) {
  console.log(words);
  fs.unlinkSync(openFile);
  if (notYet) console.log(`${notYet} WAS NOT CHARGED: it was the turn of the payment that was left open`);
  process.exit(notYet ? ANOTHER_WAS_OPEN : code);
}

/** Leave; the payment stays noted as open. */
function callSupervisor(why) {
  console.log(`CALL THE SUPERVISOR: ${why}`);
  process.exit(SUPERVISOR);
}

/** Start it, or hear that it is known: both are the same call. */
async function start(id, made, request) {
  for (let attempt = 1; ; attempt++) {
    // Without an answer of posd the same call with the same id is always safe.
    const { status, body } = await call("PUT", `/transactions/${id}`, JSON.stringify(request)).catch(() => ({ body: {} }));
    if (status === 200 || status === 201) return body;
    const { code, detail, next_step, retry_after_seconds, records_missing_until: lostUntil } = body;
    // Was nothing ever sent under this id? posd knows, or the till, whose id is newer than the records that a restore lost.
    const neverStarted = body.never_started === true || (lostUntil && made > lostUntil);
    if (next_step === "new_id_ok" || (neverStarted && (next_step !== "same_call" || attempt >= 3))) {
      settled(`NOT PAID: ${detail}`, NOT_PAID);
    }
    if (code && next_step !== "same_call") callSupervisor(detail); // ask_person, or an earlier call may have started it
    show(detail ?? "One moment, please");
    await sleep((retry_after_seconds ?? 1) * 1000);
  }
}

/** Wait for the outcome, over restarts of posd. */
async function finish(id) {
  for (;;) {
    try {
      // Returns with the outcome; the 2 seconds are for what is shown, they decide nothing.
      const { status, body } = await call("GET", `/transactions/${id}/outcome?timeout=2`);
      if (status === 200) return body;
      if (status === 404 || status === 410) callSupervisor(body.detail);
      if (status !== 202) throw new Error(body.detail);
      show(body.display.text); // where the next step is ask_person, it sends for the supervisor
    } catch {
      show("One moment, please. The payment goes on."); // posd restarts: nothing is lost
      await sleep(1000);
    }
  }
}

const leftOpen = fs.existsSync(openFile);
const notYet = leftOpen && process.argv[2]; // its turn comes when the one that was left open is settled
if (!leftOpen && process.argv.length === 3) {
  // Id and request are on disk before the call, so that the same call can be repeated after any failure.
  // The amount is a text: a binary float would not be exact.
  const request = { amount: { subtotal_iva0: process.argv[2] } };
  store(openFile, JSON.stringify({ id: randomUUID(), made: new Date().toISOString(), request }));
} else if (!leftOpen) {
  console.error("usage: charge.mjs AMOUNT");
  process.exit(USAGE);
}
const { id, made, request } = JSON.parse(fs.readFileSync(openFile));
const amount = request.amount.subtotal_iva0;
if (leftOpen) console.log(`First, the payment of ${amount} that was left open:`);

show((await start(id, made, request)).display.text);
const { next_step, display, result, ticket_number, authorized_amount, failure_reason } = await finish(id);
switch (next_step) {
  case "done": // the other amount: a gift card had less on it, and the text says so
    settled(
      `${display.text}, ticket ${ticket_number ?? ""}`,
      Number(authorized_amount ?? amount) === Number(amount) ? PAID : PAID_ANOTHER_AMOUNT,
    );
    break;
  case "new_id_ok":
    settled(`${display.text}: ${result} ${failure_reason?.message ?? ""}`, NOT_PAID);
    break;
  default: {
    const { body } = await call("GET", `/transactions/${id}`);
    callSupervisor(body.attention.map(({ detail }) => detail).join("; "));
  }
}
