#!/usr/bin/env node
// node live_status.mjs PAYMENT_ID: follow a payment as it happens, by server-sent events, over restarts of posd.
//
// It starts nothing: charge.mjs does that. Exit code: 0 paid, 1 not paid, 4 a person has to look.
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
      const response = await get("/events", { accept: "text/event-stream", "last-event-id": last });
      if (response.statusCode === 404 || response.statusCode === 410) throw new RangeError((await json(response)).detail);
      for await (const { id: seq, event, data } of messages(response)) {
        if (event === "outcome") return;
        const { verdict } = JSON.parse(data);
        if (verdict === "applied" && STEPS[event]) console.log(STEPS[event]);
        last = seq ?? last;
      }
    } catch (error) {
      if (error instanceof RangeError) {
        console.log(`CALL THE SUPERVISOR: ${error.message}`);
        process.exit(4);
      }
      console.log("One moment, please"); // posd restarts: nothing is lost
    }
    await sleep(500);
  }
}

await follow();
for (;;) {
  try {
    const { next_step, outcome } = await json(await get(""));
    const words = { done: "PAID", new_id_ok: `NOT PAID: ${outcome.result}` };
    console.log(words[next_step] ?? "CALL THE SUPERVISOR");
    process.exit({ done: 0, new_id_ok: 1 }[next_step] ?? 4);
  } catch {
    await sleep(500);
  }
}
