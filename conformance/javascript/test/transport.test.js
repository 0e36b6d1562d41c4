import assert from "node:assert/strict";
import { test } from "node:test";

import { QueueClient, StorageSharedKeyCredential } from "@azure/storage-queue";

import { Front } from "../lib/front.js";
import { NO_RETRIES, refused, scenarios } from "../lib/kew.js";

const QUICK_RETRIES = { retryOptions: { maxTries: 4, retryDelayInMs: 10, maxRetryDelayInMs: 20 } };

scenarios("transport", (door) => {
  // Through a proxy that forwards bytes, so over TLS too; only the busy server has no TLS.
  async function through(front, options, scenario) {
    const port = await front.open();
    try {
      const queue = await door.fresh();
      const url = `${door.url({ port })}/${queue.name}`;
      await scenario(new QueueClient(url, door.credential, options));
    } finally {
      front.close();
    }
  }

  test("many requests share one connection", async () => {
    const front = new Front(door.port);
    await through(front, NO_RETRIES, async (queue) => {
      for (let number = 0; number < 20; number += 1) {
        await queue.sendMessage(String(number));
        const { receivedMessageItems } = await queue.receiveMessages();
        const [{ messageId, popReceipt }] = receivedMessageItems;
        await queue.deleteMessage(messageId, popReceipt);
        // An error keeps the connection too.
        await refused(404, "MessageNotFound", queue.deleteMessage(messageId, popReceipt));
      }
    });
    assert.equal(front.connections, 1);
  });

  // The busy server has no TLS.
  const inClear = door.scheme === "http" ? test : () => {};

  inClear("a busy server is asked again", async () => {
    const front = new Front(door.port, 2);
    await through(front, QUICK_RETRIES, async (queue) => {
      await queue.sendMessage("text");
      assert.equal((await queue.getProperties()).approximateMessagesCount, 1);
    });
    assert.equal(front.connections, 3);
  });

  inClear("a busy server, and no patience", async () => {
    await through(new Front(door.port, 1), NO_RETRIES, async (queue) => {
      await assert.rejects(queue.sendMessage("text"), { statusCode: 503 });
    });
  });

  test("a wrong key", async () => {
    const { name } = await door.fresh();
    const wrong = new StorageSharedKeyCredential(
      door.account,
      Buffer.alloc(64, 7).toString("base64"),
    );
    const queue = new QueueClient(`${door.url()}/${name}`, wrong, NO_RETRIES);
    await refused(403, "AuthenticationFailed", queue.getProperties());
  });

  test("no credential", async () => {
    const { name } = await door.fresh();
    const queue = new QueueClient(`${door.url()}/${name}`, undefined, NO_RETRIES);
    await refused(401, "NoAuthenticationInformation", queue.getProperties());
  });

  test("the SDK as it comes", async () => {
    const { name } = await door.fresh();
    const queue = new QueueClient(door.connectionString, name);
    await queue.sendMessage("text");
    const { receivedMessageItems } = await queue.receiveMessages();
    assert.equal(receivedMessageItems[0].messageText, "text");
  });
});
