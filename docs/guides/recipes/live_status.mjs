#!/usr/bin/env node
// node live_status.mjs PAYMENT_ID: follow a payment by server-sent events, over restarts of posd.
//
// It starts nothing: charge.mjs does that. Exit codes: 0 paid (it shows how much); 3 not paid; 4 an operator has to check.
import http from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const socketPath = process.env.POSD_SOCKET ?? "/run/posd/till.sock";
const id = process.argv[2];

function events(after) {
  const headers = { accept: "text/event-stream", "last-event-id": after };
  return new Promise((resolve, reject) => {
    http.get({ socketPath, path: `/v1/transactions/${id}/events`, headers }, resolve).on("error", reject);
  });
}

let shown = "";
function show(text) {
  if (text !== shown) console.log(text);
  shown = text;
}

/** Yield the messages of an event stream: {id, event, data}. Lines that begin with a colon are heartbeats. */
async function* messages(response) {
  let rest = "";
  for await (const chunk of response.setEncoding("utf8")) {
    const blocks = (rest + chunk).split("\n\n");
    rest = blocks.pop(); // incomplete
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

/** Follow the payment to its outcome; resume after the last seen event. */
for (let last = "0"; ; await sleep(500)) {
  try {
    const response = await events(last);
    if (response.statusCode !== 200) {
      const { detail } = JSON.parse(Buffer.concat(await response.toArray()));
      if (response.statusCode === 429 || response.statusCode >= 500) throw new Error(detail);
      show(`CALL THE SUPERVISOR: ${detail}`);
      process.exit(4);
    }
    for await (const { id: seq, event, data } of messages(response)) {
      last = seq ?? last;
      if (event !== "state" && event !== "outcome") continue; // events of the terminal are only for a log
      const { next_step, display } = JSON.parse(data);
      show(display.text);
      if (event === "outcome") process.exit({ done: 0, new_id_ok: 3 }[next_step] ?? 4);
    }
  } catch {
    show("One moment, please"); // posd restarts, or cannot read its database: nothing is lost
  }
}
