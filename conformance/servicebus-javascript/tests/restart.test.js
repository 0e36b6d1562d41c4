// Clients reconnect by themselves when the server restarts, and no accepted message is lost.
"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const path = require("node:path");
const readline = require("node:readline");
const { describe, test } = require("node:test");
const { ServiceBusClient } = require("@azure/service-bus");
const { sleep } = require("../lib/kew.js");

const queues = [{ Name: "q", Properties: { LockDuration: "PT5S" } }];
const patient = { retryOptions: { maxRetries: 20, retryDelayInMs: 300, timeoutInMs: 5_000 } };

// A server for a single scenario, which is ended and restarted.
async function serve() {
  const script = path.join(__dirname, "../../restarting");
  const process = spawn(script, [JSON.stringify(queues)], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = readline.createInterface({ input: process.stdout })[Symbol.asyncIterator]();
  const hear = async () => {
    const { value } = await lines.next();
    assert.ok(value, "the server did not start, or did not end well");
    return value;
  };
  return {
    connectionString: await hear(),
    async restart(signal) {
      process.stdin.write(`${signal}\n`);
      assert.equal(await hear(), "ready");
    },
    end() {
      process.stdin.end();
    },
  };
}

describe("a server that comes back", { concurrency: true }, () => {
  for (const signal of ["TERM", "KILL"]) {
    test(`after ${signal}`, async () => {
      const server = await serve();
      const clients = [1, 2].map(() => new ServiceBusClient(server.connectionString, patient));
      const sent = new Set();
      const seen = new Set();
      let isDone = false;
      const receiver = clients[0].createReceiver("q");
      receiver.subscribe({
        async processMessage(message) {
          seen.add(message.body);
        },
        // It gets every end of a connection as an error, and continues.
        async processError() {},
      });
      const sender = clients[1].createSender("q");
      const sending = (async () => {
        while (!isDone) {
          const body = sent.size;
          try {
            await sender.sendMessages({ body });
            sent.add(body);
          } catch {
            // This SDK leaves refused connections to its caller: the same sender is used again.
            await sleep(100);
          }
          await sleep(10);
        }
      })();
      const until = async (so) => {
        const end = Date.now() + 60_000;
        while (!so()) {
          assert.ok(Date.now() < end, `${sent.size} sent, ${seen.size} seen`);
          await sleep(50);
        }
      };
      const areMore = async (count) => {
        const [a, b] = [sent.size + count, seen.size + count];
        await until(() => sent.size >= a && seen.size >= b);
      };
      try {
        await areMore(20);
        for (let time = 0; time < 2; time++) {
          await server.restart(signal);
          await areMore(20);
        }
        isDone = true;
        await sending;
        // Some may have arrived twice.
        await until(() => [...sent].every((body) => seen.has(body)));
      } finally {
        isDone = true;
        await Promise.all(clients.map((client) => client.close()));
        server.end();
      }
    });
  }
});
