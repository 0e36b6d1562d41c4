// Clients of the server that the script has started, and queues that no other scenario uses.
"use strict";

const assert = require("node:assert/strict");
const path = require("node:path");
const { describe, test } = require("node:test");
const { ServiceBusClient } = require("@azure/service-bus");
const WebSocket = require("ws");

const plain = process.env.KEW_BUS_CONNECTION_STRING;

// Each is one way to the server: the options of the SDK's client.
const doors = ["amqp", "amqps"].concat(process.env.KEW_BUS_HTTPS ? ["websockets"] : []);

function connectionString(door) {
  if (door === "amqp") return plain;
  const rest = plain.slice(plain.indexOf(";") + 1).replace("UseDevelopmentEmulator=true;", "");
  return `Endpoint=sb://${process.env.KEW_BUS_HOST}/;${rest}`;
}

// No retries: the test must see answers that a retry would hide.
function connect(door, text = connectionString(door), timeoutInMs = 60_000) {
  const options = { retryOptions: { maxRetries: 0, timeoutInMs } };
  if (door === "websockets") options.webSocketOptions = { webSocket: WebSocket };
  return new ServiceBusClient(text, options);
}

// Files of scenarios run as separate processes: the first queue of each file.
const firsts = { messages: 0, requests: 50, sessions: 70, rhea: 80, soak: 90 };
const taken = {};

function fresh(kind = "plain") {
  const first = firsts[path.basename(process.argv[1], ".test.js")];
  taken[kind] = (taken[kind] ?? 0) + 1;
  return `${kind}-${first + taken[kind]}`;
}

// The related queue of another kind.
function partner(queue, kind) {
  return kind + queue.slice(queue.lastIndexOf("-"));
}

// Most scenarios wait most of the time: all of a file run at once, through one door after the other. Through all doors at
// once, one would wait for the others' turns for longer than locks last, on a busy machine.
function scenarios(all) {
  for (const door of doors) {
    describe(door, { concurrency: true }, () => {
      for (const [name, scenario] of Object.entries(all)) {
        test(name, async () => {
          const client = connect(door);
          try {
            await scenario(client, door);
          } finally {
            await client.close();
          }
        });
      }
    });
  }
}

async function put(client, queue, ...messages) {
  const sender = client.createSender(queue);
  for (const message of messages) {
    await sender.sendMessages(typeof message === "object" && !Buffer.isBuffer(message) ? message : { body: message });
  }
  await sender.close();
}

async function take(receiver, count = 1) {
  const messages = [];
  while (messages.length < count) {
    const found = await receiver.receiveMessages(count - messages.length, { maxWaitTimeInMs: 60_000 });
    assert.ok(found.length > 0, `${messages.length} of ${count} messages`);
    messages.push(...found);
  }
  return messages;
}

// Options for a receiver. The SDK removes the mode from the object, so each receiver needs one of its own.
function deleting() {
  return { receiveMode: "receiveAndDelete" };
}

// Receives a message and completes it.
async function drop(receiver) {
  const [message] = await take(receiver);
  await receiver.completeMessage(message);
  return message;
}

async function isEmpty(receiver) {
  return (await receiver.receiveMessages(1, { maxWaitTimeInMs: 500 })).length === 0;
}

function bodies(messages) {
  return messages.map((message) => message.body);
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

module.exports = {
  bodies, connect, connectionString, deleting, doors, drop, fresh, isEmpty, partner, put, scenarios, sleep, take,
};
