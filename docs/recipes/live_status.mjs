#!/usr/bin/env node
// node live_status.mjs PAYMENT_ID: follow a payment as it happens, by server-sent events, over restarts of posd.
//
// It starts nothing: charge.mjs does that. Exit code: 0 paid (it shows how much), 3 not paid, 4 a person has to look.
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const socketPath = process.env.POSD_SOCKET ?? "/run/posd/till.sock";
const id = process.argv[2];
const STEPS = {
  TERMINAL_ACKNOWLEDGED: "Present the card",
  CARD_PRESENTED: "Card read: follow the terminal",
  APPROVAL_REQUESTED: "Asking the bank",
};

function get(path, headers = {}) {
  return new Promise((resolve, reject) => {
    http.get({ socketPath, path: `/v1/transactions/${id}${path}`, headers }, resolve).on("error", reject);
  });
}

async function json(response) {
  let text = "";
  for await (const chunk of response.setEncoding("utf8")) text += chunk;
  return JSON.parse(text);
}

/** Return the response where it is one to read; leave where asking again cannot help; reject where it can. */
async function read(response) {
  if (response.statusCode === 200) return response;
  const { detail } = await json(response);
  if (response.statusCode >= 500) throw new Error(detail);
  console.log(`CALL THE SUPERVISOR: ${detail}`);
  process.exit(4);
}

let away = false;
function oneMoment() {
  if (!away) console.log("One moment, please"); // posd restarts, or cannot look: nothing is lost
  away = true;
}

/** Yield the messages of an event stream: {id, event, data}. Lines that begin with a colon are heartbeats. */
async function* messages(response) {
  let rest = "";
  for await (const chunk of response.setEncoding("utf8")) {
    const blocks = (rest + chunk).split("\n\n");
    rest = blocks.pop(); // not whole yet
    for (const block of blocks) {
      const message = { data: "" };
      for (const line of block.split("\n")) {
        const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
        if (name) message[name] = name === "data" ? message.data + value : value;
      }
      if (message.event) yield message;
    }
  }
}

/** Follow the events until the outcome; resume behind the last one seen. */
async function follow() {
  let last = "0";
  for (;;) {
    try {
      const response = await read(await get("/events", { accept: "text/event-stream", "last-event-id": last }));
      away = false;
      for await (const { id: seq, event, data } of messages(response)) {
        if (event === "outcome") return;
        const { verdict } = JSON.parse(data);
        if (verdict === "applied" && STEPS[event]) console.log(STEPS[event]);
        last = seq ?? last;
      }
    } catch {
      oneMoment();
    }
    await sleep(500);
  }
}

await follow();
for (;;) {
  try {
    const { next_step, outcome, attention } = await json(await read(await get("")));
    const ends = {
      done: [`PAID ${outcome.authorized_amount ?? ""}`, 0], // not always what was asked for: a gift card has less on it
      new_id_ok: [`NOT PAID: ${outcome.result}`, 3],
    };
    const why = attention.map(({ detail }) => detail).join("; ");
    const [words, code] = ends[next_step] ?? [`CALL THE SUPERVISOR: ${why}`, 4];
    console.log(words.trimEnd());
    process.exit(code);
  } catch {
    oneMoment();
    await sleep(500);
  }
}
